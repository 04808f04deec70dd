"""Sources of drafts compete: what a step verifies, and which sources it asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typing_extensions import override

from hearthd.server.engine.drafting.drafts import Acceptance, Costs, Drafts, DraftSource

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SIZES = (2, 4, 8)
COLD_CALLS = 16  # until the time of cold calls is forgotten for the first time
ANSWER = 7  # the token that every answer repeats


class Fixed(Costs):
    """Costs that do not depend on the clock: a verify adds a tenth per token."""

    def __init__(self, of_draft: float) -> None:
        super().__init__(SIZES)
        self.add(1, 1.0)
        self._of_draft = of_draft

    @override
    def of(self, size: int) -> float:
        return 1 + 0.1 * (size - 1)

    @property
    @override
    def of_draft(self) -> float:
        return self._of_draft

    @override
    def in_calls(self, seconds: float) -> float:
        return self._of_draft


class Fake(DraftSource):
    """Drafts a token again and again, with a probability; counts how often it is asked."""

    def __init__(self, token: int, probability: float, *, free: bool = False) -> None:
        self._token, self._probability, self._free = token, probability, free
        self.asked = self.drafted = 0

    @property
    @override
    def is_free(self) -> bool:
        return self._free

    @override
    def draft(self, max_tokens: int) -> Iterator[tuple[int, float]]:
        self.asked += 1
        for _ in range(max_tokens):
            self.drafted += 1
            yield self._token, self._probability


def answered(drafts: Drafts, costs: Costs, tokens: list[int], steps: int) -> int:
    """The length of an answer after some steps, when each step samples ANSWER."""
    for _ in range(steps):
        draft = drafts.best(99, costs)
        tokens += [ANSWER] * (1 + (len(draft) if set(draft) <= {ANSWER} else 0))
    return len(tokens)


@pytest.mark.parametrize(("probability", "length"), [(0.02, 0), (0.3, 1), (0.95, 7)])
def test_the_draft_is_as_long_as_its_tokens_are_likely(probability: float, length: int) -> None:
    assert len(Drafts([], [Fake(ANSWER, probability)]).best(99, Fixed(0.01))) == length


def test_a_draft_is_no_longer_than_the_answer_may_be() -> None:
    for most in (0, 1, 2, 5):
        source = Fake(ANSWER, 0.99)
        assert len(Drafts([], [source]).best(most, Fixed(0.01))) == most
        assert source.drafted <= most


def test_a_source_that_takes_time_stops_after_an_unlikely_token() -> None:
    costly, free = Fake(ANSWER, 0.1), Fake(ANSWER, 0.1, free=True)
    Drafts([], [costly]).best(99, Fixed(0.05))
    Drafts([], [free]).best(99, Fixed(0.05))
    assert (costly.drafted, free.drafted) == (1, 7)


def test_the_better_draft_is_verified() -> None:
    sure, unsure = Fake(1, 0.9, free=True), Fake(2, 0.5, free=True)
    for sources in ([sure, unsure], [unsure, sure]):
        assert set(Drafts([], sources).best(99, Fixed(0.0))) == {1}


def test_a_source_that_takes_time_is_not_asked_beside_a_sure_draft() -> None:
    free, costly = Fake(ANSWER, 0.99, free=True), Fake(ANSWER, 0.99)
    tokens: list[int] = []
    answered(Drafts(tokens, [costly, free]), Fixed(0.05), tokens, 10)
    assert (free.asked, costly.asked) == (10, 0)


def test_a_slow_source_is_switched_off_however_well_it_drafts() -> None:
    slow = Fake(ANSWER, 0.99)
    tokens: list[int] = []
    assert answered(Drafts(tokens, [slow]), Fixed(2.0), tokens, 100) == 100
    assert slow.asked == 0


def test_a_source_whose_drafts_are_rejected_is_asked_less_and_less() -> None:
    """It is tried again, at a cost of less than a hundredth of the time."""
    wrong, costs = Fake(3, 0.6), Fixed(0.05)
    tokens: list[int] = []
    drafts = Drafts(tokens, [wrong])
    time = 0.0
    for _ in range(1000):
        before = wrong.drafted
        draft = drafts.best(99, costs)
        time += (costs.to_verify(len(draft)) if draft else 1) + 0.05 * (wrong.drafted - before)
        tokens.append(ANSWER)
    assert 1 < wrong.asked < 30
    assert time < 1010


def test_a_good_source_stays_after_a_rejected_draft() -> None:
    source, tokens = Fake(ANSWER, 0.7), list[int]()
    drafts, costs = Drafts(tokens, [source]), Fixed(0.15)
    assert drafts.best(99, costs)
    tokens.append(3)
    for _ in range(5):
        tokens += [ANSWER] * (1 + len(drafts.best(99, costs)))
    assert source.asked == 6


def test_a_source_that_begins_to_be_right_is_used_again() -> None:
    source, tokens = Fake(3, 0.9), list[int]()
    drafts, costs = Drafts(tokens, [source]), Fixed(0.05)
    answered(drafts, costs, tokens, 100)
    source._token = ANSWER
    before = source.asked
    answered(drafts, costs, tokens, 200)
    assert source.asked - before > 100


class Behind(Fixed):
    """The first token of a draft takes three calls for one token, as a draft model's may."""

    @override
    def in_calls(self, seconds: float) -> float:
        return 3.0


