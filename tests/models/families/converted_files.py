"""What llama.cpp's converter makes of the models of cases.py and encoder_cases.py."""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

FILE = Path(__file__).parents[2] / "golden" / "converted.npz"
# Architectures that the converter does not know or fails with, layers without experts among
# others, queries that are one matrix, an attribute that is missing, heads of other widths than
# published ones, a head that the converter leaves out, and models whose text model is another case.
NOT_CONVERTED = {
    "bert-rank", "gemma2-uncapped", "gemma4-equal", "nemotron_h_moe-mixed", "qwen3-reranker-label",
    "baichuan-baichuan", "bailingmoe3-saved", "gptj-gptj", "kimi-linear-kimi", "mimo2-flash",
    "mimo2-saved", "phimoe-window",
    "qwen3moe-mixed", "minicpm3-plain", "qwen35-images-mrope", "qwen35moe-images-mrope",
    "smolvlm-idefics3", "smolvlm-tied", "lfm2-vl-tied", "lfm2-vl-plain",
    "gemma4-images-clips", "gemma4-images-standardized", "gemma4-sound-towers", "qwen2moe-mixed",
    "gemma4-images-blocks", "gemma4-unified-blocks",
    "gemma4-moe-images-blocks", "hunyuan-moe-alpha", "gte", "gte-cls",
    "mistral3-images-ministral3", "mistral3-images-mistral", "internvl-internvl",
    "internvl35-biases", "qwen25vl-images-mrope", "qwen2vl-images-mrope",
    "glm4v-images-mrope", "glm4v-text", "glm4vmoe-images-mrope", "glm-ocr-mrope",
    "paddleocr-vl-mrope",
    "minicpmv-qwen2", "minicpmv4-llama", "minicpmv45-qwen3",
    "lightonocr-lightonocr", "llava-llava", "llava-next-mistral", "granite-vision-granite",
    "pixtral-pixtral",
    "qwen3vl-images-deepstack", "qwen3vlmoe-images-deepstack",
    "voxtral-ministral", "ultravox-llama", "qwen2audio-qwen2", "qwen25omni-thinker",
}  # fmt: skip

# Cases whose projector llama.cpp's converter does not know: an older script of it does.
OF_OLDER_SCRIPT = (
    "granite-vision-granite", "llava-llava", "llava-next-mistral", "minicpmv-qwen2",
    "minicpmv4-llama", "minicpmv45-qwen3",
)  # fmt: skip

# What follows the name of a case whose projector of images is recorded.
PROJECTOR = ".projector"


@dataclass(frozen=True, kw_only=True)
class Converted:
    """A GGUF file.

    metadata  the keys of its architecture, and which one it is
    tensors   the shape of each tensor, and the digest of its values in f32
    """

    metadata: Mapping[str, Any]
    tensors: Mapping[str, tuple[tuple[int, ...], str]]


def digest(values: NDArray[Any]) -> str:
    """The start of the SHA-256 of values in f32."""
    return hashlib.sha256(np.asarray(values, np.float32).tobytes()).hexdigest()[:12]


@functools.cache
def _file() -> Mapping[str, NDArray[Any]]:
    with np.load(FILE) as file:
        return dict(file)


def converted_names() -> set[str]:
    """The cases that have a recording."""
    return {*_file()}


def converted(name: str) -> Converted:
    """The recording of a case."""
    data = json.loads(str(_file()[name]))
    tensors = {name: (tuple(shape), digest) for name, (shape, digest) in data["tensors"].items()}
    return Converted(metadata=data["metadata"], tensors=tensors)


def write(recordings: Mapping[str, Converted]) -> None:
    """Write the file."""
    arrays: dict[str, Any] = {
        name: np.array(json.dumps({"metadata": one.metadata, "tensors": one.tensors}))
        for name, one in recordings.items()
    }
    np.savez_compressed(FILE, **arrays)
