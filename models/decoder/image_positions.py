"""Rotary positions of several axes, which the rows of an image have (M-RoPE)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from hearthd.models.config import ConfigError
from hearthd.models.decoder.config.decoder_config import DecoderConfig
from hearthd.models.decoder.layers import DecoderModel
from hearthd.models.dsl import ops
from hearthd.models.towers.tower_config import GridConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hearthd.models.config import ImageGrid
    from hearthd.models.decoder.layers import RopeTable
    from hearthd.models.dsl.graph import Tensor

AXES = 3  # time, row and column


@dataclass(frozen=True, kw_only=True)
class AxesConfig(DecoderConfig, GridConfig):
    """The shape of a model whose rows of images have rotary positions of several axes.

    rope_sections  pairs of columns of a head that turn by each axis: by time, row and column
    """

    rope_sections: tuple[int, ...]

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_layers(parts=4)
        pairs = self.rotary_columns // 2
        if len(self.rope_sections) != AXES or sum(self.rope_sections) != pairs:
            raise ConfigError(
                f"mrope_section: got {self.rope_sections}, expected {AXES} numbers whose sum is "
                f"{pairs}"
            )

    @property
    def rotary_columns(self) -> int:
        """The columns of a head that turn."""
        return self.head_dim

    @property
    @override
    def image(self) -> ImageGrid:
        """Images of any size."""
        return self.grid

    @property
    @override
    def rotary_axes(self) -> int:
        return AXES


class AxesModel(DecoderModel):
    """A model that turns a section of consecutive columns by each axis."""

    config: AxesConfig

    def axis_of_pairs(self) -> NDArray[np.int32]:
        """The axis of each pair of columns that turns, i32 (pairs,)."""
        return np.repeat(np.arange(AXES, dtype=np.int32), self.config.rope_sections)

    @override
    def rope_tables(self, positions: Tensor) -> list[RopeTable | None]:
        """For each layer, the rotary table of positions i32 (N,) or (axes, N)."""
        if positions.type.rank == 2:
            by_token = ops.transpose(positions, order=(1, 0))
            axes = ops.constant(value=self.axis_of_pairs())
            positions = ops.gather(by_token, axes, axis=1)
        return super().rope_tables(positions)


class InterleavedAxesModel(AxesModel):
    """A model whose columns turn by each axis in turn, and the rest of them by time."""

    @override
    def axis_of_pairs(self) -> NDArray[np.int32]:
        _, rows, columns = self.config.rope_sections
        axes = np.zeros(self.config.rotary_columns // 2, np.int32)
        axes[1 : 3 * rows : 3], axes[2 : 3 * columns : 3] = 1, 2
        return axes
