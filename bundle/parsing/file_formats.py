"""Detect the format of an unexpected file by its first bytes."""

from __future__ import annotations

HEAD_BYTES = 64

# The first bytes of formats that are often found in place of weights; what they are, and what to do
# about it.
_SIGNATURES: tuple[tuple[bytes, str, str], ...] = (
    (b"GGUF", "a GGUF file", "specify it where a GGUF file is expected"),
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself", "run `git lfs pull`"),
    (b"PK\x03\x04", "a zip archive, as PyTorch writes .bin and .pt", "save it as safetensors"),
    (b"\x80", "a Python pickle, as PyTorch writes .bin and .pt", "save it as safetensors"),
    (b"\x1f\x8b", "a gzip archive", "unpack it"),
    (b"ggjt", "a GGML file of before August 2023", "convert the model again, to GGUF"),
    (b"tjgg", "a GGML file of before August 2023", "convert the model again, to GGUF"),
    (b"lmgg", "a GGML file of before August 2023", "convert the model again, to GGUF"),
    (b"<", "a web page, not the file itself", "download it again, from the link for the file"),
    (b"{", "a JSON file", "specify the folder that contains it"),
)
_LENGTH_BYTES = 8  # of the length in front of a safetensors header


def other_format(head: bytes) -> str | None:
    """The format of a file with these first bytes and a remedy; None if unknown."""
    if not head:
        return "it is empty; download or copy it again"
    # The upper bytes of the length are zero.
    if head[5 : _LENGTH_BYTES + 1] == b"\0\0\0{":
        return "it is a safetensors file; specify the folder that contains it and config.json"
    for signature, description, action in _SIGNATURES:
        if head.lstrip(b"\xef\xbb\xbf \r\n").startswith(signature):
            return f"it is {description}; {action}"
    return None
