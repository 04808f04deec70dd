"""Prompt lookup: the draft, how many of its tokens are expected, and when verifying them pays."""

from __future__ import annotations

import itertools
import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthd.runtime.interface import NO_TOKEN
from hearthd.server.engine.drafting.drafts import Costs, Drafts
from hearthd.server.engine.drafting.prompt_lookup import PromptLookup

tokens_of_few = st.lists(st.integers(0, 3), max_size=40)


def costs_of(**seconds: float) -> Costs:
    """Costs by size: costs_of(_1=1.0, _4=1.5)."""
    by_size = {int(name.removeprefix("_")): value for name, value in seconds.items()}
    costs = Costs(tuple(size for size in by_size if size > 1))
    for size, value in by_size.items():
        costs.add(size, value)
    return costs


def lookup_after(prompt: list[int], answer: list[int]) -> PromptLookup:
    tokens = list(prompt)
    lookup = PromptLookup(tokens)
    tokens += answer
    return lookup


def draft_of(lookup: PromptLookup, max_tokens: int) -> tuple[int, ...]:
    """The tokens of a draft."""
    return tuple(token for token, _ in lookup.draft(max_tokens))


def expected(lookup: PromptLookup, drafted: int) -> float:
    """How many drafted tokens will be accepted; those after a rejected one are not."""
    probabilities = [probability for _, probability in lookup.draft(drafted)]
    return float(sum(itertools.accumulate(probabilities, operator.mul)))


def best_draft(tokens: list[int], answer: list[int], costs: Costs, max_tokens: int) -> int:
    """The length of the best draft by prompt lookup after an answer."""
    text = list(tokens)
    drafts = Drafts(text, [PromptLookup(text)])
    text += answer
    return len(drafts.best(max_tokens, costs))


@given(tokens_of_few, tokens_of_few, st.integers(1, 9))
def test_a_draft_is_what_followed_the_two_latest_tokens_before(
    prompt: list[int], answer: list[int], max_tokens: int
) -> None:
    text = prompt + answer
    draft = draft_of(lookup_after(prompt, answer), max_tokens)
    places = [at for at in range(2, len(text)) if text[at - 2 : at] == text[-2:]]
    assert len(draft) == (max_tokens if places else 0)
    continuations = []
    for place in places:
        longer = list(text)
        for at in range(place, place + max_tokens):
            longer.append(longer[at])
        continuations.append(tuple(longer[len(text) :]))
    assert not draft or draft in continuations


@given(tokens_of_few, tokens_of_few)
def test_the_time_of_indexing_new_tokens_has_no_effect(
    prompt: list[int], answer: list[int]
) -> None:
    tokens = list(prompt)
    lookup = PromptLookup(tokens)
    for token in answer:
        tokens.append(token)
        draft_of(lookup, 4)
    at_once = lookup_after(prompt, answer)
    assert list(lookup.draft(5)) == list(at_once.draft(5))


@given(tokens_of_few, tokens_of_few, st.integers(1, 9))
def test_a_longer_draft_promises_more_and_at_most_its_length(
    prompt: list[int], answer: list[int], max_tokens: int
) -> None:
    lookup = lookup_after(prompt, answer)
    promised = [expected(lookup, count) for count in range(max_tokens + 1)]
    assert promised == sorted(promised)
    assert promised[0] == 0
    assert all(promised[count] <= count for count in range(max_tokens + 1))


def test_a_draft_stays_with_its_place_while_it_is_accepted() -> None:
    tokens = [1, 2, 3, 4, 9, 2, 3, 7, 7]
    lookup = PromptLookup(tokens)
    tokens += [1, 2]
    assert draft_of(lookup, 3) == (3, 4, 9)
    tokens.append(3)
    assert draft_of(lookup, 3) == (4, 9, 2)  # although 7 followed the latest 2, 3
    tokens.append(5)
    assert draft_of(lookup, 3) == ()


def test_a_repetition_continues_into_the_draft() -> None:
    assert draft_of(lookup_after([], [8, 1, 2, 1, 2]), 5) == (1, 2, 1, 2, 1)
    assert draft_of(lookup_after([6], [6, 6]), 4) == (6, 6, 6, 6)


def test_nothing_is_drafted_without_a_match() -> None:
    for tokens in ([], [1], [1, 2, 3]):
        assert draft_of(PromptLookup(tokens), 4) == ()


