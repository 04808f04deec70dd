"""A compiled function of a language model, or several that compute one thing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from hearthd.bundle.bundle_errors import NotABundle
from hearthd.bundle.file_records import MANIFEST
from hearthd.bundle.provenance import OMITTED

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["EntryPoint", "largest"]

_MAX_SLICES = 2**16


@dataclass(frozen=True, kw_only=True)
class EntryPoint:
    """A compiled function, which takes `batch` x `tokens` tokens.

    `decode` takes `batch` x 1 tokens, the others 1 x `tokens`, but a `verify` of two sequences.

    It attends to positions below `keys` only, so its tokens must have positions below `keys`.
    `adapters` says whether sequences can have one.

    slices  functions that compute it one after the other; `kept` is the most bytes that one of
            several reads: the uploaded pixels, or what the one before left
    """

    name: str
    kind: Literal[
        "prefill",
        "prefill_rows",
        "prefill_block",
        "decode",
        "embed",
        "verify",
        "image",
        "sound",
        "draft",
    ]
    batch: int
    tokens: int
    keys: int
    adapters: bool = False
    slices: int = field(default=1, metadata=OMITTED)
    kept: int = field(default=0, metadata=OMITTED)

    def __post_init__(self) -> None:
        """Raises NotABundle for a number of slices or of bytes out of range."""
        if not 1 <= self.slices <= _MAX_SLICES:
            raise NotABundle(
                f"{MANIFEST}.entry_points: slices of {self.name!r:.80}: got {self.slices}, "
                f"expected 1 to {_MAX_SLICES}"
            )
        if self.kept < 0:
            raise NotABundle(
                f"{MANIFEST}.entry_points: kept of {self.name!r:.80}: got {self.kept}, "
                "expected a size"
            )

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of the compiled functions."""
        if self.slices == 1:
            return (self.name,)
        return tuple(f"{self.name}_{number}" for number in range(self.slices))


def largest(entry_points: Sequence[EntryPoint], kind: str) -> int:
    """The tokens of the largest entry point of a kind; 0 without one."""
    return max((point.tokens for point in entry_points if point.kind == kind), default=0)
