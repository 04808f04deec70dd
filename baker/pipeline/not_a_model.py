"""GGUF files that are not language models: what they seem to be, and what to do with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hearthd.baker.weights.source import WeightSource

ARCHITECTURE = "general.architecture"

_ADAPTER = "a LoRA adapter; specify the model, and this file with --adapter"
_PROJECTOR = "a projector of images or sound; specify the model, and this file with --mmproj"
_IMPORTANCE = "an importance matrix, which llama-quantize reads; specify the model"
_CONTROL = "a control vector, which Hearth does not apply; specify the model"
_DIFFUSION = "a model that draws images or videos; specify a language model"
_VOCABULARY = "a vocabulary without a model; specify a GGUF file with tensors"
# By `general.type`, and by architectures that are not of a model.
_BY_NAME = {
    "adapter": _ADAPTER,
    "mmproj": _PROJECTOR,
    "imatrix": _IMPORTANCE,
    "clip": _PROJECTOR,
    "controlvector": _CONTROL,
}
# By what the names of tensors contain, where metadata say no more than the architecture.
_BY_TENSOR = (
    (".lora_a", _ADAPTER),
    (".in_sum2", _IMPORTANCE),
    ("v.blk.", _PROJECTOR),
    ("a.blk.", _PROJECTOR),
    ("diffusion_model.", _DIFFUSION),
    ("double_blocks.", _DIFFUSION),
    ("joint_blocks.", _DIFFUSION),
    ("transformer_blocks.", _DIFFUSION),
)
_CONVERT = "convert_hf_to_gguf.py of llama.cpp"
# By the starts of the names of tensors, of files without the metadata of a model.
_BY_START = (
    (
        "blk.",
        "the tensors of a model without their metadata; download the file again, or convert the "
        f"model again with {_CONVERT}",
    ),
    (
        "model.layers.",
        "the tensors of a Hugging Face folder in a GGUF file; specify the folder, or convert it "
        f"with {_CONVERT}",
    ),
)


def instead_of_model(source: WeightSource) -> str | None:
    """What a GGUF file is that holds no model, and what to do; None if it seems to hold one."""
    if source.format != "gguf":
        return None
    metadata, names = source.metadata(), source.names()
    architecture = metadata.get(ARCHITECTURE)
    for name in (metadata.get("general.type"), architecture):
        if by_name := _BY_NAME.get(str(name)):
            return f"is {by_name}"
    if any(key.startswith(f"{architecture}.") for key in metadata):
        return None if names else f"has no tensors: it seems to be {_VOCABULARY}"
    for part, kind in _BY_TENSOR:
        if any(part in name for name in names):
            return f"seems to be {kind}"
    found = f"only {ARCHITECTURE} {architecture!r:.80}" if architecture else "nothing"
    for start, kind in _BY_START:
        if any(name.startswith(start) for name in names):
            return f"says {found} about its model: it seems to hold {kind}"
    return f"says {found} about a model, and has no tensors of one; specify another file"
