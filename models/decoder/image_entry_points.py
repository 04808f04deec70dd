"""The entry points for images of a model with a tower."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from hearthd.bundle import EntryPoint
from hearthd.models.config import ImageGrid
from hearthd.models.dsl.graph_slices import sliced
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.models.config import ImageShape
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


def image_points(image: ImageShape | ImageGrid, options: ProgramOptions) -> tuple[EntryPoint, ...]:
    """The entry point for square images, or those for images of at most so many rows."""
    if isinstance(image, ImageGrid):
        return tuple(_point(f"image_{rows}", rows) for rows in options.image_rows)
    return (_point("image", image.rows),)


def _point(name: str, rows: int) -> EntryPoint:
    return EntryPoint(name=name, kind="image", batch=1, tokens=rows, keys=rows)


def trace_tower(model: Decoder, point: EntryPoint) -> Graph:
    """The graph of an entry point for images."""
    image, parameters = model.config.image, model.parameters()
    assert image is not None, "images of no size"
    if isinstance(image, ImageGrid):
        assert isinstance(model, PatchReader), "a model without a tower"
        count = point.tokens * image.merged**2
        patches = TensorType((count, _CHANNELS * image.patch**2), DType.F32)
        places, grid = TensorType((2, count), DType.I32), TensorType((2,), DType.I32)
        inputs = {"patches": patches, "places": places, "grid": grid}
        read = model.read_patches
        return trace(point.name, lambda *x: (read(*x),), inputs, parameters=parameters)
    assert isinstance(model, ImageReader), "a model without a tower"
    inputs = {"pixels": TensorType((_CHANNELS, image.side, image.side), DType.F32)}
    read_image = model.read_image
    return trace(point.name, lambda x: (read_image(x),), inputs, parameters=parameters)


def functions_of(point: EntryPoint, graph: Graph) -> tuple[Graph, ...]:
    """The functions of an entry point that are compiled."""
    return sliced(graph, SLICE_WORK) if point.kind == "image" else (graph,)


def with_slices(point: EntryPoint, functions: Sequence[Graph]) -> EntryPoint:
    """An entry point that is compiled as these functions."""
    between = [sum(x.type.nbytes for x in graph.inputs) for graph in functions[1:]]
    return dataclasses.replace(point, slices=len(functions), kept=max(between, default=0))
