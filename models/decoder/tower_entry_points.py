"""The entry points for images and sound of a model with towers."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from hearthd.bundle import EntryPoint
from hearthd.models.config import ImageGrid, ImageShape
from hearthd.models.dsl import ops
from hearthd.models.dsl.graph_slices import sliced
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.models.config import ModelConfig
    from hearthd.models.decoder.entry_points import Decoder
    from hearthd.models.dsl.graph import Graph, Tensor
    from hearthd.models.program import ProgramOptions

_CHANNELS = 3
# Operations of a slice of a tower: 30 ms on two cores that do 600 GFLOP/s. A step of the engine
# computes slices until its time for images has passed (server/engine/step.py).
SLICE_WORK = 2**34


@runtime_checkable
class ImageReader(Protocol):
    """A model with a tower for square images."""

    def read_image(self, pixels: Tensor) -> Tensor:
        """Normalized pixels f32 (3, S, S) -> inputs of the first layer (rows, E)."""


@runtime_checkable
class PatchReader(Protocol):
    """A model with a tower for images of any size, as patches of S x S pixels."""

    def read_patches(self, patches: Tensor, places: Tensor, grid: Tensor) -> Tensor:
        """Normalized patches f32 (N, 3 * S * S) -> inputs of the first layer (N / merged^2, E).

        The patches of each square of `merged` x `merged` follow each other.

        places  the row and the column of each patch, i32 (2, N)
        grid    rows and columns of patches, i32 (2,): the patches after these are padding
        """


@runtime_checkable
class SoundReader(Protocol):
    """A model with a tower for sound."""

    def read_sound(self, frames: Tensor, count: Tensor) -> Tensor:
        """Frames f32 (T, width) -> inputs of the first layer, each row of one or several frames.

        count  frames of the sound, i32 (1,): those after them are padding
        """


def tower_points(config: ModelConfig, options: ProgramOptions) -> tuple[EntryPoint, ...]:
    """The entry points of the towers of a model; none without `reads_rows`.

    There is one for square images, or one for each number of rows of images of any size or sound.
    """
    if not options.reads_rows:
        return ()
    if isinstance(config.image, ImageShape):
        images: tuple[EntryPoint, ...] = (_point("image", "image", config.image.rows),)
    else:
        image_rows = () if config.image is None else options.image_rows
        images = tuple(_point("image", f"image_{rows}", rows) for rows in image_rows)
    sound_rows = () if config.sound is None else options.sound_rows
    return (*images, *(_point("sound", f"sound_{rows}", rows) for rows in sound_rows))


def block_sizes(config: ModelConfig, options: ProgramOptions) -> tuple[int, ...]:
    """The sizes of the entry points for rows of images that see each other, rising."""
    if not options.reads_rows or not config.has_blocks:
        return ()
    return (config.image.rows,) if isinstance(config.image, ImageShape) else options.image_rows


def _point(kind: Literal["image", "sound"], name: str, rows: int) -> EntryPoint:
    return EntryPoint(name=name, kind=kind, batch=1, tokens=rows, keys=rows)


def trace_tower(model: Decoder, point: EntryPoint) -> Graph:
    """The graph of an entry point for images or sound."""
    image, sound, parameters = model.config.image, model.config.sound, model.parameters()
    if point.kind == "sound":
        assert sound is not None, "a model that reads no sound"
        assert isinstance(model, SoundReader), "a model without a tower"
        length = point.tokens * sound.frames + sound.margin
        frames = TensorType((length, sound.width), DType.F32)
        inputs = {"frames": frames, "count": TensorType((1,), DType.I32)}
        read = model.read_sound
        return trace(point.name, lambda *x: (read(*x),), inputs, parameters=parameters)
    assert image is not None, "images of no size"
    if isinstance(image, ImageGrid):
        assert isinstance(model, PatchReader), "a model without a tower"
        count = image.patches_of(point.tokens)
        patches = TensorType((count, _CHANNELS * image.patch**2), DType.F32)
        places, grid = TensorType((2, count), DType.I32), TensorType((2,), DType.I32)
        inputs = {"patches": patches, "places": places, "grid": grid}
        read_patches = model.read_patches
        return trace(point.name, lambda *x: (read_patches(*x),), inputs, parameters=parameters)
    assert isinstance(model, ImageReader), "a model without a tower"
    inputs = {"pixels": TensorType((_CHANNELS, image.side, image.side), DType.F32)}
    read_image = model.read_image
    return trace(point.name, lambda x: (read_image(x),), inputs, parameters=parameters)


def with_rows(model: Decoder, tokens: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens with 0 in place of negative ones, and the input of the layers, (N, W).

    Embeddings of tokens have zeros in the parts of rows (N, W) that follow the first.
    """
    zero = ops.full_like(tokens, 0)
    has_row = ops.compare(tokens, zero, direction="LT")
    tokens = ops.maximum(tokens, zero)
    embedded = model.embed(tokens)
    if more := rows.shape[1] - embedded.shape[1]:
        embedded = ops.pad(embedded, padding=((0, 0, 0), (0, more, 0)), value=0.0)
    has_row = ops.broadcast(has_row, shape=rows.shape, axes=(0,))
    return tokens, ops.select(has_row, rows, embedded)


def functions_of(point: EntryPoint, graph: Graph) -> tuple[Graph, ...]:
    """The functions of an entry point that are compiled."""
    return sliced(graph, SLICE_WORK) if _is_tower(point) else (graph,)


def with_slices(point: EntryPoint, functions: Sequence[Graph]) -> EntryPoint:
    """An entry point that is compiled as these functions."""
    if not _is_tower(point):
        return point
    kept = max(sum(x.type.nbytes for x in graph.inputs) for graph in functions)
    return dataclasses.replace(point, slices=len(functions), kept=kept)


def _is_tower(point: EntryPoint) -> bool:
    return point.kind in ("image", "sound")
