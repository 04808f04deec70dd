"""A GGUF file with a text model and one with its projector, read as one.

The second file has the tensors of towers for images (`v.*`) and sound (`a.*`), of the projections
(`mm.*`, `resampler.*`) and of the end of a line in LLaVA 1.6, and keys that start with "clip.".
Source: llama.cpp, conversion/base.py (`MmprojModel`) and tools/mtmd/clip.cpp.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from hearthd.baker.weights.gguf import GgufSource
from hearthd.baker.weights.source import BadFile
from hearthd.baker.weights.source_in_front import SourceInFront
from hearthd.models.decoder.config.config_json import PROCESSOR
from hearthd.models.decoder.config.projector_metadata import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.baker.weights.source import IntegerBlock, WeightSource

_ARCHITECTURE = "general.architecture"
_SHARED = ("a.", "v.", "mm.", "model.image_newline", "resampler.")
_PINPOINTS = "clip.vision.image_grid_pinpoints"
_WIDTH = "clip.vision.embedding_length"
_FIRST, _SECOND = ".ffn_up.", ".ffn_down."
# What follows the name of a convolution's weights over the second of two frames.
_SECOND_FRAME = ".1"
_DOWN = re.compile(r"v\.blk\.\d+\.ffn_down\.weight")


class ProjectedGguf(SourceInFront):
    """The tensors, keys and files of a text model and of its projector.

    projector  the file of the projector
    """

    def __init__(self, base: WeightSource, projector: Path) -> None:
        """Raises BadFile for a file that is not a projector, or a WeightsError."""
        super().__init__(base)
        self.projector = projector
        self._added = GgufSource(projector)
        architecture = self._added.metadata().get(_ARCHITECTURE)
        if architecture != "clip":
            raise BadFile(
                f"{projector}: {_ARCHITECTURE}: got {architecture!r:.80}, expected clip; specify a "
                "projector of images, such as mmproj-model-f16.gguf, with --mmproj"
            )
        names = [name for name in self._added.names() if name.startswith(_SHARED)]
        self._frames = {
            first: name for name in names if (first := name.removesuffix(_SECOND_FRAME)) != name
        }
        for first, second in self._frames.items():
            shapes = self._added.shape(first), self._added.shape(second)
            if shapes[0] != shapes[1]:
                raise BadFile(
                    f"{projector}: tensor {second} has shape {shapes[1]}, expected {shapes[0]} as "
                    f"{first}; download or copy it again"
                )
        swapped = _swapped(self._added)
        self._stored = {
            _swap(name) if swapped and name.startswith("v.") else name: name
            for name in names
            if name not in self._frames.values()
        }

    @override
    def names(self) -> tuple[str, ...]:
        return (*(name for name in self._base.names() if name not in self._stored), *self._stored)

    @override
    def shape(self, name: str) -> tuple[int, ...]:
        """As in a folder: the weights over two frames are one convolution (O, C, 2, H, W)."""
        shape = self._of(name).shape(self._stored.get(name, name))
        return (*shape[:2], 2, *shape[2:]) if name in self._frames else shape

    @override
    def dtype(self, name: str) -> str:
        return self._of(name).dtype(self._stored.get(name, name))

    @override
    def blocks(self, name: str) -> Iterator[NDArray[np.float32]]:
        blocks = self._of(name).blocks(self._stored.get(name, name))
        if name not in self._frames:
            return blocks
        return map(_both_frames, blocks, self._added.blocks(self._frames[name]))

    @override
    def integer_storage(self, name: str) -> str | None:
        return self._of(name).integer_storage(self._stored.get(name, name))

    @override
    def integer_blocks(self, name: str) -> Iterator[IntegerBlock]:
        return self._of(name).integer_blocks(self._stored.get(name, name))

    @override
    def files(self) -> tuple[Path, ...]:
        return (*self._base.files(), *self._added.files())

    @override
    def require_unchanged(self) -> None:
        self._base.require_unchanged()
        self._added.require_unchanged()

    @override
    def metadata(self) -> Mapping[str, object]:
        """The text model's metadata, the keys of the projector, and the settings of a processor."""
        keys = {
            key: value for key, value in self._added.metadata().items() if key.startswith(PREFIX)
        }
        return {**self._base.metadata(), **keys, PROCESSOR: _processor(keys)}

    def _of(self, name: str) -> WeightSource:
        return self._added if name in self._stored else self._base


def _both_frames(first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[np.float32]:
    """Weights (O, C, H, W) over each of two frames as (O, C, 2, H, W)."""
    return np.stack([first, second], axis=2)


def _processor(keys: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that preprocessor_config.json has in a folder."""
    settings = {
        name: _rounded(keys[key])  # f32 in the file
        for name in ("image_mean", "image_std")
        if (key := f"clip.vision.{name}") in keys
    }
    settings |= {
        f"{name}_{unit}": keys[key]
        for name in ("min", "max")
        for unit, key in (
            ("patches", f"clip.vision.preproc_{name}_tiles"),
            ("pixels", f"clip.vision.image_{name}_pixels"),
        )
        if key in keys
    }
    if isinstance(sides := keys.get(_PINPOINTS), list):  # a width, a height, and so on
        pairs = (sides[i : i + 2] for i in range(0, len(sides), 2))
        settings["image_grid_pinpoints"] = [pair[::-1] for pair in pairs]
    edge = keys.get("clip.vision.preproc_image_size")
    return settings if edge is None else {**settings, "size": {"longest_edge": edge}}


def _rounded(values: Any) -> Any:
    """A list of numbers; anything else as it is, which its reader refuses."""
    if not isinstance(values, list):
        return values
    return [round(value, 6) if isinstance(value, float) else value for value in values]


def _swapped(source: WeightSource) -> bool:
    """Whether the first matrix of an MLP is called "down", as in older files.

    clip.cpp tells it by the width of its input.
    """
    width = source.metadata().get(_WIDTH)
    return any(source.shape(name)[-1] == width for name in source.names() if _DOWN.fullmatch(name))


def _swap(name: str) -> str:
    if _FIRST in name:
        return name.replace(_FIRST, _SECOND)
    return name.replace(_SECOND, _FIRST)