def test_accepted_predictions_raise_what_is_expected_and_others_lower_it() -> None:
    prompt = [*range(100), 0, 1]
    right = lookup_after(prompt, list(range(2, 60)))
    assert expected(right, 7) > 6
    # Two tokens that occurred there, then one that did not follow.
    answer = [said for token in range(0, 60, 2) for said in (token, token + 1, 0)]
    wrong = lookup_after(list(range(100)), [*answer, 70, 71])
    assert 0 < expected(wrong, 7) < 0.1


def test_late_predictions_weigh_more_than_early_ones() -> None:
    """The same predictions: half are accepted in one part and none in the other."""
    prompt = list(range(1000))
    accepted = [first + i for first in range(0, 400, 10) for i in range(3)]
    rejected = [first + i for first in range(500, 900, 10) for i in range(2)]
    late = expected(lookup_after(prompt, [*rejected, *accepted, 990, 991]), 1)
    early = expected(lookup_after(prompt, [*accepted, *rejected, 990, 991]), 1)
    # Weights fall by 0.95 with each observation: after 80 (and 40), 2 % (13 %) of them are left.
    assert late == pytest.approx(0.5, abs=0.06)
    assert early == pytest.approx(0.1, abs=0.06)


def test_the_prompt_does_not_count_as_predictions() -> None:
    repeated = [1, 2, 3, 4] * 10
    answered = lookup_after(repeated[:8], repeated[8:])
    assert expected(PromptLookup(repeated), 1) < expected(answered, 1)


@pytest.mark.parametrize(
    ("seconds", "drafted"),
    [
        ({"_1": 1.0, "_4": 1.3, "_8": 1.8}, 7),
        ({"_1": 1.0, "_4": 1.3, "_8": 4.0}, 3),
        ({"_1": 1.0, "_2": 1.1, "_4": 3.0}, 1),
        ({"_1": 1.0}, 0),
    ],
)
def test_the_best_draft_of_a_repetition_has_the_fastest_size(
    seconds: dict[str, float], drafted: int
) -> None:
    costs = costs_of(**seconds)
    assert best_draft(list(range(50)), list(range(30)), costs, 99) == drafted


def test_a_draft_is_no_longer_than_the_answer_may_be() -> None:
    costs = costs_of(_1=1, _4=1.1, _8=1.2)
    lengths = [
        best_draft(list(range(50)), list(range(30)), costs, max_tokens)
        for max_tokens in (0, 1, 2, 5, 7, 8)
    ]
    assert lengths == [0, 1, 2, 5, 7, 7]


def test_a_text_that_does_not_repeat_itself_soon_costs_nothing() -> None:
    """The two latest tokens have always occurred, and another token follows each time."""
    tokens: list[int] = []
    drafts, costs = Drafts(tokens, [PromptLookup(tokens)]), costs_of(_1=1.0, _4=1.4, _8=2.0)
    drafted = []
    for turn in range(200):
        drafted.append(len(drafts.best(99, costs)))
        for token in (1, 2, 10 + turn):
            tokens.append(token)
            drafted.append(len(drafts.best(99, costs)))
    assert sum(count > 0 for count in drafted) <= 3


def test_costs_are_those_of_the_latest_calls_and_outliers_are_bounded() -> None:
    costs = Costs((4, 8))
    assert costs.of(4) == costs.of(8) == 1  # nothing has been measured
    costs.add(1, 1.0)
    costs.add(3, 100.0)  # a call of size 4
    assert costs.of(8) == costs.of(4)  # the next smaller size that was measured
    assert costs.of(4) == pytest.approx(3.2)  # less than four calls, so it is tried again
    for _ in range(9):
        costs.add(4, 1.5)
    assert costs.of(4) == 1.5


def test_positions_without_a_token_match_nothing() -> None:
    """Of equal tokens around an image, those before it are not followed by those after it."""
    image = [NO_TOKEN] * 3
    assert draft_of(lookup_after([1, 2, *image, 5, 6, *image], [7, 1, 2]), 4) == ()
    assert draft_of(lookup_after([1, 2, 8, *image, 5], [1, 2]), 4) == (8,)
    assert draft_of(lookup_after([*image, 5, 6, *image], [5]), 4) == ()
    prompt = [1, 2, *image, 3, 4, 9, 1, 2, *image, 3]
    assert draft_of(lookup_after(prompt, []), 2) == ()
    assert draft_of(lookup_after(prompt, [4]), 2) == (9, 1)
