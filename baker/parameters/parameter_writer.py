"""From a file of weights to a bundle's parameter archive, block by block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from baker.parameters.irpa import ArchiveWriter
from baker.parameters.quantization import int8_groups, to_bf16
from baker.weights.source import BadFile
from models.dsl.grouped import QUADS, matrix_shape, split
from models.dsl.types import DType
from models.program import parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from baker.weights.source import WeightSource
    from models.architecture import Architecture
    from models.config import ModelConfig
    from models.dsl.types import TensorType
    from models.program import Program, StoredTensor

_WEIGHT, LOWER, _SCALE = ".weight", ".lower", ".scale"


def locate(
    source: WeightSource, architecture: Architecture[Any], config: ModelConfig, program: Program
) -> dict[str, tuple[StoredTensor, ...]]:
    """Where each parameter's parts are; what is made while quantising is nowhere.

    Raises a WeightsError when a tensor is missing, of another shape, or one that the model has no
    use for.
    """
    names, gguf = source.names(), source.format == "gguf"

    def find(name: str, wanted: tuple[int, ...]) -> StoredTensor:
        tensor = architecture.stored_tensor(config, name, names, gguf=gguf)
        found = source.shape(tensor.name)
        if wanted != found:
            raise BadFile(
                f"tensor {tensor.name} has shape {found}, the configuration says {wanted}"
            )
        return tensor

    stored = {}
    for name, kind in program.parameters.items():
        if not name.endswith((_SCALE, LOWER)):
            rows, *others = _matrix_shape(kind)
            own = parts(config, name, rows)
            stored[name] = tuple(find(part, (len(own[part]), *others)) for part in own)
    used = {tensor.name for tensors in stored.values() for tensor in tensors}
    unused = [name for name in names if name not in used and not architecture.is_other_part(name)]
    if unused:
        raise BadFile(
            f"the weights hold tensors that {architecture.name} has no use for: {unused[:5]}"
        )
    return stored


def write_parameters(
    source: WeightSource,
    stored: Mapping[str, tuple[StoredTensor, ...]],
    parameters: Mapping[str, TensorType],
    path: Path,
    advance: Callable[[int], None],
) -> None:
    """Write every parameter of a program; `advance` is told the bytes of each block written.

    Only one block of one tensor is in memory at a time; a tensor whose rows change their order is
    one block. Raises a WeightsError.
    """
    sizes = {name: kind.nbytes for name, kind in parameters.items()}
    with ArchiveWriter(path, sizes) as archive:
        for name, tensors in stored.items():
            for tensor in tensors:
                for block in _blocks(source, tensor):
                    made = _stored_form(name, parameters[name], block, tensor.offset)
                    for target, data in made.items():
                        archive.write(target, data)
                        advance(data.nbytes)


def _matrix_shape(kind: TensorType) -> tuple[int, ...]:
    """The shape that a parameter has in a file."""
    return matrix_shape(kind.shape, halved=_halved(kind)) if _in_groups(kind) else kind.shape


def _in_groups(kind: TensorType) -> bool:
    return kind.dtype is DType.I8


def _halved(kind: TensorType) -> bool:
    """Whether a weight in groups is the upper half, and has a lower one beside it."""
    return kind.shape[2] < QUADS


def _blocks(source: WeightSource, tensor: StoredTensor) -> Iterator[NDArray[np.float32]]:
    if tensor.interleaved:
        yield half_after_half(source.read(tensor.name), tensor.interleaved)
    else:
        yield from source.blocks(tensor.name)


def half_after_half(rows: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """Heads of `width` rows, from 0, D/2, 1, D/2 + 1, ... to 0, 1, ... D - 1: f32 (H * D, K)."""
    heads = rows.reshape(-1, width // 2, 2, rows.shape[1])
    return heads.swapaxes(1, 2).reshape(rows.shape)


def _stored_form(
    name: str, kind: TensorType, block: NDArray[np.float32], offset: float
) -> Mapping[str, NDArray[Any]]:
    """A block as its parameter keeps it; a matrix in groups also gives the block's scales.

    One in halves gives the lower half too.
    """
    if offset:
        block = block + np.float32(offset)
    if _in_groups(kind):
        stem = name.removesuffix(_WEIGHT)
        quantised, scale = int8_groups(block)
        if _halved(kind):
            upper, lower = split(quantised)
            return {name: upper, stem + LOWER: lower, stem + _SCALE: scale}
        return {name: quantised, stem + _SCALE: scale}
    return {name: to_bf16(block) if kind.dtype is DType.BF16 else block}
