"""GGUF files with NVFP4, where the scale of a matrix is a tensor of its own.

llama.cpp multiplies a product with `NAME.weight` by `NAME.scale`: one f32, or one for each expert.
`NAME.input_scale` is for activations of 4 bits, which Hearth does not have.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from hearthd.baker.weights.gguf import GgufSource
from hearthd.baker.weights.ollama_gguf import as_llama_cpp_writes
from hearthd.baker.weights.source import BadFile
from hearthd.baker.weights.source_in_front import SourceInFront

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.baker.weights.source import IntegerBlock, WeightSource

_MATRIX, _SCALE, _INPUT_SCALE = ".weight", ".scale", ".input_scale"


def open_gguf(path: Path) -> WeightSource:
    """The tensors of a GGUF file, or of all shards of a split one, multiplied by their scales.

    Raises BadFile for a corrupt header, for a shard that is missing or of another file, and for
    scales whose number does not fit the matrix.
    """
    source = as_llama_cpp_writes(GgufSource(path))
    matrices = [
        name.removesuffix(_MATRIX)
        for name in source.names()
        if name.endswith(_MATRIX) and source.dtype(name) == "NVFP4"
    ]
    return _ScaledMatrices(source, matrices) if matrices else source


class _ScaledMatrices(SourceInFront):
    """Matrices multiplied by their scales. The tensors of scales are hidden."""

    def __init__(self, base: WeightSource, matrices: list[str]) -> None:
        super().__init__(base)
        names = {*base.names()}
        self._hidden = {name + end for name in matrices for end in (_SCALE, _INPUT_SCALE)}
        self._scales = {
            name + _MATRIX: _scale(base, name) for name in matrices if name + _SCALE in names
        }

    @override
    def names(self) -> tuple[str, ...]:
        return tuple(name for name in self._base.names() if name not in self._hidden)

    @override
    def blocks(self, name: str) -> Iterator[NDArray[np.float32]]:
        scales, start = self._scales.get(name), 0
        for block in self._base.blocks(name):
            if scales is None:
                yield block
                continue
            rows = scales[start : start + len(block)]
            yield block * rows.reshape(-1, *[1] * (block.ndim - 1))
            start += len(block)

    @override
    def integer_blocks(self, name: str) -> Iterator[IntegerBlock]:
        scales, start = self._scales.get(name), 0
        for block in self._base.integer_blocks(name):
            if scales is None:
                yield block
                continue
            # A block has the rows of whole experts, one after the other.
            each = np.prod(self.shape(name)[1:-1], dtype=int)
            count = len(block.scale) // each
            rows = np.repeat(scales[start : start + count], each)
            yield replace(block, scale=block.scale * rows[:, np.newaxis])
            start += count


def _scale(base: WeightSource, matrix: str) -> NDArray[np.float32]:
    """The scale of each row of a matrix, f32 (N,), or of each expert, (X,); raises BadFile."""
    scale, shape = base.read(matrix + _SCALE).reshape(-1), base.shape(matrix + _MATRIX)
    if len(scale) not in (1, shape[0] if len(shape) > 2 else 1):
        raise BadFile(
            f"tensor {matrix + _SCALE} has {len(scale)} values for {matrix + _MATRIX} of shape "
            f"{shape}; download or copy the file again"
        )
    return np.broadcast_to(scale, shape[:1])
