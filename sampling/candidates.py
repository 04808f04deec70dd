"""The tokens that can still be chosen, and the arithmetic that the samplers share.

It knows logits and numbers. It knows no options and no names of samplers.

The vocabulary is large, so it is read rarely: a search for the best tokens reads it twice, and its
exponentials are computed only for log-probabilities and for top_p or typical_p without top_k.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hearthd.sampling.constraint import ConstraintFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_BLOCK = 512


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """One or more tokens with their logits; at least one can be chosen.

    logits   f32 (n,), never written to; a token with -inf cannot be chosen
    ids      i64 (n,), or None if the id is the position
    ordered  whether the best is first; equal logits keep their order
    """

    logits: NDArray[np.float32]
    ids: NDArray[np.int64] | None = None
    ordered: bool = False

    @property
    def size(self) -> int:
        """The number of candidates."""
        return self.logits.size

    def id(self, position: int) -> int:
        """The id of a candidate."""
        return position if self.ids is None else int(self.ids[position])

    def keep(self, positions: NDArray[np.int64], *, ordered: bool) -> Candidates:
        """The candidates at positions, i64 (m,), in that order."""
        ids = positions if self.ids is None else self.ids[positions]
        return Candidates(logits=self.logits[positions], ids=ids, ordered=ordered)

    def first(self, count: int) -> Candidates:
        """The first `count` candidates, which are ordered."""
        ids = None if self.ids is None else self.ids[:count]
        return Candidates(logits=self.logits[:count], ids=ids, ordered=self.ordered)

    def best(self, count: int) -> Candidates:
        """The `count` best candidates, ordered; all if there are fewer."""
        if self.ordered:
            return self.first(count)
        return self.keep(largest(self.logits, min(count, self.size)), ordered=True)

    def change(
        self,
        ids: NDArray[np.int64],
        rule: Callable[[NDArray[np.float32], NDArray[np.int64]], NDArray[np.float32]],
    ) -> Candidates:
        """Change the logits of the candidates among `ids`, i64 (m,), ascending.

        `rule` maps their logits and their positions in `ids` to the new logits. Raises
        ConstraintFailed.
        """
        if self.ids is None:
            positions, indices = ids, np.arange(ids.size)
        else:
            indices = np.minimum(np.searchsorted(ids, self.ids), ids.size - 1)
            positions = np.flatnonzero(ids[indices] == self.ids)
            indices = indices[positions]
        logits = self.logits.copy()
        with np.errstate(over="ignore"):
            changed = rule(logits[positions], indices)
        logits[positions] = np.minimum(changed, np.finfo(np.float32).max)
        return Candidates(logits=logits, ids=self.ids).possible()

    def possible(self) -> Candidates:
        """These candidates; raises ConstraintFailed if none of them can be chosen."""
        if self.logits.max() == -np.inf:
            raise ConstraintFailed("the request's rules allow no next token")
        return self

    def weights(self) -> NDArray[np.float32]:
        """Numbers proportional to the probabilities, f32 (n,); the largest one is 1."""
        shifted = self._shifted()
        np.exp(shifted, out=shifted)
        return shifted

    def log_probabilities(self) -> NDArray[np.float32]:
        """The log-softmax, f32 (n,)."""
        shifted = self._shifted()
        shifted -= np.float32(np.log(total(np.exp(shifted))))
        return shifted

    def entropy(self) -> float:
        """The entropy of the softmax, in nats."""
        surprisal = -self.log_probabilities()
        # A token with -inf adds 0, where 0 times infinity would be NaN.
        return total(np.exp(-surprisal) * np.minimum(surprisal, np.finfo(np.float32).max))

    def _shifted(self) -> NDArray[np.float32]:
        """The logits minus the largest one, a new array."""
        shifted: NDArray[np.float32]
        with np.errstate(over="ignore"):
            shifted = self.logits - self.logits.max()
        return shifted


def largest(values: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """The positions of the `count` largest values, largest first, i64 (count,).

    Of equal values the first ones are taken.
    """
    positions = np.flatnonzero(values >= _lower_bound(values, count))
    order = np.argsort(-values[positions], kind="stable")
    return positions[order[:count]]


def _lower_bound(values: NDArray[np.float32], count: int) -> np.float32:
    """A lower bound of the `count` largest values, which few other values reach."""
    blocks = values[: values.size - values.size % _BLOCK]
    if blocks.size > 4 * _BLOCK and count <= _BLOCK:
        # The maxima of `count` groups reach the bound, so at least `count` values do.
        values = blocks.reshape(-1, _BLOCK).max(axis=0)
    bound: np.float32 = np.partition(values, -count)[-count]
    return bound


def fewest(
    keys: NDArray[np.float32],
    weights: NDArray[np.float32],
    share: float,
    *,
    min_count: int,
    strictly: bool = False,
) -> NDArray[np.int64]:
    """The positions of the fewest largest keys that hold the fraction `share` of the weights.

    Largest key first, at least `min_count` of them. With `strictly`, they hold more than `share`.
    """
    goal = share * total(weights)
    count = max(64, min_count)
    while True:
        best = largest(keys, min(count, keys.size))
        reached = np.cumsum(weights[best], dtype=np.float64)
        if reached[-1] > goal or best.size == keys.size:
            needed = int(np.searchsorted(reached, goal, "right" if strictly else "left")) + 1
            return best[: max(needed, min_count)]
        count *= 8


def total(weights: NDArray[np.float32]) -> float:
    """The sum, f32 within blocks and f64 over blocks; relative error at most 1e-6."""
    return float(_block_sums(weights).sum())


def draw(weights: NDArray[np.float32], number: float) -> int:
    """The position at which the cumulative sum of the weights exceeds `number` times their total.

    `number` is in [0, 1); a position of weight 0 is never returned.
    """
    blocks = _block_sums(weights)
    block, rest = _pass(blocks, number * float(blocks.sum()))
    inside = weights[block * _BLOCK : (block + 1) * _BLOCK].astype(np.float64)
    return block * _BLOCK + _pass(inside, rest)[0]


def _block_sums(weights: NDArray[np.float32]) -> NDArray[np.float64]:
    starts = np.arange(0, weights.size, _BLOCK)
    return np.add.reduceat(weights, starts).astype(np.float64)


def _pass(weights: NDArray[np.float64], goal: float) -> tuple[int, float]:
    """The position where the cumulative sum exceeds the goal, and the rest of the goal there."""
    reached = np.cumsum(weights)
    # Rounding must not lead beyond the last position that has a weight.
    goal = min(goal, float(np.nextafter(reached[-1], 0)))
    position = int(np.searchsorted(reached, goal, "right"))
    return position, goal - float(reached[position - 1]) if position else goal
