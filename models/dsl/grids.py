"""Grids: the entries of four or eight columns that GGUF's types IQ1, IQ2 and IQ3 choose from.

The tables come from ggml-common.h; kernels/product/grids.h has them in C.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl.types import TypeRuleError

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The bytes of a row's signs in a group.
SIGN_BYTES = 4
# Where an entry has the levels of its four or eight columns.
_STARTS = {4: (0, 8, 4, 12), 8: (0, 8, 2, 10, 4, 12, 6, 14)}


@dataclass(frozen=True)
class Bits:
    """Bits of a row in a group: the first one, and how far the next one, or entry, is."""

    start: int
    stride: int


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Which entries a format has, and where a row has the bits that belong to its indices.

    name             of the grid in grids.h
    count            of its entries: a power of two
    columns          of an entry, 4 or 8
    extra_bytes      bytes of a row in a group beside the lowest eight bits of its indices; if they
                     are SIGN_BYTES, they are its signs; each eighth sign follows from seven, so
                     that its bit is free; 0 without extra bits
    upper            the bits of an index above the lowest eight, for each entry
    multiplier       the bits of a number n, where 2 n + 1 multiplies the scale of the group
    multiplier_bits  how many these are; 0: multipliers are in an array
    offset           a bit above each level of an entry; with a stride of 0, all entries share it
    """

    name: str
    count: int
    columns: int
    extra_bytes: int = 0
    upper: Bits | None = None
    multiplier: Bits | None = None
    multiplier_bits: int = 0
    offset: Bits | None = None

    @property
    def level_bits(self) -> int:
        """The bits of a level."""
        return 3 if self.columns == 4 else 2

    @property
    def starts(self) -> tuple[int, ...]:
        """Where an entry has the level of each column."""
        return _STARTS[self.columns]

    @functools.cached_property
    def words(self) -> NDArray[np.uint16]:
        """The entries as grids.h has them."""
        return _lists()[self.name]

    @property
    def entries(self) -> NDArray[np.uint8]:
        """The levels of each entry: u8 (count, columns)."""
        levels = self.words[:, np.newaxis] >> np.array(self.starts, np.uint16)
        return (levels & ((1 << self.level_bits) - 1)).astype(np.uint8)

    def indices(self, levels: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The entries with these levels: (N, K) -> (N, K / columns).

        Raises TypeRuleError for levels that no entry has.
        """
        columns = levels.reshape(len(levels), -1, self.columns).astype(np.uint16)
        words = np.bitwise_or.reduce(columns << np.array(self.starts, np.uint16), axis=2)
        found = self._numbers[words]
        if (found < 0).any():
            raise TypeRuleError(f"the grid {self.name} has no entry for some of the columns")
        return found

    def sample(self, rng: np.random.Generator, rows: int, columns: int) -> NDArray[np.uint8]:
        """Random integers (rows, columns), of levels with signs or offsets above them."""
        indices = rng.integers(0, self.count, size=(rows, columns // self.columns))
        levels = self.entries[indices].reshape(rows, columns)
        upper = rng.integers(0, 2, size=(rows, columns // 8, 8), dtype=np.uint8)
        if self.extra_bytes == SIGN_BYTES:
            upper[..., 7] = upper[..., :7].sum(axis=2) % 2
        if self.offset is not None:
            upper[:] = upper[..., :1]
            if not self.offset.stride:
                upper = np.repeat(upper[:, ::4], 4, axis=1)
        upper <<= np.uint8(self.level_bits)
        return np.asarray(levels | upper.reshape(rows, columns))

    @functools.cached_property
    def _numbers(self) -> NDArray[np.int64]:
        """The index of each entry, -1 where there is none."""
        numbers = np.full(1 << 16, -1)
        numbers[self.words] = np.arange(self.count)
        return numbers


IQ3_XXS = Grid(
    name="iq3_xxs",
    count=256,
    columns=4,
    extra_bytes=SIGN_BYTES,
    multiplier=Bits(28, 1),
    multiplier_bits=4,
)
IQ3_S = Grid(name="iq3_s", count=512, columns=4, extra_bytes=1, upper=Bits(0, 1))
IQ2_XXS = replace(IQ3_XXS, name="iq2_xxs", columns=8)
IQ2_XS = Grid(name="iq2_xs", count=512, columns=8, extra_bytes=SIGN_BYTES, upper=Bits(28, 1))
IQ2_S = Grid(name="iq2_s", count=1024, columns=8, extra_bytes=1, upper=Bits(0, 2))
IQ1_M = Grid(
    name="iq1_s", count=2048, columns=8, extra_bytes=2, upper=Bits(0, 4), offset=Bits(3, 4)
)
IQ1_S = replace(IQ1_M, offset=Bits(15, 0), multiplier=Bits(3, 4), multiplier_bits=3)


@functools.cache
def _lists() -> dict[str, NDArray[np.uint16]]:
    """The lists of grids.h by name."""
    header = files("hearthd.models.dsl") / "kernels" / "product" / "grids.h"
    lists = re.findall(r"#define (\w+)_GRID\(W\)((?:.*\\\n)*.*)", header.read_text("ascii"))
    items = {name.lower(): re.findall("0x[0-9a-f]+", text) for name, text in lists}
    return {
        name: np.array([int(item, 16) for item in four], np.uint64).view(np.uint16)
        for name, four in items.items()
    }


def sign_bit(quad: int) -> int:
    """The bit that has the signs of a quad: entry e of eight columns has bits e and e + 4."""
    return quad // 2 + quad % 2 * 4


def with_free_bits(signs: NDArray[np.uint32], free: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Signs of rows, with `free` bits in place of the sign of each eighth column.

    Byte c has the signs of columns c of all quads. Raises TypeRuleError if eight columns have an
    odd number of signs.
    """
    sums = signs
    for by in (16, 8, 4):
        sums = sums ^ sums >> np.uint32(by)
    if (sums & 0x0F).any():
        raise TypeRuleError("eight columns have an odd number of signs")
    return np.asarray(signs & np.uint32(0x0FFFFFFF) | free)
