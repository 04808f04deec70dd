"""The caches of a slot: what a language model keeps of the tokens that it has read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from hearthd.bundle.provenance import OMITTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["PADDING", "CacheDType", "CacheSpec", "padding_of"]

CacheDType: TypeAlias = Literal["i8", "f16", "f32"]

# The token of a position that is padding, of an entry point whose caches have states.
PADDING = -2
_CACHE_BYTES: Mapping[CacheDType, int] = {"i8": 1, "f16": 2, "f32": 4}


@dataclass(frozen=True, kw_only=True)
class CacheSpec:
    """One KV cache buffer of one slot: `rows` positions of `width` values of `dtype`.

    Buffers of i8 have scales, which are buffers of f32.

    state  whether the row of a position has all that its layer keeps of the tokens up to it: a
           prefill writes that of its last token alone
    behind rows at the end that are no positions', for outputs of a call
    drafts whether only the drafter reads it: no logit of the model depends on it
    """

    name: str
    rows: int
    width: int
    dtype: CacheDType
    state: bool = field(default=False, metadata=OMITTED)
    behind: int = field(default=0, metadata=OMITTED)
    drafts: bool = field(default=False, metadata=OMITTED)

    @property
    def bytes(self) -> int:
        """The size of the buffer in bytes."""
        return self.rows * self.row_bytes

    @property
    def row_bytes(self) -> int:
        """The size of a row in bytes."""
        return self.width * _CACHE_BYTES[self.dtype]


def padding_of(caches: Iterable[CacheSpec]) -> int:
    """The token of positions that are padding, of a program with these caches."""
    return PADDING if any(cache.state for cache in caches) else 0
