"""Which part of a model has how many bits: the fewest bytes, or the least error.

A part is one or more matrices that are stored alike. Its choices differ in bytes and in the error
that they add; the error of a model is the sum over its parts. All parts start with the fewest
bytes. A step replaces the choice of one part by its next larger choice. Steps are taken in the
order of the error that they remove per byte. Only choices on the lower convex hull of a part are
used, so each step of a part removes less per byte than the one before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One way to store a part.

    storages  a name of STORAGES by parameter
    size      in bytes
    error     that it adds, in any unit that is the same for all parts
    """

    storages: Mapping[str, str]
    size: int
    error: float


@dataclass(frozen=True)
class _Step:
    """From one choice of a part to the next larger one."""

    part: int
    choice: Choice
    size: int
    error: float

    @property
    def worth(self) -> float:
        """The error that a byte takes away."""
        return -self.error / self.size


def fewest_bytes(parts: Sequence[Sequence[Choice]], max_error: float) -> list[Choice]:
    """A choice for each part: together few bytes and at most `max_error`, if that is possible."""
    hulls = [hull(choices) for choices in parts]
    chosen = [choices[0] for choices in hulls]
    error = sum(choice.error for choice in chosen)
    for step in _steps(hulls):
        if error <= max_error:
            break
        chosen[step.part] = step.choice
        error += step.error
    return chosen


def least_error(parts: Sequence[Sequence[Choice]], max_size: int) -> list[Choice]:
    """A choice for each part: together a small error and at most `max_size` bytes, if possible."""
    hulls = [hull(choices) for choices in parts]
    chosen = [choices[0] for choices in hulls]
    size, full = sum(choice.size for choice in chosen), set[int]()
    for step in _steps(hulls):
        if step.part in full or size + step.size > max_size:
            full.add(step.part)
            continue
        chosen[step.part] = step.choice
        size += step.size
    return chosen


def hull(choices: Sequence[Choice]) -> list[Choice]:
    """The choices, the smallest first, that are better than any mix of two others."""
    result: list[Choice] = []
    for choice in sorted(choices, key=lambda choice: (choice.size, choice.error)):
        if result and choice.error >= result[-1].error:
            continue
        while len(result) > 1 and _above(result[-2], result[-1], choice):
            result.pop()
        result.append(choice)
    return result


def _above(first: Choice, middle: Choice, last: Choice) -> bool:
    """Whether the middle one has more error than a mix of the others of its size."""
    before = (first.error - middle.error) * (last.size - middle.size)
    after = (middle.error - last.error) * (middle.size - first.size)
    return before <= after


def _steps(hulls: Sequence[Sequence[Choice]]) -> list[_Step]:
    """All steps, those first that are worth most; of equal ones, in the order of the parts."""
    steps = [
        _Step(i, larger, larger.size - smaller.size, larger.error - smaller.error)
        for i, choices in enumerate(hulls)
        for smaller, larger in pairwise(choices)
    ]
    return sorted(steps, key=lambda step: -step.worth)
