"""Prompt lookup: what is guessed, what is expected of it, and when it is worth a check."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.engine.prompt_lookup import Costs, Lookup, worth_checking

tokens_of_few = st.lists(st.integers(0, 3), max_size=40)


def costs_of(**seconds: float) -> Costs:
    """Costs by size: costs_of(_1=1.0, _4=1.5)."""
    known = {int(name.removeprefix("_")): value for name, value in seconds.items()}
    costs = Costs(tuple(size for size in known if size > 1))
    for size, value in known.items():
        costs.add(size, value)
    return costs


def lookup_after(prompt: list[int], answer: list[int]) -> Lookup:
    lookup = Lookup(prompt)
    for token in answer:
        lookup.append(token)
    return lookup


@given(tokens_of_few, tokens_of_few, st.integers(1, 9))
def test_a_guess_is_what_followed_the_two_latest_tokens_before(
    prompt: list[int], answer: list[int], most: int
) -> None:
    text = prompt + answer
    guess = lookup_after(prompt, answer).guess(most)
    places = [at for at in range(2, len(text)) if text[at - 2 : at] == text[-2:]]
    assert len(guess) == (most if places else 0)
    continuations = []
    for place in places:
        longer = list(text)
        for at in range(place, place + most):
            longer.append(longer[at])
        continuations.append(tuple(longer[len(text) :]))
    assert not guess or guess in continuations


@given(tokens_of_few, tokens_of_few, st.integers(1, 9))
def test_more_guesses_are_worth_more_and_less_than_their_number(
    prompt: list[int], answer: list[int], most: int
) -> None:
    lookup = lookup_after(prompt, answer)
    expected = [lookup.expected(count) for count in range(most + 1)]
    assert expected == sorted(expected)
    assert expected[0] == 0
    assert all(expected[count] <= count for count in range(most + 1))


def test_a_guess_stays_with_its_place_while_it_is_right() -> None:
    text = [1, 2, 3, 4, 9, 2, 3, 7, 7]
    lookup = lookup_after(text, [1, 2])
    assert lookup.guess(3) == (3, 4, 9)
    lookup.append(3)
    assert lookup.guess(3) == (4, 9, 2)  # though the latest 2, 3 was followed by 7
    lookup.append(5)
    assert lookup.guess(3) == ()


def test_a_repetition_reaches_into_itself() -> None:
    assert lookup_after([], [8, 1, 2, 1, 2]).guess(5) == (1, 2, 1, 2, 1)
    assert lookup_after([6], [6, 6]).guess(4) == (6, 6, 6, 6)


def test_nothing_is_guessed_of_what_never_came() -> None:
    assert Lookup([]).guess(4) == ()
    assert Lookup([1]).guess(4) == ()
    assert Lookup([1, 2, 3]).guess(4) == ()


def test_guesses_that_come_true_raise_what_is_expected_and_others_lower_it() -> None:
    prompt = [*range(100), 0, 1]
    right = lookup_after(prompt, list(range(2, 60)))
    assert right.expected(7) > 6
    wrong = Lookup(range(100))
    for token in range(0, 60, 2):  # two tokens that stood there, then one that did not follow
        for said in (token, token + 1, 0):
            wrong.append(said)
    wrong.append(70)
    wrong.append(71)
    assert 0 < wrong.expected(7) < 0.1


@pytest.mark.parametrize(
    ("seconds", "guesses"),
    [
        ({"_1": 1.0, "_4": 1.3, "_8": 1.8}, 7),
        ({"_1": 1.0, "_4": 1.3, "_8": 4.0}, 3),
        ({"_1": 1.0, "_2": 1.1, "_4": 3.0}, 1),
        ({"_1": 1.0}, 0),
    ],
)
def test_the_size_of_a_text_that_repeats_itself_is_the_fastest_one(
    seconds: dict[str, float], guesses: int
) -> None:
    lookup = lookup_after(list(range(50)), list(range(30)))
    assert len(worth_checking(lookup, costs_of(**seconds), 99)) == guesses


def test_no_more_is_guessed_than_may_come() -> None:
    lookup, costs = lookup_after(list(range(50)), list(range(30))), costs_of(_1=1, _4=1.1, _8=1.2)
    assert [len(worth_checking(lookup, costs, most)) for most in (0, 1, 2, 5, 7, 8)] == [
        0, 1, 2, 5, 7, 7,
    ]  # fmt: skip


def test_a_text_that_does_not_repeat_itself_soon_costs_nothing() -> None:
    """The two latest tokens have always stood before, and something else follows each time."""
    lookup, costs = Lookup([]), costs_of(_1=1.0, _4=1.4, _8=2.0)
    checked = []
    for turn in range(200):
        checked.append(len(worth_checking(lookup, costs, 99)))
        for token in (1, 2, 10 + turn):
            lookup.append(token)
            checked.append(len(worth_checking(lookup, costs, 99)))
    assert sum(count > 0 for count in checked) <= 3


def test_costs_are_those_of_the_latest_calls_and_a_slow_moment_is_forgotten() -> None:
    costs = Costs((4, 8))
    assert costs.of(4) == costs.of(8) == 1  # nothing is known
    costs.add(1, 1.0)
    costs.add(3, 100.0)  # read by the size of 4
    assert costs.of(8) == 1
    assert costs.of(4) == pytest.approx(3.2)  # less than four calls, so it is tried again
    for _ in range(9):
        costs.add(4, 1.5)
    assert costs.of(4) == 1.5