def test_the_time_that_a_draft_takes_counts() -> None:
    source, tokens = Fake(ANSWER, 0.9), list[int]()
    answered(Drafts(tokens, [source]), Behind(0.05), tokens, 600)
    assert 1 < source.asked < 20


class Measured(Fixed):
    """Counts the drafted tokens whose time is measured."""

    measured = 0

    @override
    def add_draft(self, seconds: float, *, is_cold: bool = False) -> None:
        self.measured += 1


def test_the_first_token_of_a_draft_is_not_a_measure_of_the_others() -> None:
    """It may take long, and a source that seems slow would not be asked again."""
    source, costs = Fake(ANSWER, 0.99), Measured(0.01)
    Drafts([], [source]).best(99, costs)
    assert (source.drafted, costs.measured) == (7, 6)


class Empty(Fake):
    """Has nothing to draft, like the drafter of a bundle after a prefill or a restore."""

    @override
    def draft(self, max_tokens: int) -> Iterator[tuple[int, float]]:
        self.asked += 1
        return iter(())


def test_a_source_that_has_nothing_to_draft_is_not_judged_by_it() -> None:
    """It counts neither as fast nor as a source that saved nothing."""
    costs = Costs(SIZES)
    for tokens, seconds in ((1, 1.0), (2, 1.1), (4, 1.3), (8, 1.7)):
        costs.add(tokens, seconds)
    for _ in range(9):
        costs.add_draft(0.5)
    empty, free = Empty(ANSWER, 1.0), Fake(ANSWER, 0.17, free=True)
    drafts = Drafts([], [empty, free])
    for _ in range(20):
        assert drafts.best(99, costs) == (ANSWER,)
    assert empty.asked == 20
    assert costs.of_draft == 0.5


def test_acceptance_begins_with_the_prior_and_follows_the_latest_drafts() -> None:
    acceptance = Acceptance({0: 0.5, 1: 0.9})
    assert (acceptance.rate(0), acceptance.rate(1)) == (0.5, 0.9)
    for _ in range(100):
        acceptance.observe(0, accepted=False)
    assert acceptance.rate(0) < 0.05
    for _ in range(100):
        acceptance.observe(0, accepted=True)
    assert acceptance.rate(0) > 0.9
    assert acceptance.rate(1) == 0.9


def test_the_cost_of_a_draft_is_that_of_the_latest_ones() -> None:
    costs = Costs(SIZES)
    assert costs.of_draft == 0  # nothing has been measured
    costs.add(1, 2.0)
    for seconds in (5.0, *[0.5] * 9):
        costs.add_draft(seconds)
    assert costs.of_draft == 0.25


@pytest.mark.parametrize("free", [True, False])
def test_nothing_is_drafted_before_the_time_of_one_token_is_known(free: bool) -> None:
    """Otherwise every verify seems as fast as a decode, and no answer measures a decode."""
    costs, source = Costs(SIZES), Fake(ANSWER, 0.9, free=free)
    drafts = Drafts([], [source])
    assert (drafts.best(99, costs), source.drafted) == ((), 0)
    costs.add(1, 1.0)
    assert len(drafts.best(99, costs)) == 7


def test_drafts_of_two_sequences_take_the_time_of_both() -> None:
    costs = Costs((2,), sequences=2)
    costs.add(1, 2.0)
    costs.add_draft(0.5)
    assert costs.of_draft == costs.in_calls(0.5) == 0.5


