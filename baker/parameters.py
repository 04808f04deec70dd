"""From a file of weights to a bundle's parameter archive, block by block."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from baker.irpa import ArchiveWriter
from baker.quantize import int8_rows, to_bf16
from baker.weights.source import BadFile
from models import gemma3
from models.dsl.types import DType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from baker.weights.source import WeightSource
    from models.dsl.types import TensorType
    from models.program import Program, StoredTensor

_WEIGHT, _SCALE = ".weight", ".scale"


def write_parameters(
    source: WeightSource, program: Program, path: Path, advance: Callable[[int], None]
) -> None:
    """Write every parameter of a program; `advance` is told the bytes of each block written.

    Only one block of one tensor is in memory at a time. Raises a WeightsError, before anything is
    written, when a tensor is missing, of another shape, or one that the model has no use for.
    """
    stored = _locate(source, program)
    sizes = {name: kind.nbytes for name, kind in program.parameters.items()}
    with ArchiveWriter(path, sizes) as archive:
        for name, tensor in stored.items():
            kind = program.parameters[name]
            for block in source.blocks(tensor.name):
                for target, data in _stored_form(name, kind, block, tensor.offset).items():
                    archive.write(target, data)
                    advance(data.nbytes)


def _stored_form(
    name: str, kind: TensorType, block: np.ndarray, offset: float
) -> Mapping[str, np.ndarray]:
    """A block as its parameter keeps it; an i8 matrix also gives the block's scales."""
    if offset:
        block = block + np.float32(offset)
    if kind.dtype is DType.I8:
        quantised, scale = int8_rows(block)
        return {name: quantised, name.removesuffix(_WEIGHT) + _SCALE: scale}
    return {name: to_bf16(block) if kind.dtype is DType.BF16 else block}


def _locate(source: WeightSource, program: Program) -> dict[str, StoredTensor]:
    """Where each parameter's values are; scales are made while quantising and are nowhere."""
    names = source.names()
    stored = {
        name: gemma3.stored_tensor(name, names, gguf=source.format == "gguf")
        for name in program.parameters
        if not name.endswith(_SCALE)
    }
    for name, tensor in stored.items():
        wanted, found = program.parameters[name].shape, source.shape(tensor.name)
        if wanted != found:
            raise BadFile(
                f"tensor {tensor.name} has shape {found}, the configuration says {wanted}"
            )
    used = {tensor.name for tensor in stored.values()}
    unused = [name for name in names if name not in used and not gemma3.is_other_part(name)]
    if unused:
        raise BadFile(f"the weights hold tensors that Gemma 3 has no use for: {unused[:5]}")
    return stored
