"""A published size of a family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Size:
    """A published size with few layers: `fields` of its configuration."""

    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    fields: Mapping[str, Any]

    def arguments(self) -> dict[str, Any]:
        """The arguments of a configuration."""
        names = ("hidden", "ffn", "heads", "kv_heads", "head_dim", "vocab_size")
        shape = {name: getattr(self, name) for name in names}
        return {"layers": 2, "max_context": 8192, "norm_eps": 1e-5, **shape, **self.fields}


def decoder(*shape: int, **fields: Any) -> Size:
    """A size by its numbers in their order, with the fields that most models have."""
    hidden, ffn, heads, kv_heads, head_dim, vocab_size = shape
    fields = {"rope_base": 1e6, "tied": True, **fields}
    return Size(hidden, ffn, heads, kv_heads, head_dim, vocab_size, fields)
