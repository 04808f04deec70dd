"""A trial: both sides read the same passages, place by place.

Knows who is asked what in which order; it prints nothing and judges nothing.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import TYPE_CHECKING

from baker.compare.metrics import BEST, measure
from baker.compare.sides.prediction import NotANumber
from baker.compare.sides.side import SideError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from baker.compare.metrics import Measured
    from baker.compare.passages import Passage
    from baker.compare.sides.prediction import Prediction
    from baker.compare.sides.side import Side

# How many of the places that differ most are kept with their candidates.
WORST = 20


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """A place that differs much, or first: tokens that either side thinks best.

    place   index into the passage's tokens of the token that follows
    rows    token id, log-probability of A and of B, None where a side does not say
    """

    passage: Passage
    place: int
    kl: float
    rows: tuple[tuple[int, float | None, float | None], ...]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What was found in one passage: `measured` has one for each place that counts."""

    passage: Passage
    measured: tuple[Measured, ...]
    first_difference: Candidates | None


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Everything that was found. `worst` are the places of the largest KL, the largest first."""

    readings: tuple[Reading, ...]
    worst: tuple[Candidates, ...]


def compare(a: Side, b: Side, passages: Sequence[Passage], announce: Callable[[], None]) -> Trial:
    """Let both sides read all passages; `announce` is called after each place.

    Raises SideError if a side gives what is no prediction.
    """
    worst: list[Candidates] = []
    readings = tuple(_read(a, b, passage, worst, announce) for passage in passages)
    return Trial(readings=readings, worst=tuple(worst))


def _read(
    a: Side, b: Side, passage: Passage, worst: list[Candidates], announce: Callable[[], None]
) -> Reading:
    """Read one passage; `worst` is kept up to date, the largest divergence first."""
    measured: list[Measured] = []
    first: Candidates | None = None
    for place, (p, q) in enumerate(_in_step(a, b, passage), start=passage.start):
        found = measure(p, q, passage.token_ids[place])
        measured.append(found)
        is_first = first is None and not found.agree
        is_worst = found.kl > (worst[-1].kl if len(worst) == WORST else 0)
        if is_first or is_worst:
            kept = Candidates(passage=passage, place=place, kl=found.kl, rows=_candidates(p, q))
            first = kept if is_first else first
            if is_worst:
                bisect.insort(worst, kept, key=lambda candidates: -candidates.kl)
                del worst[WORST:]
        announce()
    return Reading(passage=passage, measured=tuple(measured), first_difference=first)


def _in_step(a: Side, b: Side, passage: Passage) -> Iterator[tuple[Prediction, Prediction]]:
    """Both sides' predictions of each place that counts."""
    sides = (("A", a), ("B", b))
    readers = [side.read(passage.token_ids, passage.start) for _, side in sides]
    for place in range(passage.start, len(passage.token_ids)):
        found = []
        for (letter, side), reader in zip(sides, readers, strict=True):
            try:
                found.append(next(reader))
            except NotANumber as error:
                raise SideError(
                    f"{letter}, {side.about.name}: after {place} tokens of {passage.name} {error}"
                ) from error
        yield found[0], found[1]


def _candidates(a: Prediction, b: Prediction) -> tuple[tuple[int, float | None, float | None], ...]:
    """The best tokens of both sides, A's first, with what either thinks of them."""
    tokens = dict.fromkeys((*a.best(BEST), *b.best(BEST)))
    return tuple((token, a.logprob(token), b.logprob(token)) for token in tokens)
