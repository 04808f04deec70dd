"""From a file of weights to a bundle's parameter archive, block by block."""

from __future__ import annotations

import collections
import itertools
import math
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from hearthd.baker.parameters.irpa import ArchiveWriter
from hearthd.baker.parameters.native import integer_storage
from hearthd.baker.parameters.quantization import NotFiniteError, encoded, encoded_integers
from hearthd.baker.parameters.sketch import mean_row
from hearthd.baker.weights.source import BadFile, IntegerBlock, path_of
from hearthd.bundle.parsing.head_rows import half_after_half
from hearthd.models.dsl.storage import STORAGES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.baker.weights.source import WeightSource
    from hearthd.models.config import ModelConfig
    from hearthd.models.decoder.architecture import ArchitectureFiles
    from hearthd.models.dsl.rewrites.stored_weights import Weight
    from hearthd.models.dsl.storage import Storage
    from hearthd.models.program import ArraysProgram, Program, StoredTensor

    # Some rows of a weight, or all, as the arrays of its storage.
    StoredRows: TypeAlias = tuple[NDArray[Any], ...]

S = TypeVar("S", bound=np.generic)

_NORM = "norm.weight"  # the end of the names of such parameters
# More threads would wait for memory and the disk, and each takes a few blocks of memory.
_THREADS = min(4, os.cpu_count() or 1)


@dataclass(frozen=True)
class Located:
    """A weight, and for each of its sources the tensors of files that its rows come from.

    They follow each other.
    """

    weight: Weight
    tensors: tuple[tuple[StoredTensor, ...], ...]


def locate(
    source: WeightSource,
    architecture: ArchitectureFiles[Any],
    config: ModelConfig,
    program: Program | ArraysProgram,
) -> tuple[Located, ...]:
    """Find the tensors of each weight.

    Raises a WeightsError when a tensor is missing, of another shape, or not used by the model.
    """
    tensors = tensors_of(
        source,
        architecture,
        config,
        {name: shape for weight in program.weights for name, shape in weight.sources.items()},
    )
    return tuple(
        Located(weight, tuple(tensors[name] for name in weight.sources))
        for weight in program.weights
    )


def tensors_of(
    source: WeightSource,
    architecture: ArchitectureFiles[Any],
    config: ModelConfig,
    shapes: Mapping[str, tuple[int, ...]],
) -> dict[str, tuple[StoredTensor, ...]]:
    """The tensors that the rows of each parameter come from, by the shapes of all parameters.

    Raises a WeightsError when a tensor is missing, of another shape, or not used by the model.
    """
    names, gguf = source.names(), source.format == "gguf"

    def find(name: str, shape: tuple[int, ...]) -> tuple[StoredTensor, ...]:
        tensors = architecture.tensors.parts(config, name, names, gguf=gguf)
        columns = shape[-1]
        stored = [_in_columns(source, tensor, columns) for tensor in tensors]
        rows = sum(_rows(actual, columns) for actual in stored)
        if name.partition(".")[0] in architecture.tensors.towers:
            _require_channels_first(tensors[0].name, stored[0])
        if rows != _rows(shape, columns) or not all(_rows(actual, columns) for actual in stored):
            many = f"{len(tensors)} tensors as " if len(tensors) > 1 else "tensor "
            raise BadFile(
                f"{path_of(source)}: {many}{tensors[0].name} has shape {stored[0]}, the "
                f"configuration says {shape}"
            )
        return tensors

    found = {name: find(name, shape) for name, shape in shapes.items()}
    unread = (
        architecture.tensors.parts(config, name, names, gguf=gguf)
        for name in architecture.tower_parameters(config)
    )
    used = {tensor.name for parts in (*found.values(), *unread) for tensor in parts}
    unused = [
        name
        for name in names
        if name not in used
        and not architecture.tensors.is_other_part(name, names)
        and not _adds_nothing(source, name)
    ]
    if unused:
        raise BadFile(
            f"{path_of(source)}: the weights hold tensors that {architecture.name} does not use: "
            f"{unused[:5]}"
        )
    return found


def _require_channels_first(name: str, shape: tuple[int, ...]) -> None:
    """Raise BadFile for the weights of a square convolution (O, S, S, C), as MLX has them."""
    if len(shape) == 4 and shape[1] == shape[2] != shape[3]:
        raise BadFile(
            f"tensor {name} has shape {shape}, with channels last as in folders of MLX; bake the "
            "folder that it was converted from"
        )


def _adds_nothing(source: WeightSource, name: str) -> bool:
    """Whether a tensor is a bias of zeros: old tools for GPTQ add one to every matrix."""
    return name.endswith(".bias") and not source.read(name).any()


