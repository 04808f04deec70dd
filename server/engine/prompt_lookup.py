"""What a text that repeats itself says next, and whether it pays to have the model check it.

Prompt lookup (Saxena, 2023): where the latest tokens have stood before, what followed them there is
a guess of what follows now. The model checks several guesses in one call, which takes less time
than a call for each. It knows tokens and seconds. It knows no model and no sampler, and nothing
here changes an answer: a guess is kept only if the sampler takes the same token.
"""

from __future__ import annotations

import statistics
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# Tokens that must agree before what followed them is a guess.
_AGREE = 2
# The chance that a guess is right, by the bits of how many tokens before it have agreed (2 to 3, 4
# to 7, and so on), before this text has shown how it is; it counts as so many guesses.
_CHANCES = {2: 0.35, 3: 0.65, 4: 0.85, 5: 0.93}
_WEIGHT = 2.0
# What an earlier guess still counts after each one, so that some twenty of them matter.
_FADING = 0.95
# Less than this is not worth the risk.
_LEAST_GAIN = 1.05
# Calls that tell how long the next one takes.
_REMEMBERED = 9
# A call takes no longer than this share of a call for each token: a measure of a bad moment, which
# would keep it from being measured again, is not believed.
_DEAREST = 0.8


class Lookup:
    """The tokens of one sequence, and guesses of the next ones.

    The guess follows the latest place where the two latest tokens have stood, and stays with that
    place for as long as it is right. Each guess counts, checked or not: so a text in which guesses
    become right is noticed without a call of the model.
    """

    def __init__(self, tokens: Iterable[int]) -> None:
        self._tokens: list[int] = []
        self._behind: dict[tuple[int, ...], int] = {}  # by tokens that agree, the place after them
        self._place: int | None = None  # of the token that is the next guess
        self._agreed = _AGREE  # how many tokens before that place are as the latest ones
        for token in tokens:
            self._follow(token)
        self._right = dict.fromkeys(_CHANCES, 0.0)
        self._tried = dict.fromkeys(_CHANCES, 0.0)

    def append(self, token: int) -> None:
        """The sequence goes on with this token."""
        if self._place is not None:
            level = _level(self._agreed)
            self._tried[level] = self._tried[level] * _FADING + 1
            self._right[level] = self._right[level] * _FADING + (self._guessed(token))
        self._follow(token)

    def guess(self, most: int) -> tuple[int, ...]:
        """The next tokens, at most so many; none if the latest ones have not stood before."""
        if self._place is None:
            return ()
        found: list[int] = []
        for place in range(self._place, self._place + most):
            behind = place - len(self._tokens)  # a repetition may reach into itself
            found.append(self._tokens[place] if behind < 0 else found[behind])
        return tuple(found)

    def expected(self, guesses: int) -> float:
        """How many of so many guesses will be right, those after a wrong one not counted."""
        total, all_right = 0.0, 1.0
        for ahead in range(guesses):
            level = _level(self._agreed + ahead)
            before = _CHANCES[level] * _WEIGHT
            all_right *= (self._right[level] + before) / (self._tried[level] + _WEIGHT)
            total += all_right
        return total

    def _guessed(self, token: int) -> bool:
        return self._place is not None and self._tokens[self._place] == token

    def _follow(self, token: int) -> None:
        """Take a token, and find the place of the next guess."""
        right = self._guessed(token)
        self._tokens.append(token)
        latest = tuple(self._tokens[-_AGREE:])
        if right and self._place is not None:
            self._place += 1
            self._agreed += 1
        else:
            self._place = self._behind.get(latest)
            self._agreed = _AGREE
        if len(latest) == _AGREE:
            self._behind[latest] = len(self._tokens)


class Costs:
    """How long it takes to read one token, or several in one call of one of the sizes.

    The latest calls tell. What has not been tried yet is taken to cost nothing more.
    """

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.sizes = sizes
        self._seconds = {size: deque[float](maxlen=_REMEMBERED) for size in (1, *sizes)}

    def add(self, tokens: int, seconds: float) -> None:
        """So many tokens have been read, by the smallest size in which they fit."""
        self._seconds[min(size for size in self._seconds if size >= tokens)].append(seconds)

    def of(self, size: int) -> float:
        """What a call costs, in calls for one token."""
        one, several = self._seconds[1], self._seconds[size]
        if not one or not several:
            return 1.0
        return min(statistics.median(several) / statistics.median(one), _DEAREST * size)


def worth_checking(lookup: Lookup, costs: Costs, most: int) -> tuple[int, ...]:
    """The guesses, at most so many, with which tokens are likely to come fastest; perhaps none."""
    best: tuple[int, ...] = ()
    gain = _LEAST_GAIN
    for size in costs.sizes:
        guesses = lookup.guess(min(size - 1, most))
        found = (1 + lookup.expected(len(guesses))) / costs.of(size)
        if guesses and found > gain:
            best, gain = guesses, found
    return best


def _level(agreed: int) -> int:
    return min(agreed.bit_length(), max(_CHANCES))
