"""From a file of weights to a bundle's parameter archive, block by block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from baker.parameters.irpa import ArchiveWriter
from baker.parameters.quantization import NotFiniteError, encoded
from baker.weights.source import BadFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from baker.weights.source import WeightSource
    from models.architecture import Architecture
    from models.config import ModelConfig
    from models.dsl.storage import Storage, Weight
    from models.program import ArraysProgram, Program, StoredTensor


@dataclass(frozen=True)
class Located:
    """A weight, and the tensors of files that its rows come from, one after the other."""

    weight: Weight
    tensors: tuple[StoredTensor, ...]


def locate(
    source: WeightSource,
    architecture: Architecture[Any],
    config: ModelConfig,
    program: Program | ArraysProgram,
) -> tuple[Located, ...]:
    """Find the tensors of each weight.

    Raises a WeightsError when a tensor is missing, of another shape, or not used by the model.
    """
    names, gguf = source.names(), source.format == "gguf"

    def find(name: str, shape: tuple[int, ...]) -> StoredTensor:
        tensor = architecture.tensors.find(config, name, names, gguf=gguf)
        actual = source.shape(tensor.name)
        if actual != shape:
            raise BadFile(
                f"tensor {tensor.name} has shape {actual}, the configuration says {shape}"
            )
        return tensor

    located = tuple(
        Located(weight, tuple(find(name, shape) for name, shape in weight.sources.items()))
        for weight in program.weights
    )
    used = {tensor.name for one in located for tensor in one.tensors}
    unused = [
        name for name in names if name not in used and not architecture.tensors.is_other_part(name)
    ]
    if unused:
        raise BadFile(
            f"the weights hold tensors that {architecture.name} does not use: {unused[:5]}"
        )
    return located


def write_parameters(
    source: WeightSource, located: Sequence[Located], path: Path, advance: Callable[[int], None]
) -> None:
    """Write the arrays of all weights; `advance` is told the bytes of each block written.

    Only one block of one tensor is in memory at a time; a tensor whose rows change their order is
    one block. Raises a WeightsError or NotFiniteError.
    """
    sizes = {
        name: array.type.nbytes for one in located for name, array in one.weight.parameters.items()
    }
    with ArchiveWriter(path, sizes) as archive:
        for one in located:
            for tensor in one.tensors:
                for block in _blocks(source, tensor):
                    shifted = block + np.float32(tensor.offset) if tensor.offset else block
                    arrays = _encoded(one.weight.storage, shifted, tensor.name)
                    for name, data in zip(one.weight.parameters, arrays, strict=True):
                        archive.write(name, data)
                        advance(data.nbytes)


def _encoded(storage: Storage, block: NDArray[np.float32], name: str) -> tuple[NDArray[Any], ...]:
    """As `encoded`; raises NotFiniteError with the name of the tensor."""
    try:
        return encoded(storage, block)
    except NotFiniteError as error:
        raise NotFiniteError(f"tensor {name}: {error}") from None


def _blocks(source: WeightSource, tensor: StoredTensor) -> Iterator[NDArray[np.float32]]:
    if tensor.interleaved:
        yield half_after_half(source.read(tensor.name), tensor.interleaved)
    else:
        yield from source.blocks(tensor.name)


def half_after_half(rows: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """Heads of `width` rows, from 0, D/2, 1, D/2 + 1, ... to 0, 1, ... D - 1: f32 (H * D, ...)."""
    heads = rows.reshape(-1, width // 2, 2, *rows.shape[1:])
    return heads.swapaxes(1, 2).reshape(rows.shape)
