"""The shapes of towers, as fields of the configuration of a model that has one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.models.config import MAX_LAYERS, ConfigError, ImageGrid
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor


@dataclass(frozen=True, kw_only=True)
class LayersConfig:
    """The shape of a tower's layers."""

    tower_layers: int
    tower_hidden: int
    tower_ffn: int
    tower_heads: int

    def require_layers(self, parts: int = 1) -> None:
        """Raise ConfigError unless heads share the tower's width, each in equal parts."""
        if self.tower_layers > MAX_LAYERS:
            raise ConfigError(f"{self.tower_layers} layers, expected at most {MAX_LAYERS}")
        if self.tower_hidden % (parts * self.tower_heads):
            raise ConfigError(
                f"{self.tower_heads} heads cannot share a tower's width of {self.tower_hidden}"
            )


@dataclass(frozen=True, kw_only=True)
class GridConfig(LayersConfig):
    """The shape of a tower for images of any size.

    patch_size      pixels of a side of a patch
    merged_patches  patches of a side of the square that gives one row of embeddings
    """

    patch_size: int
    merged_patches: int

    @property
    def grid(self) -> ImageGrid:
        """Images of any size."""
        return ImageGrid(self.patch_size, self.merged_patches)


@dataclass(frozen=True, kw_only=True)
class TableConfig(GridConfig):
    """The shape of a tower with learned positions.

    table_side  positions in a row and in a column
    """

    table_side: int


def square_side(count: int, name: str) -> int:
    """The side of a square of a number of positions; raises ConfigError, which names it."""
    side: int = round(count**0.5)
    if side**2 != count:
        raise ConfigError(f"{name}: got {count}, expected a square number")
    return side


def axis_of(places: Tensor, axis: int) -> Tensor:
    """The rows or the columns of places i32 (2, N): i32 (N,)."""
    return f.flatten(f.narrow(places, 0, axis, axis + 1))


def patch_count(grid: Tensor) -> Tensor:
    """The patches of rows and columns i32 (2,): i32 (1,)."""
    return f.narrow(grid, 0, 0, 1) * f.narrow(grid, 0, 1, 2)


def mixed_positions(table: Tensor, down: Tensor, across: Tensor) -> Tensor:
    """Embeddings (N, E) between the embeddings of a table (side^2, E), a row after the other.

    `down` and `across` f32 (N, side) are the weights of its rows and of its columns.
    """
    count, side = down.shape
    shape = (count, side, side)
    weights = ops.broadcast(down, shape=shape, axes=(0, 1)) * ops.broadcast(
        across, shape=shape, axes=(0, 2)
    )
    return f.matmul(f.flatten(weights, first=1), table)
