"""Which part has how many bits, beside trying every combination."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from hearthd.baker.precision.bit_assignment import Choice, fewest_bytes, hull, least_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def choice(size: int, error: float) -> Choice:
    return Choice(storages={}, size=size, error=error)


CHOICES = st.lists(
    st.builds(choice, st.integers(1, 20), st.integers(0, 20).map(float)), min_size=1, max_size=4
)
PARTS = st.lists(CHOICES, min_size=1, max_size=4)


def total(mix: Iterable[Choice]) -> tuple[int, float]:
    mix = list(mix)
    return sum(one.size for one in mix), sum(one.error for one in mix)


def combinations(parts: Sequence[Sequence[Choice]]) -> list[tuple[int, float]]:
    return [total(mix) for mix in itertools.product(*parts)]


@given(PARTS, st.integers(0, 80))
def test_the_error_is_within_the_limit_if_it_can_be(parts: list[list[Choice]], limit: int) -> None:
    size, error = total(fewest_bytes(parts, limit))
    least = min(error for _, error in combinations(parts))
    assert error <= max(limit, least)
    # What was found for a limit is the smallest for the error that it has.
    assert size == min(other for other, its_error in combinations(parts) if its_error <= error)


@given(PARTS, st.integers(1, 80))
def test_the_bytes_are_within_the_limit_if_they_can_be(
    parts: list[list[Choice]], limit: int
) -> None:
    size, error = total(least_error(parts, limit))
    smallest = min(total(choices)[0] for choices in itertools.product(*parts))
    assert size <= max(limit, smallest)
    # No single larger choice would fit as well and have less error.
    for i, choices in enumerate(parts):
        mix = least_error(parts, limit)
        for other in hull(choices):
            changed = total([*mix[:i], other, *mix[i + 1 :]])
            assert changed[0] > max(limit, smallest) or changed[1] >= error


def test_errors_are_taken_away_where_a_byte_takes_most() -> None:
    heavy = [choice(4, 8.0), choice(5, 2.0), choice(8, 0.0)]
    light = [choice(4, 1.0), choice(5, 0.2), choice(8, 0.0)]
    assert [one.size for one in fewest_bytes([light, heavy], 3.0)] == [4, 5]
    assert [one.size for one in fewest_bytes([light, heavy], 2.5)] == [5, 5]
    assert [one.size for one in least_error([light, heavy], 13)] == [5, 8]
    assert [one.size for one in least_error([light, heavy], 12)] == [5, 5]
    assert [one.size for one in least_error([light, heavy], 7)] == [4, 4]