def _shape(source: WeightSource, tensor: StoredTensor) -> tuple[int, ...]:
    """The shape of a parameter's share of a tensor."""
    shape = _stored_shape(source, tensor)
    if not shape:
        return shape
    *matrices, rows, columns = (shape[0], 1) if len(shape) == 1 else shape
    if tensor.grouped is not None:
        groups, start, stop = tensor.grouped
        shape = (groups * (stop - start), columns)
        return (groups * columns, stop - start) if tensor.transposed else shape
    share = len(range(rows)[tensor.rows(rows)])
    return (share,) if len(shape) == 1 else (*matrices, share, columns)


def _in_columns(source: WeightSource, tensor: StoredTensor, columns: int) -> tuple[int, ...]:
    """As `_shape`, in rows of `columns` values where the source does not know them."""
    shape = _shape(source, tensor)
    return (math.prod(shape) // columns, columns) if source.is_flat(tensor.name) else shape


def _stored_shape(source: WeightSource, tensor: StoredTensor) -> tuple[int, ...]:
    """The shape of a tensor as matrices, (..., rows, columns) of a parameter."""
    shape = source.shape(tensor.name)
    if tensor.vectors:
        return (*shape, 1)
    if len(shape) < (2 if tensor.transposed else 1):  # of a damaged file: nothing fits
        return shape
    if tensor.grouped is not None:
        return (math.prod(shape[:-1]), shape[-1])
    return (*shape[:-2], shape[-1], shape[-2]) if tensor.transposed else shape


_ALL = (0, 1)  # the share of a tensor that a parameter has whole


def _rows(shape: tuple[int, ...], columns: int) -> int:
    """The rows of a tensor that are `columns` long; 0 if its last axes are not so long.

    A tensor of experts can have an axis for the experts. The weights of a convolution have an axis
    for each of the axes that a row of them is multiplied with.
    """
    for axis in range(len(shape), -1, -1):
        if math.prod(shape[axis:]) == columns:
            return math.prod(shape[:axis])
    return 0


def write_parameters(
    source: WeightSource,
    located: Sequence[Located],
    path: Path,
    advance: Callable[[int], None],
    rounded: Mapping[str, StoredRows] = MappingProxyType({}),
    *,
    reached: Callable[[int], None] = lambda _: None,
) -> None:
    """Write the arrays of all weights; `advance` is told the bytes of each block written.

    `reached` is told the bytes at the start of the file that are final, after each block. Neither
    is called by two threads at once.

    `rounded` has the arrays of parameters that are already rounded. Each of a few threads writes
    one weight, and has one block of one tensor in memory; a tensor whose rows change their order
    is one block. Raises a WeightsError or NotFiniteError, after which the other threads end with
    their block, as after a KeyboardInterrupt.
    """
    sizes = {
        name: array.type.nbytes
        for entry in located
        for name, array in entry.weight.parameters.items()
    }
    with ArchiveWriter(path, sizes) as archive, ThreadPoolExecutor(_THREADS, "weights") as pool:
        writing, failed = threading.Lock(), threading.Event()

        @contextmanager
        def ending_others() -> Iterator[None]:
            try:
                yield
            except BaseException:
                failed.set()
                raise

        def write(entry: Located) -> None:
            with ending_others():
                blocks = _stored_blocks(source, entry, rounded)
                while not failed.is_set() and (arrays := next(blocks, None)) is not None:
                    with writing:
                        for name, data in zip(entry.weight.parameters, arrays, strict=True):
                            archive.write(name, data)
                            advance(data.nbytes)
                            reached(archive.complete)

        with ending_others():  # Ctrl-C is raised in this thread
            collections.deque(pool.map(write, located), maxlen=0)


def _stored_blocks(
    source: WeightSource, entry: Located, rounded: Mapping[str, StoredRows]
) -> Iterator[StoredRows]:
    """The arrays of a weight's storage, for each block."""
    sources = entry.weight.sources.items()
    for (name, shape), tensors in zip(sources, entry.tensors, strict=True):
        if name in rounded:
            yield rounded[name]
            continue
        if name.endswith(_NORM):
            _require_values(source, tensors, shape[-1])
        storage, columns = entry.weight.storage, shape[-1]
        center = None
        if storage.has_sketch:
            blocks = (parameter_blocks(source, tensor, columns) for tensor in tensors)
            center = mean_row(itertools.chain.from_iterable(blocks))
        for tensor in tensors:
            yield from _encoded_blocks(source, tensor, storage, columns, center)


def _require_values(source: WeightSource, tensors: Sequence[StoredTensor], columns: int) -> None:
    """Raise BadFile for a norm of zeros, with which a layer would compute nothing.

    Programs that allocate a file before they download it leave zeros where they have not written.
    A matrix of zeros can be meant: a trained model gets new layers with such matrices.
    """
    blocks = (block for each in tensors for block in parameter_blocks(source, each, columns))
    if not any(block.any() for block in blocks):
        raise BadFile(
            f"{path_of(source)}: tensor {tensors[0].name} has only zeros, as in a file whose "
            "download is not finished; download it again"
        )


def keeps_integers(source: WeightSource, tensor: StoredTensor, storage: Storage) -> bool:
    """Whether a storage holds the integers that a file has of a tensor."""
    if tensor.channels or (tensor.transposed and _is_reordered(source, tensor)):
        return False  # scales are of rows, or of columns side by side
    native = STORAGES.get(integer_storage(source, tensor.name) or "")
    if native is None:
        return False
    return storage.format in (native.format, (native.table or native).format)


def _encoded_blocks(
    source: WeightSource,
    tensor: StoredTensor,
    storage: Storage,
    columns: int,
    center: NDArray[np.float32] | None,
) -> Iterator[StoredRows]:
    """The arrays of a storage for each block; raises NotFiniteError with the tensor's name.

    The rows of the parameter are `columns` long, and `center` is their mean if a sketch needs it.
    """
    try:
        if keeps_integers(source, tensor, storage):
            for integers in parameter_integers(source, tensor):
                yield encoded_integers(storage, integers, center)
            return
        for block in parameter_blocks(source, tensor, columns):
            yield encoded(storage, block, center)
    except NotFiniteError as error:
        raise NotFiniteError(f"tensor {tensor.name}: {error}") from None


def parameter_blocks(
    source: WeightSource, tensor: StoredTensor, columns: int
) -> Iterator[NDArray[np.float32]]:
    """The blocks of a parameter's values, whose rows are `columns` long; raises a WeightsError."""
    if _is_reordered(source, tensor):
        values = source.read(tensor.name)
        if tensor.grouped is not None:
            values = values.reshape(_stored_shape(source, tensor))
        else:
            values = tensor.matrices(values)
        blocks = iter((_ordered(values, tensor),))
    else:
        blocks = map(tensor.matrices, source.blocks(tensor.name))
    for rows in blocks:
        if rows.ndim > 2:
            rows = rows[..., tensor.rows(rows.shape[-2]), :].reshape(-1, columns)
        if tensor.logarithm:
            rows = tensor.logarithm * np.exp(rows)
        if tensor.softplus:
            rows = np.logaddexp(np.float32(0), rows)
        if tensor.channels:
            pixels = rows.reshape(-1, columns // tensor.channels, tensor.channels)
            rows = pixels.swapaxes(1, 2).reshape(rows.shape)
        yield rows + np.float32(tensor.offset) if tensor.offset else rows


def parameter_integers(source: WeightSource, tensor: StoredTensor) -> Iterator[IntegerBlock]:
    """The blocks of a parameter's stored integers; raises a WeightsError."""
    blocks = source.integer_blocks(tensor.name)
    if not _is_reordered(source, tensor):
        yield from (_of_matrices(source, tensor, block) for block in blocks)
        return
    parts = list(blocks)

    def ordered(name: str) -> Any:
        rows = [values for part in parts if (values := getattr(part, name)) is not None]
        return _ordered(np.concatenate(rows), tensor) if rows else None

    yield IntegerBlock(**{field.name: ordered(field.name) for field in fields(IntegerBlock)})


def _of_matrices(source: WeightSource, tensor: StoredTensor, block: IntegerBlock) -> IntegerBlock:
    """A parameter's share of the rows of each matrix of a block."""
    shape = source.shape(tensor.name)
    if len(shape) < 3 or tensor.share == _ALL:
        return block

    def share(values: NDArray[S] | None) -> Any:
        if values is None:
            return None
        matrices = values.reshape(-1, shape[-2], *values.shape[1:])
        return matrices[:, tensor.rows(shape[-2])].reshape(-1, *values.shape[1:])

    return IntegerBlock(**{part.name: share(getattr(block, part.name)) for part in fields(block)})


def _is_reordered(source: WeightSource, tensor: StoredTensor) -> bool:
    """Whether a parameter has the rows of a tensor in another order, or not all of them.

    The shares of several matrices are taken block by block: such a tensor is large.
    """
    has_matrices = len(_stored_shape(source, tensor)) > 2
    in_parts = tensor.share != _ALL or tensor.grouped is not None or tensor.transposed
    return bool(tensor.interleaved) or (in_parts and not has_matrices)


def _ordered(rows: NDArray[S], tensor: StoredTensor) -> NDArray[S]:
    """The rows of a parameter, from the rows of its tensor."""
    rows = _share(rows, tensor)
    return half_after_half(rows, tensor.interleaved) if tensor.interleaved else rows


def _share(rows: NDArray[S], tensor: StoredTensor) -> NDArray[S]:
    """The rows of a parameter among its tensor's, in their order there."""
    if tensor.grouped is None:
        return rows[tensor.rows(len(rows))]
    groups, start, stop = tensor.grouped
    each = rows.reshape(groups, len(rows) // groups, *rows.shape[1:])[:, start:stop]
    each = each.swapaxes(1, 2) if tensor.transposed else each
    return each.reshape(-1, *each.shape[2:])
