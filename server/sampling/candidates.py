"""The tokens that can still be chosen, and the arithmetic that samplers share.

It knows logits and numbers. It knows no options and no names of samplers.

The whole vocabulary is read as seldom as can be: a search for the best reads it twice, and only
what a request asks for (a nucleus of everything, log-probabilities) takes its exponentials.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from server.sampling.constraint import ConstraintFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_BLOCK = 512


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Tokens and their logits: at least one, of which at least one can be chosen.

    logits   f32 (n,), never written to; -inf is a token that cannot be chosen
    ids      i64 (n,), or None when the position is the id
    ordered  best first; of equal logits the one that stood first
    """

    logits: NDArray[np.float32]
    ids: NDArray[np.int64] | None = None
    ordered: bool = False

    @property
    def size(self) -> int:
        """How many there are."""
        return self.logits.size

    def id(self, position: int) -> int:
        """The id of a candidate."""
        return position if self.ids is None else int(self.ids[position])

    def keep(self, positions: NDArray[np.int64], *, ordered: bool) -> Candidates:
        """Those at the positions, i64 (m,), in their order."""
        ids = positions if self.ids is None else self.ids[positions]
        return Candidates(logits=self.logits[positions], ids=ids, ordered=ordered)

    def first(self, count: int) -> Candidates:
        """The `count` first ones of candidates in order."""
        ids = None if self.ids is None else self.ids[:count]
        return Candidates(logits=self.logits[:count], ids=ids, ordered=self.ordered)

    def best(self, count: int) -> Candidates:
        """The `count` best, in order, or all if there are not so many."""
        if self.ordered:
            return self.first(count)
        return self.keep(largest(self.logits, min(count, self.size)), ordered=True)

    def change(
        self,
        ids: NDArray[np.int64],
        rule: Callable[[NDArray[np.float32], NDArray[np.int64]], NDArray[np.float32]],
    ) -> Candidates:
        """Give new logits to those of `ids`, i64 (m,), ascending, that are candidates.

        `rule` gets their logits and their positions in `ids`. Raises ConstraintFailed.
        """
        if self.ids is None:
            positions, which = ids, np.arange(ids.size)
        else:
            which = np.minimum(np.searchsorted(ids, self.ids), ids.size - 1)
            positions = np.flatnonzero(ids[which] == self.ids)
            which = which[positions]
        logits = self.logits.copy()
        with np.errstate(over="ignore"):
            changed = rule(logits[positions], which)
        logits[positions] = np.minimum(changed, np.finfo(np.float32).max)
        return Candidates(logits=logits, ids=self.ids).possible()

    def possible(self) -> Candidates:
        """The same; raises ConstraintFailed if none of them can be chosen."""
        if self.logits.max() == -np.inf:
            raise ConstraintFailed("the request's rules leave no token that could come next")
        return self

    def weights(self) -> NDArray[np.float32]:
        """Numbers in proportion to the probabilities, f32 (n,), the largest one 1."""
        shifted = self._shifted()
        np.exp(shifted, out=shifted)
        return shifted

    def log_probabilities(self) -> NDArray[np.float32]:
        """The logarithm of the softmax, f32 (n,)."""
        shifted = self._shifted()
        shifted -= np.float32(np.log(total(np.exp(shifted))))
        return shifted

    def entropy(self) -> float:
        """The entropy of the softmax, in nats."""
        surprise = -self.log_probabilities()
        # An impossible token adds nothing, but 0 times infinity is no number.
        return total(np.exp(-surprise) * np.minimum(surprise, np.finfo(np.float32).max))

    def _shifted(self) -> NDArray[np.float32]:
        """The logits with the best one at 0, in an array of their own."""
        shifted: NDArray[np.float32]
        with np.errstate(over="ignore"):
            shifted = self.logits - self.logits.max()
        return shifted


def largest(values: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """The positions of the `count` largest values, largest first, i64 (count,).

    Of equal values the first ones count.
    """
    positions = np.flatnonzero(values >= _lower_bound(values, count))
    order = np.argsort(-values[positions], kind="stable")
    return positions[order[:count]]


def _lower_bound(values: NDArray[np.float32], count: int) -> np.float32:
    """A number that the `count` largest values reach, and few others."""
    whole = values[: values.size - values.size % _BLOCK]
    if whole.size > 4 * _BLOCK and count <= _BLOCK:
        # So many groups have a largest member that reaches it, and with it so many values.
        values = whole.reshape(-1, _BLOCK).max(axis=0)
    bound: np.float32 = np.partition(values, -count)[-count]
    return bound


def fewest(
    keys: NDArray[np.float32],
    weights: NDArray[np.float32],
    share: float,
    *,
    least: int,
    strictly: bool = False,
) -> NDArray[np.int64]:
    """The positions of the fewest largest keys that hold `share` of the weights, in their order.

    But at least `least` of them; `strictly`: more than the share.
    """
    goal = share * total(weights)
    count = max(64, least)
    while True:
        best = largest(keys, min(count, keys.size))
        reached = np.cumsum(weights[best], dtype=np.float64)
        if reached[-1] > goal or best.size == keys.size:
            needed = int(np.searchsorted(reached, goal, "right" if strictly else "left")) + 1
            return best[: max(needed, least)]
        count *= 8


def total(weights: NDArray[np.float32]) -> float:
    """Their sum; f32 within blocks, f64 over them, right to 1e-6."""
    return float(_block_sums(weights).sum())


def draw(weights: NDArray[np.float32], number: float) -> int:
    """The position at which the running sum of the weights passes `number` of their total.

    `number` is in [0, 1); a position without weight is never taken.
    """
    blocks = _block_sums(weights)
    block, rest = _pass(blocks, number * float(blocks.sum()))
    inside = weights[block * _BLOCK : (block + 1) * _BLOCK].astype(np.float64)
    return block * _BLOCK + _pass(inside, rest)[0]


def _block_sums(weights: NDArray[np.float32]) -> NDArray[np.float64]:
    starts = np.arange(0, weights.size, _BLOCK)
    return np.add.reduceat(weights, starts).astype(np.float64)


def _pass(weights: NDArray[np.float64], goal: float) -> tuple[int, float]:
    """Where the running sum passes the goal, and how much of the goal is left before that."""
    reached = np.cumsum(weights)
    # Rounding must not lead behind the last one that has a weight.
    goal = min(goal, float(np.nextafter(reached[-1], 0)))
    position = int(np.searchsorted(reached, goal, "right"))
    return position, goal - float(reached[position - 1]) if position else goal
