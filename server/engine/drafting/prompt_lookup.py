"""Prompt lookup: draft the next tokens from a text that repeats itself (Saxena, 2023).

Where the latest tokens occurred before, the tokens that followed them there are a draft of what
follows now.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.runtime.interface import NO_TOKEN
from hearthd.server.engine.drafting.drafts import Acceptance, DraftSource

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# How many tokens must match before those that followed them are a draft.
_MIN_MATCH = 2
# Probability that a drafted token is accepted, by the bit length of how many tokens before it match
# (2 to 3, 4 to 7, and so on).
_PRIOR_ACCEPTANCE = {2: 0.35, 3: 0.65, 4: 0.85, 5: 0.93}


class PromptLookup(DraftSource):
    """Drafts the next tokens of one sequence, whose `tokens` it reads and never changes.

    The draft follows the latest place where the two latest tokens occurred, and stays with that
    place for as long as it predicts the tokens that come. Every prediction counts, drafted or not,
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
        self._acceptance = Acceptance(_PRIOR_ACCEPTANCE)
        while self._indexed < len(tokens):
            self._index_next()

    @property
    @override
    def is_free(self) -> bool:
        return True

    @override
    def draft(self, max_tokens: int) -> Iterator[tuple[int, float]]:
        """Nothing if the latest tokens did not occur before."""
        self._catch_up()
        return islice(self._continued(), max_tokens)

    def _continued(self) -> Iterator[tuple[int, float]]:
        """The tokens from the place on; a repetition may continue into the draft itself."""
        if self._place is None:
            return
        place, drafted = self._place, list[int]()
        while True:
            beyond = place + len(drafted) - len(self._tokens)
            token = self._tokens[place + len(drafted)] if beyond < 0 else drafted[beyond]
            if token == NO_TOKEN:
                return
            yield token, self._acceptance.rate(_level(self._matched + len(drafted)))
            drafted.append(token)

    def _catch_up(self) -> None:
        """Index the tokens that have come, and count which of them were predicted."""
        while self._indexed < len(self._tokens):
            if self._place is not None:
                accepted = self._next_is_predicted()
                self._acceptance.observe(_level(self._matched), accepted=accepted)
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


def _level(matched: int) -> int:
    return min(matched.bit_length(), max(_PRIOR_ACCEPTANCE))
