"""Prompt lookup: draft the next tokens from a text that repeats itself (Saxena, 2023).

Where the latest tokens occurred before, the tokens that followed them there are a draft of what
follows now. The model verifies several drafted tokens in one call, which takes less time than one
call per token. It knows tokens and seconds. It knows no model and no sampler, and nothing here
changes an answer: a drafted token is accepted only if the sampler chooses the same one.
"""

from __future__ import annotations

import statistics
from collections import deque
from typing import TYPE_CHECKING

from hearthd.runtime.interface import NO_TOKEN

if TYPE_CHECKING:
    from collections.abc import Sequence

# How many tokens must match before those that followed them are a draft.
_MIN_MATCH = 2
# Probability that a drafted token is accepted, by the bit length of how many tokens before it match
# (2 to 3, 4 to 7, and so on). A prior: it counts as much as _PRIOR_WEIGHT drafted tokens do.
_PRIOR_ACCEPTANCE = {2: 0.35, 3: 0.65, 4: 0.85, 5: 0.93}
_PRIOR_WEIGHT = 2.0
# Weight of older observations after each new one: about twenty matter.
_DECAY = 0.95
# A draft must promise at least this many tokens in the time of one call for one token.
_MIN_GAIN = 1.05
# How many of the latest calls predict how long the next one takes.
_RECENT_CALLS = 9
# Upper bound of a call's cost, as a fraction of one call per token. A single slow measurement above
# it would prevent all later ones.
_MAX_COST = 0.8


class PromptLookup:
    """Drafts the next tokens of one sequence, whose `tokens` it reads and never changes.

    The draft follows the latest place where the two latest tokens occurred, and stays with that
    place for as long as it predicts the tokens that come. Every prediction counts, verified or not,
    so a text that begins to repeat itself is noticed without a call of the model. NO_TOKEN equals
    nothing, and ends a draft.
    """

    def __init__(self, tokens: Sequence[int]) -> None:
        """Index the prompt, which is all of `tokens` now; tokens that come later are the answer."""
        self._tokens = tokens
        self._indexed = 0  # how many of the tokens have been seen
        self._places: dict[tuple[int, ...], int] = {}  # by matching tokens, the place after them
        self._place: int | None = None  # where the drafted tokens begin
        self._matched = _MIN_MATCH  # how many tokens before that place equal the latest ones
        self._accepted = dict.fromkeys(_PRIOR_ACCEPTANCE, 0.0)
        self._predicted = dict.fromkeys(_PRIOR_ACCEPTANCE, 0.0)
        while self._indexed < len(tokens):
            self._index_next()

    def draft(self, max_tokens: int) -> tuple[int, ...]:
        """The next tokens, at most `max_tokens`; none if the latest ones did not occur before."""
        self._catch_up()
        if self._place is None:
            return ()
        drafted: list[int] = []
        for place in range(self._place, self._place + max_tokens):
            beyond = place - len(self._tokens)  # a repetition may continue into the draft itself
            token = self._tokens[place] if beyond < 0 else drafted[beyond]
            if token == NO_TOKEN:
                break
            drafted.append(token)
        return tuple(drafted)

    def expected(self, drafted: int) -> float:
        """How many of `drafted` tokens will be accepted; those after a rejected one are not."""
        self._catch_up()
        total, all_accepted = 0.0, 1.0
        for ahead in range(drafted):
            level = _level(self._matched + ahead)
            prior = _PRIOR_ACCEPTANCE[level] * _PRIOR_WEIGHT
            all_accepted *= (self._accepted[level] + prior) / (
                self._predicted[level] + _PRIOR_WEIGHT
            )
            total += all_accepted
        return total

    def _catch_up(self) -> None:
        """Index the tokens that have come, and count which of them were predicted."""
        while self._indexed < len(self._tokens):
            if self._place is not None:
                level = _level(self._matched)
                self._predicted[level] = self._predicted[level] * _DECAY + 1
                self._accepted[level] = self._accepted[level] * _DECAY + self._next_is_predicted()
            self._index_next()

    def _next_is_predicted(self) -> bool:
        token = self._tokens[self._indexed]
        return self._place is not None and self._tokens[self._place] == token != NO_TOKEN

    def _index_next(self) -> None:
        """Index one more token, and find the place that predicts the one after it."""
        predicted = self._next_is_predicted()
        self._indexed += 1
        latest = tuple(self._tokens[max(0, self._indexed - _MIN_MATCH) : self._indexed])
        if predicted and self._place is not None:
            self._place += 1
            self._matched += 1
        else:
            self._place = self._places.get(latest)
            self._matched = _MIN_MATCH
        if len(latest) == _MIN_MATCH and NO_TOKEN not in latest:
            self._places[latest] = self._indexed


class Costs:
    """How long a call for one token takes, and a call that verifies, by its size in tokens.

    The median of the latest calls. A size that was not measured is assumed to cost nothing extra.
    """

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.sizes = sizes
        self._seconds = {size: deque[float](maxlen=_RECENT_CALLS) for size in (1, *sizes)}

    def add(self, tokens: int, seconds: float) -> None:
        """A call for `tokens` tokens took `seconds`; it counts for the smallest size that fits."""
        self._seconds[min(size for size in self._seconds if size >= tokens)].append(seconds)

    def of(self, size: int) -> float:
        """The cost of a call of this size, in calls for one token."""
        single, several = self._seconds[1], self._seconds[size]
        if not single or not several:
            return 1.0
        return min(statistics.median(several) / statistics.median(single), _MAX_COST * size)


def best_draft(lookup: PromptLookup, costs: Costs, max_tokens: int) -> tuple[int, ...]:
    """The draft that yields most tokens per second, at most `max_tokens`; empty if none does."""
    best: tuple[int, ...] = ()
    best_gain = _MIN_GAIN
    for size in costs.sizes:
        draft = lookup.draft(min(size - 1, max_tokens))
        gain = (1 + lookup.expected(len(draft))) / costs.of(size)
        if draft and gain > best_gain:
            best, best_gain = draft, gain
    return best


def _level(matched: int) -> int:
    return min(matched.bit_length(), max(_PRIOR_ACCEPTANCE))
