"""Detect the format of an unexpected file by its first bytes."""

from __future__ import annotations

HEAD_BYTES = 512

OTHER_FILE = "specify a GGUF file or a Hugging Face folder"
# The first bytes of formats that are often found in place of weights; what they are, and what to do
# about it.
_SIGNATURES: tuple[tuple[bytes, str, str], ...] = (
    (b"GGUF", "a GGUF file", "specify it where a GGUF file is expected"),
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself", "run `git lfs pull`"),
    (b"\x80", "a Python pickle, as PyTorch writes .bin and .pt", "save it as safetensors"),
    (b"\x1f\x8b", "a gzip archive", "unpack it"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it"),
    (b"\xfd7zXZ", "an xz archive", "unpack it"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive", "unpack it"),
    (b"Rar!", "a RAR archive", "unpack it"),
    (b"BZh", "a bzip2 archive", "unpack it"),
    (b"MZqFpD", "a llamafile", "unpack the GGUF file in it with `unzip`"),
    (b"LITERTLM", "a LiteRT-LM file", OTHER_FILE),
    (b"\x89HDF", "an HDF5 file, as Keras and TensorFlow write .h5", OTHER_FILE),
    (b"\x93NUMPY", "an array of NumPy", OTHER_FILE),
    (b"ggjt", "a GGML file of before August 2023", "convert the model again, to GGUF"),
    (b"tjgg", "a GGML file of before August 2023", "convert the model again, to GGUF"),
    (b"lmgg", "a GGML file of before August 2023", "convert the model again, to GGUF"),
    (b"FROM ", "a Modelfile of Ollama", "specify it as MODEL, or what its line FROM names here"),
    (b'{"error"', "an error message, not the file itself", "download it again"),
    (b"<", "a web page, not the file itself", "download it again, from the link for the file"),
    (b"{", "a JSON file", "specify the folder that contains it"),
)
# Old importance matrices: after two integers of 32 bits, the name of a matrix.
_BLOCK = b"blk."
# The keys of its version and of its producer; Core ML's .mlmodel begins like it.
_ONNX = (b"\x08", b"\x12")
# Four bytes at an offset.
_LATER_SIGNATURES = (
    (4, b"TFL3", "a LiteRT (TensorFlow Lite) file", OTHER_FILE),
    (4, b"ET12", "an ExecuTorch program", OTHER_FILE),
    (257, b"usta", "a tar archive", "unpack it"),
)
_ZIP = b"PK\x03\x04"
_ZIP_NAME_LENGTH, _ZIP_NAME = slice(26, 28), 30  # of the first file in an archive
_ZEROS = "it starts with zeros, as a file whose download is not finished; download it again"
_MAX_QUOTED = 40  # characters of a text
_LENGTH_BYTES = 8  # of the length in front of a safetensors header


def other_format(head: bytes) -> str | None:
    """The format of a file with these first bytes and a remedy; None if unknown."""
    if not any(head):
        return _ZEROS if head else "it is empty; download or copy it again"
    return _by_fields(head) or _by_signature(head) or _text(head)


def _by_fields(head: bytes) -> str | None:
    """A format that begins with lengths or keys."""
    # The upper bytes of the length are zero.
    if head[5 : _LENGTH_BYTES + 1] == b"\0\0\0{":
        return "it is a safetensors file; specify the folder that contains it and config.json"
    if (head[:1], head[2:3]) == _ONNX:
        return f"it seems to be an ONNX or Core ML file; {OTHER_FILE}"
    if head[8:12] == _BLOCK:
        return "it seems to be an importance matrix, which llama-quantize reads; specify the model"
    return _zip_archive(head) if head.startswith(_ZIP) else None


def _by_signature(head: bytes) -> str | None:
    start = head.lstrip(b"\xef\xbb\xbf \r\n")
    for signature, description, action in _SIGNATURES:
        if start.startswith(signature):
            return f"it is {description}; {action}"
    for offset, signature, description, action in _LATER_SIGNATURES:
        if head[offset : offset + len(signature)] == signature:
            return f"it is {description}; {action}"
    return None


def _zip_archive(head: bytes) -> str:
    """What a zip archive is, by the name of its first file."""
    length = int.from_bytes(head[_ZIP_NAME_LENGTH], "little")
    name = head[_ZIP_NAME : _ZIP_NAME + length].decode(errors="replace")
    if name.endswith("data.pkl"):
        return "it is a file of PyTorch, as .bin and .pt; save the model as safetensors"
    if name.startswith("TF_LITE"):
        return f"it is a task file of MediaPipe; {OTHER_FILE}"
    return "it is a zip archive; unpack it, or save a model of PyTorch as safetensors"


def _text(head: bytes) -> str | None:
    """The beginning of a text, such as the error message of a server; None if it is not one."""
    start = head.decode(errors="ignore").strip()
    line = start.partition("\n")[0][:_MAX_QUOTED]
    if not line or b"\0" in head or not line.isprintable():
        return None
    return f"it is a text that starts with {line!r}; download the model again, or {OTHER_FILE}"
