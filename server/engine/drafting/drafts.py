"""Drafts of the next tokens: sources that compete, and what a step verifies of them.

The model verifies several drafted tokens in one call, which takes less time than one call per
token. This module knows tokens and seconds. It knows no model and no sampler, and nothing here
changes an answer: a drafted token is accepted only if the sampler chooses the same one.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Protocol

from hearthd.runtime.system.operating_system import pages_read

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hearthd.runtime.interface import Runtime

# A prior acceptance counts as much as this many drafted tokens.
_PRIOR_WEIGHT = 2.0
# Weight of older observations after each new one: about twenty matter.
_DECAY = 0.95
# A draft must promise at least this many tokens in the time of one call for one token.
_MIN_GAIN = 1.05
# How many of the latest calls predict how long the next one takes.
_RECENT_CALLS = 9
# After this number of other calls, the time of a kind of calls is forgotten, so that it is measured
# again: a call may have been slow, or the tokens of a later sequence share more experts.
_FORGOTTEN_CALLS = 1000
# The same for the time of calls that read weights from the disk, as after a start. Each time it
# takes twice as many calls: not all weights may fit into memory.
_COLD_CALLS = 16
# Upper bound of a call's cost, as a fraction of one call per token. A single slow measurement above
# it would prevent all later ones.
_MAX_COST = 0.8
# The same for drafting a token, in calls for one token. A draft model first reads the tokens that
# it lacks, which takes longer after it was not asked for some time.
_MAX_DRAFT_COST = 4.0
# Tokens that a source which takes time is assumed to save per draft, which counts as much as
# _PRIOR_WEIGHT drafts. What was observed fades by _FADE with each step that does not ask it, so it
# is tried again: a source that never helps takes about 0.2 * (1 - _FADE) = 0.4 % of the time.
_PRIOR_SAVED = 0.1
_FADE = 0.98
# Expected tokens that are assumed to have been accepted. Without, a few rejected drafts would
# switch a good source off.
_RIGHT_WEIGHT = 1.0


class DraftSource(Protocol):
    """Drafts the next tokens of one sequence, whose tokens it reads and never changes.

    It compares each draft, verified or not, with the tokens that have come since.
    """

    @property
    def is_free(self) -> bool:
        """Whether drafting takes no time worth counting."""

    def draft(self, max_tokens: int) -> Iterator[tuple[int, float]]:
        """The next tokens, at most `max_tokens`, each when it is asked for.

        Each with the estimated probability that it is accepted if those before it are.
        """


class Acceptance:
    """The fraction of drafted tokens that were accepted in one sequence, by level.

    A level is a number for the drafted tokens that a source holds to be about equally likely.
    """

    def __init__(self, prior: Mapping[int, float]) -> None:
        """`prior` has the fractions that are assumed, by level."""
        self._prior = prior
        self._accepted = dict.fromkeys(prior, 0.0)
        self._drafted = dict.fromkeys(prior, 0.0)

    def observe(self, level: int, *, accepted: bool) -> None:
        """A drafted token of this level was the next one, or not."""
        self._drafted[level] = self._drafted[level] * _DECAY + 1
        self._accepted[level] = self._accepted[level] * _DECAY + accepted

    def rate(self, level: int) -> float:
        """The probability that a drafted token of this level is accepted."""
        accepted = self._accepted[level] + self._prior[level] * _PRIOR_WEIGHT
        return accepted / (self._drafted[level] + _PRIOR_WEIGHT)


class Stopwatch:
    """Times a call, from its creation on."""

    def __init__(self) -> None:
        self._began, self._read = time.perf_counter(), pages_read()

    @property
    def seconds(self) -> float:
        """Since the creation."""
        return time.perf_counter() - self._began

    @property
    def is_cold(self) -> bool:
        """Whether the process has waited for the disk, as calls do that first read weights."""
        return pages_read() > self._read


class _Times:
    """How long the latest calls of one kind took, in seconds.

    A call is cold if it waited for weights from the disk. Cold calls count until one is not cold.
    """

    def __init__(self) -> None:
        self._latest = deque[float](maxlen=_RECENT_CALLS)
        self._are_cold = True
        self._others, self._patience = 0, _COLD_CALLS

    def add(self, seconds: float, *, is_cold: bool) -> None:
        """A call took this long."""
        self._others = 0
        if is_cold and not self._are_cold:
            return
        if self._are_cold and not is_cold:
            self._latest.clear()
        self._are_cold = is_cold
        self._latest.append(seconds)

    def add_other(self) -> None:
        """A call of another kind was made."""
        self._others += 1
        if self._others < (self._patience if self._are_cold else _FORGOTTEN_CALLS):
            return
        if self._latest and self._are_cold:
            self._patience = min(2 * self._patience, _FORGOTTEN_CALLS)
        self._latest.clear()
        self._are_cold = True

    @property
    def median(self) -> float | None:
        """The median; None if none is known."""
        return statistics.median(self._latest) if self._latest else None


class Costs:
    """How long calls take: for one token, to verify several, by their size, and to draft one.

    Calls read that many tokens of each of a number of sequences. The median of the latest calls. A
    size that was not measured lately is assumed to cost no more than the next smaller one.
    """

    def __init__(self, sizes: tuple[int, ...], *, sequences: int = 1) -> None:
        self.sizes = sizes
        self.sequences = sequences
        self._single, self._several = _Times(), {size: _Times() for size in sizes}
        self._drafting = _Times()

    def add(self, tokens: int, seconds: float, *, is_cold: bool = False) -> None:
        """A call for `tokens` tokens took `seconds`; it counts for the smallest size that fits.

        `is_cold` says whether it waited for weights from the disk.
        """
        called = min(size for size in (1, *self.sizes) if size >= tokens)
        if called == 1:
            self._single.add(seconds, is_cold=is_cold)
        for size, times in self._several.items():
            if size == called:
                times.add(seconds, is_cold=is_cold)
            else:
                times.add_other()
        self._drafting.add_other()

    def add_draft(self, seconds: float, *, is_cold: bool = False) -> None:
        """A source that is not free took `seconds` for one token; `is_cold` as for `add`."""
        self._drafting.add(seconds, is_cold=is_cold)

    def of(self, size: int) -> float:
        """The cost of a call of this size, in calls for one token."""
        single = self._single.median
        medians = ((each, self._several[each].median) for each in self.sizes if each <= size)
        measured = [(each, median) for each, median in medians if median is not None]
        if single is None or not measured:
            return 1.0
        largest, several = measured[-1]
        return min(several / single, _MAX_COST * largest)

    @property
    def are_known(self) -> bool:
        """Whether a call for one token was timed. Before, no draft can be judged."""
        return self._single.median is not None

    @property
    def of_draft(self) -> float:
        """The cost of drafting a token, in calls for one token; 0 if it is not known."""
        return self.in_calls(self._drafting.median or 0)

    def in_calls(self, seconds: float) -> float:
        """A time in calls for one token, spent for each sequence; 0 if none was measured."""
        single = self._single.median
        return 0 if single is None else self.sequences * seconds / single

    def to_verify(self, drafted: int) -> float:
        """The cost of verifying this many drafted tokens, in calls for one token."""
        return self.of(min(size for size in self.sizes if size > drafted))


def costs_of(runtime: Runtime) -> dict[int, Costs]:
    """The costs of all calls that verify tokens, by the number of their sequences."""
    sizes = {1: runtime.verify_tokens, 2: (runtime.pair_tokens,) if runtime.pair_tokens else ()}
    return {count: Costs(each, sequences=count) for count, each in sizes.items() if each}


@dataclass(frozen=True, kw_only=True)
class _Promise:
    """A number of drafted tokens: how many are expected to be accepted, and whether all are."""

    drafted: int = 0
    expected: float = 0.0
    all_accepted: float = 1.0

    def with_token(self, probability: float) -> _Promise:
        """One more token, accepted with this probability if those before it are."""
        all_accepted = self.all_accepted * probability
        return _Promise(
            drafted=self.drafted + 1,
            expected=self.expected + all_accepted,
            all_accepted=all_accepted,
        )

    def gain(self, costs: Costs, *, drafting: int = 0) -> float:
        """Tokens in the time of one call for one token, if `drafting` more must be drafted."""
        return (1 + self.expected) / (costs.to_verify(self.drafted) + drafting * costs.of_draft)


@dataclass(kw_only=True)
class _Asked:
    """What drafts of a source saved, in calls for one token: decaying sums.

    What is accepted varies much more than what is expected of a draft. So `expected` tokens count,
    times the share of them that was accepted: `right` of `tried`.
    """

    others: float = 0.0  # saved without the accepted tokens: mostly below 0
    expected: float = 0.0
    count: float = 0.0
    tried: float = 0.0
    right: float = 0.0

    def observe(self, others: float, expected: float = 0.0, accepted: int = 0) -> None:
        """What a draft promised, what was accepted of it, and what it saved otherwise."""
        self._fade(_DECAY)
        self.others += others
        self.expected += expected
        self.count += 1
        self.tried = self.tried * _DECAY + expected
        self.right = self.right * _DECAY + accepted

    def fade(self) -> None:
        """A step has not asked the source."""
        self._fade(_FADE)

    def _fade(self, factor: float) -> None:
        self.others *= factor
        self.expected *= factor
        self.count *= factor

    @property
    def mean(self) -> float:
        """How much the next draft is expected to save."""
        share = (self.right + _RIGHT_WEIGHT) / (self.tried + _RIGHT_WEIGHT)
        saved = self.others + self.expected * share
        return (saved + _PRIOR_SAVED * _PRIOR_WEIGHT) / (self.count + _PRIOR_WEIGHT)


@dataclass(frozen=True, kw_only=True)
class _Draft:
    """A draft, and what it cost to draft and costs to verify, in calls for one token.

    `expected` of its tokens are accepted on average; `gain` is tokens in the time of one call.
    """

    tokens: tuple[int, ...] = ()
    expected: float = 0.0
    gain: float = _MIN_GAIN
    cost: float = 0.0
    verifying: float = 0.0


class Drafts:
    """The sources of one sequence; those that take time are asked where that pays."""

    def __init__(self, tokens: Sequence[int], sources: Sequence[DraftSource]) -> None:
        """`tokens` are the tokens of the sequence, the answer included as it grows."""
        self._tokens = tokens
        self._sources = sorted(sources, key=lambda source: not source.is_free)
        self._asked = [_Asked() for _ in sources]
        self._latest: dict[int, _Draft] = {}  # of the latest step, by the number of the source
        self._chosen = -1
        self._length = 0  # of the tokens in that step

    def best(self, max_tokens: int, costs: Costs) -> tuple[int, ...]:
        """The draft that yields most tokens per second, at most `max_tokens`; empty if none does.

        The first step of an engine drafts nothing: a call for one token must be timed first.

        Called at most once per step, with the costs of the step's calls.
        """
        self._observe()
        longest = max(costs.sizes, default=1) - 1 if costs.are_known else 0
        limit = min(max_tokens, longest)
        best, self._chosen, self._length = _Draft(), -1, len(self._tokens)
        for number, source in enumerate(self._sources):
            if not source.is_free and not self._may_win(number, best, limit, costs):
                self._asked[number].fade()
                continue
            draft = _drafted(source, limit, costs)
            if draft is None:
                continue
            self._latest[number] = draft
            if draft.gain > best.gain:
                best, self._chosen = draft, number
        return best.tokens

    def discard(self) -> None:
        """The latest draft is not verified."""
        self._chosen = -1

    def _observe(self) -> None:
        """Count what each source that was asked in the latest step has saved."""
        new = self._tokens[self._length :]
        for number, draft in self._latest.items():
            if number != self._chosen:
                self._asked[number].observe(-draft.cost)
                continue
            pairs = zip(draft.tokens, new, strict=False)
            accepted = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            others = 1 - draft.verifying - draft.cost
            self._asked[number].observe(others, draft.expected, accepted)
        self._latest.clear()

    def _may_win(self, number: int, best: _Draft, limit: int, costs: Costs) -> bool:
        """Whether to ask a source that takes time, given the best draft of the other sources."""
        expected = 1 + self._asked[number].mean
        worthwhile = expected > best.gain if best.tokens else expected > 1
        return worthwhile and _grows(_Promise(), 1.0, limit, best.gain, costs)


def _drafted(source: DraftSource, limit: int, costs: Costs) -> _Draft | None:
    """The best draft of a source, of at most `limit` tokens; None if it drafts no token."""
    promise, drafted, cost = _Promise(), list[int](), 0.0
    best, gain = promise, _MIN_GAIN
    tokens = source.draft(limit)
    while True:
        watch = Stopwatch()
        token, probability = next(tokens, (None, 0.0))
        if token is None:
            break
        if not source.is_free:
            seconds = watch.seconds
            # Not of the first token: a draft model reads the tokens that it lacks before it,
            # and maps its weights.
            if drafted:
                costs.add_draft(seconds, is_cold=watch.is_cold)
            cost += min(costs.in_calls(seconds), _MAX_DRAFT_COST)
        drafted.append(token)
        promise = promise.with_token(probability)
        if promise.gain(costs) > gain:
            best, gain = promise, promise.gain(costs)
        if not source.is_free and not _grows(promise, probability, limit, gain, costs):
            break
    if not drafted:
        return None
    return _Draft(
        tokens=tuple(drafted[: best.drafted]),
        expected=best.expected,
        gain=gain,
        cost=cost,
        verifying=costs.to_verify(best.drafted),
    )


def _grows(promise: _Promise, probability: float, limit: int, gain: float, costs: Costs) -> bool:
    """Whether more tokens, each accepted with this probability, would give more than a gain."""
    for drafting in range(1, limit - promise.drafted + 1):
        promise = promise.with_token(probability)
        if promise.gain(costs, drafting=drafting) > gain:
            return True
    return False
