"""The caches of a slot: the rows and states of tokens that a language model has read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from hearthd.bundle.provenance import OMITTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

__all__ = ["CACHE_BITS", "PADDING", "CacheDType", "CacheSpec", "padding_of", "unpacked_rows"]

CacheDType: TypeAlias = Literal["i4", "i6", "i8", "f16", "f32"]
StoredDType: TypeAlias = Literal["i8", "f16", "f32"]

# The token of a position that is padding, of an entry point whose caches have states.
PADDING = -2
CACHE_BITS: Mapping[CacheDType, int] = {"i4": 4, "i6": 6, "i8": 8, "f16": 16, "f32": 32}
_STORED: Mapping[CacheDType, StoredDType] = {
    "i4": "i8",
    "i6": "i8",
    "i8": "i8",
    "f16": "f16",
    "f32": "f32",
}


@dataclass(frozen=True, kw_only=True)
class CacheSpec:
    """One KV cache buffer of one slot: `rows` positions of `width` values of `dtype`.

    Buffers of i8 have scales, which are buffers of f32. Buffers of i4 and i6 have
    scales of f16; eight of their values take four or six bytes.

    state  whether the row of a position has all that its layer keeps of the tokens up to it: a
           prefill writes the row of its last token alone
    behind rows at the end that hold outputs of a call, not positions
    drafts whether only the drafter reads it: no logit of the model depends on it
    lent   whether drafts read it too
    lazy   whether only prefills and drafts write it: a draft reads the tokens of other calls later
    """

    name: str
    rows: int
    width: int
    dtype: CacheDType
    state: bool = field(default=False, metadata=OMITTED)
    behind: int = field(default=0, metadata=OMITTED)
    drafts: bool = field(default=False, metadata=OMITTED)
    lent: bool = field(default=False, metadata=OMITTED)
    lazy: bool = field(default=False, metadata=OMITTED)

    def is_argument(self, entry_kind: str) -> bool:
        """Whether entry points of a kind that reads tokens take and return the buffer."""
        if entry_kind == "draft":
            return self.drafts or self.lent
        return not self.lazy or entry_kind.startswith("prefill")

    @property
    def bytes(self) -> int:
        """The size of the buffer in bytes."""
        return self.rows * self.row_bytes

    @property
    def row_bytes(self) -> int:
        """The size of a row in bytes."""
        return self.width * CACHE_BITS[self.dtype] // 8

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the buffer, an array of `stored_dtype`."""
        return self.rows, self.width * CACHE_BITS[self.dtype] // CACHE_BITS[self.stored_dtype]

    @property
    def stored_dtype(self) -> StoredDType:
        """The dtype of the buffer."""
        return _STORED[self.dtype]


def unpacked_rows(packed: NDArray[np.int8], groups: int) -> NDArray[np.int8]:
    """The integers of rows of i4 or i6, i8 (groups, 32); see models/dsl/functions/int4_cache.py."""
    rows = packed.reshape(groups, -1)
    halves = rows[:, :16]
    integers = np.concatenate([halves & 15, (halves >> 4) + np.int8(8)], axis=1)
    half = 8
    for at in range(16, rows.shape[1], 4):
        plane = np.unpackbits(rows[:, at : at + 4].view(np.uint8), axis=1, bitorder="little")
        half *= 2
        integers += plane.astype(np.int8) * np.int8(half)
    return integers - np.int8(half)


def padding_of(caches: Iterable[CacheSpec]) -> int:
    """The token of positions that are padding, of a program with these caches."""
    return PADDING if any(cache.state for cache in caches) else 0
