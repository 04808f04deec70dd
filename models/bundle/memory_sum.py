"""How much memory serving takes: one arithmetic, for `hearth bake`, `inspect` and `serve`.

    needed = process + text + requests + weights + step + slots x slot + prefix cache

Counted is what the system cannot take back while a bundle is served. Not counted are pages of
params.irpa that are read to lay weights out when the program is loaded, and those of which rows are
looked up: the system may drop them at any time, and reads them again.

It knows sizes, and no machine. benchmarks/memory_contract.py measures what a process takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from models.bundle.bundle_errors import BundleError, NotABundle

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "CHARACTERS_A_TOKEN",
    "PREFIX_CACHE",
    "REQUESTS",
    "Admitted",
    "Footprint",
    "Memory",
    "TooLittle",
    "megabytes",
]

# Python with the server's libraries and IREE, and what connections and threads take of it.
PROCESS = 105_000_000
# Of a vocabulary: the tokenizer takes 260 bytes a token, what grammars know of it 240.
TEXT_PER_TOKEN = 520
# Memory of all request bodies and what is parsed from them: server/api/middleware/body_limits.py.
REQUESTS = 32_000_000
# Characters of a text that is tokenized, one at a time, for each token of the context: prose has 4,
# and much blank space 20. The tokenizer takes 100 bytes a character while it works.
CHARACTERS_A_TOKEN = 32
_TOKENIZING = 100
# The budget of the prefix cache, unless a server is told another.
PREFIX_CACHE = 256 * 2**20


class TooLittle(BundleError):
    """Not even one slot fits; the message says what takes how much."""


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """Bytes that a traced program needs; the sizes of parameters count by how they are used.

    laid_out   weights that are laid out for their kernels, in a copy, when the program is loaded
    read       weights that a step reads as they lie in params.irpa
    looked_up  weights of which a step reads some rows there
    calls      by entry point: what a call of it holds besides, results included
    """

    laid_out: int
    read: int
    looked_up: int
    calls: dict[str, int]

    def __post_init__(self) -> None:
        """Raises NotABundle for a size below zero."""
        sizes = {"laid_out": self.laid_out, "read": self.read, "looked_up": self.looked_up}
        for name, size in (*sizes.items(), *self.calls.items()):
            if size < 0:
                raise NotABundle(f"footprint.{name}: expected a size, got {size}")


@dataclass(frozen=True, kw_only=True)
class Admitted:
    """What fits: how many slots, and bytes of the prefix cache."""

    slots: int
    prefix_cache: int


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The parts of what serving one bundle takes, in bytes.

    weights  laid out or read in each step
    slot     the KV caches of one sequence
    steps    by the number of slots that it takes, the most that a call holds
    block    the least of the prefix cache that is of any use
    """

    vocab_size: int
    context: int
    weights: int
    slot: int
    block: int
    steps: Mapping[int, int]

    def step(self, slots: int) -> int:
        """The most that a call holds, if so many slots are open."""
        return max((size for least, size in self.steps.items() if least <= slots), default=0)

    def parts(self, slots: int, prefix_cache: int = 0) -> tuple[tuple[str, int], ...]:
        """Each part of the sum by its name."""
        return (
            ("process", PROCESS),
            ("text", TEXT_PER_TOKEN * self.vocab_size),
            ("requests", REQUESTS + _TOKENIZING * CHARACTERS_A_TOKEN * self.context),
            ("weights", self.weights),
            ("step", self.step(slots)),
            ("slots", slots * self.slot),
            ("prefix cache", prefix_cache),
        )

    def needed(self, slots: int, prefix_cache: int = 0) -> int:
        """The sum."""
        return sum(size for _, size in self.parts(slots, prefix_cache))

    def formula(self, slots: int, prefix_cache: int = 0) -> str:
        """The sum, written out in MB."""
        words = (
            f"{name} {megabytes(size)}" for name, size in self.parts(slots, prefix_cache) if size
        )
        return f"{megabytes(self.needed(slots, prefix_cache))} MB = {' + '.join(words)}"

    def admit(self, limit: int, *, slots: int, prefix_cache: int) -> Admitted:
        """What fits into `limit` bytes of so many slots and such a prefix cache.

        Slots come first, and the cache has what they leave. Raises TooLittle.
        """
        fitting = [n for n in range(1, slots + 1) if self.needed(n) <= limit]
        if not fitting:
            raise TooLittle(
                f"{megabytes(limit)} MB of memory are too little, one slot needs {self.formula(1)}"
            )
        left = limit - self.needed(fitting[-1])
        cache = min(prefix_cache, left)
        return Admitted(slots=fitting[-1], prefix_cache=cache if cache >= self.block else 0)


def megabytes(size: int) -> str:
    """Bytes in units of 10^6, rounded up to a tenth: what has it will do."""
    return f"{-(-size // 100_000) / 10:,.1f}"