def tokens_verified(costs: Costs, seconds: Mapping[int, float], steps: int) -> set[int]:
    """The numbers of tokens of calls that take this long, with drafts that are all accepted."""
    tokens, sizes = list[int](), set[int]()
    drafts = Drafts(tokens, [Fake(ANSWER, 0.95, free=True)])
    for _ in range(steps):
        count = 1 + len(drafts.best(99, costs))
        costs.add(count, seconds[count])
        tokens += [ANSWER] * count
        sizes.add(count)
    return sizes


def test_the_costs_follow_a_sequence_whose_tokens_share_fewer_experts() -> None:
    costs = Costs(SIZES)
    costs.add(1, 1.0)
    alike = {1: 1.0, 2: 1.2, 4: 1.4, 8: 2.0}
    tokens_verified(costs, alike, 30)
    assert tokens_verified(costs, alike, 30) == {8}
    # Verifying 8 tokens now takes longer than 8 decodes, and 2 tokens yield more than 4.
    dear = {1: 1.0, 2: 1.2, 4: 3.0, 8: 9.0}
    tokens_verified(costs, dear, 30)
    assert tokens_verified(costs, dear, 30) == {2}


def test_a_size_that_did_not_pay_is_measured_again() -> None:
    """A call was slow, or the tokens of the sequence shared few experts."""
    costs = Costs(SIZES)
    slow = {1: 1.0, 2: 1.2, 4: 3.0, 8: 9.0}
    costs.add(1, 1.0)
    tokens_verified(costs, slow, 60)
    cheap = {1: 1.0, 2: 1.2, 4: 1.4, 8: 1.8}
    assert tokens_verified(costs, cheap, 900) == {2}
    assert tokens_verified(costs, cheap, 200) == {2, 8}
    assert tokens_verified(costs, cheap, 9) == {8}


def test_calls_that_waited_for_the_disk_count_until_one_has_not() -> None:
    costs = Costs(SIZES)
    for seconds, is_cold in ((9.0, True), (1.0, False), (9.0, True)):
        costs.add(1, seconds, is_cold=is_cold)
    costs.add(2, 1.5, is_cold=True)
    costs.add_draft(0.5, is_cold=True)
    assert (costs.of(2), costs.of_draft) == (1.5, 0.5)
    for _ in range(COLD_CALLS):
        costs.add(1, 1.0)
    assert (costs.of(2), costs.of_draft) == (1.0, 0)  # measured again
    costs.add(2, 1.4, is_cold=True)
    costs.add_draft(0.4, is_cold=True)
    for _ in range(COLD_CALLS):
        costs.add(1, 1.0)
    assert (costs.of(2), costs.of_draft) == (1.4, 0.4)
    costs.add(2, 1.2)
    costs.add_draft(0.2)
    for _ in range(2 * COLD_CALLS):
        costs.add(1, 1.0)
    assert (costs.of(2), costs.of_draft) == (1.2, 0.2)


@pytest.mark.parametrize("reads", [True, False])
def test_a_model_larger_than_memory_rarely_measures_what_does_not_pay(reads: bool) -> None:
    costs, tokens, tries = Costs(SIZES), list[int](), 0
    drafts = Drafts(tokens, [Fake(ANSWER, 0.6, free=True)])
    costs.add(1, 1.0, is_cold=reads)
    for _ in range(3000):
        count = 1 + len(drafts.best(99, costs))
        costs.add(count, float(count), is_cold=reads)
        tokens += [ANSWER]
        tries += count > 1
    assert tries <= (40 if reads else 12)


def test_a_size_that_never_pays_takes_little_time() -> None:
    costs = Costs(SIZES)
    costs.add(1, 1.0)
    seconds = {1: 1.0, 2: 2.0, 4: 3.9, 8: 7.8}
    tokens, time = list[int](), 0.0
    drafts = Drafts(tokens, [Fake(ANSWER + 1, 0.6, free=True)])
    for _ in range(10_000):
        count = 1 + len(drafts.best(99, costs))
        costs.add(count, seconds[count])
        time += seconds[count]
        tokens.append(ANSWER)
    assert time < 10_000 * 1.02


def test_a_size_that_was_not_measured_costs_what_the_next_smaller_one_does() -> None:
    costs = Costs(SIZES)
    costs.add(2, 3.0)
    assert costs.of(8) == 1.0
    costs.add(1, 2.0)
    assert [costs.of(size) for size in SIZES] == [1.5, 1.5, 1.5]
    costs.add(4, 5.0)
    assert [costs.of(size) for size in SIZES] == [1.5, 2.5, 2.5]
