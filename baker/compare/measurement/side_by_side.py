"""Let two sides predict every position of the same passages, and keep how far they differ."""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.baker.compare.measurement.position_metrics import TOP_TOKENS, measure
from hearthd.baker.compare.sides.prediction import NotFinitePrediction
from hearthd.baker.compare.sides.side import SideError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hearthd.baker.compare.measurement.passages import Passage
    from hearthd.baker.compare.measurement.position_metrics import PositionResult
    from hearthd.baker.compare.sides.prediction import Prediction
    from hearthd.baker.compare.sides.side import Side

# The number of positions of the largest KL divergence that are kept with their candidates.
WORST = 20


@dataclass(frozen=True, kw_only=True)
class NotablePosition:
    """A position of large KL divergence, or the first of a passage where the top tokens differ.

    position  index of the predicted token in the passage's tokens
    kl        KL divergence in nats
    rows      candidates: token id, log-probability of A and of B, None where it is unknown
    """

    passage: Passage
    position: int
    kl: float
    rows: tuple[tuple[int, float | None, float | None], ...]


@dataclass(frozen=True, kw_only=True)
class PassageResult:
    """The results of one passage, one for each compared position."""

    passage: Passage
    positions: tuple[PositionResult, ...]
    first_difference: NotablePosition | None


@dataclass(frozen=True, kw_only=True)
class ComparisonResult:
    """The results of all passages; `worst` has the largest KL divergences, largest first."""

    passages: tuple[PassageResult, ...]
    worst: tuple[NotablePosition, ...]


def compare(
    a: Side, b: Side, passages: Sequence[Passage], on_position: Callable[[], None]
) -> ComparisonResult:
    """Let both sides read all passages; calls `on_position` after each position.

    Raises SideError if the logits of a side are not finite.
    """
    worst: list[NotablePosition] = []
    results = tuple(_compare_passage(a, b, passage, worst, on_position) for passage in passages)
    return ComparisonResult(passages=results, worst=tuple(worst))


def _compare_passage(
    a: Side,
    b: Side,
    passage: Passage,
    worst: list[NotablePosition],
    on_position: Callable[[], None],
) -> PassageResult:
    """Compare one passage; updates `worst`, the largest KL divergence first."""
    results: list[PositionResult] = []
    first: NotablePosition | None = None
    for position, (p, q) in enumerate(_predictions(a, b, passage), start=passage.start):
        result = measure(p, q, passage.token_ids[position])
        results.append(result)
        is_first = first is None and not result.agree
        is_worst = result.kl > (worst[-1].kl if len(worst) == WORST else 0)
        if is_first or is_worst:
            notable = NotablePosition(
                passage=passage, position=position, kl=result.kl, rows=_candidates(p, q)
            )
            first = notable if is_first else first
            if is_worst:
                bisect.insort(worst, notable, key=lambda candidate: -candidate.kl)
                del worst[WORST:]
        on_position()
    return PassageResult(passage=passage, positions=tuple(results), first_difference=first)


def _predictions(a: Side, b: Side, passage: Passage) -> Iterator[tuple[Prediction, Prediction]]:
    """The predictions of both sides at each compared position."""
    sides = (("A", a), ("B", b))
    readers = [side.read(passage.token_ids, passage.start) for _, side in sides]
    for position in range(passage.start, len(passage.token_ids)):
        pair = []
        for (letter, side), reader in zip(sides, readers, strict=True):
            try:
                pair.append(next(reader))
            except NotFinitePrediction as error:
                raise SideError(
                    f"{letter}, {side.about.name}: after {position} tokens of {passage.name}: "
                    f"{error}"
                ) from error
        yield pair[0], pair[1]


def _candidates(a: Prediction, b: Prediction) -> tuple[tuple[int, float | None, float | None], ...]:
    """The top tokens of A, then of B, each with its log-probability on both sides."""
    tokens = dict.fromkeys((*a.best(TOP_TOKENS), *b.best(TOP_TOKENS)))
    return tuple((token, a.logprob(token), b.logprob(token)) for token in tokens)
