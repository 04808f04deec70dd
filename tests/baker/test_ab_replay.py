"""Replaying with a runtime that has no weights: its logits depend on the tokens read alone."""

from __future__ import annotations

from decimal import Decimal, localcontext
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from baker.ab.compare import observe, recorded_steps, spread
from baker.ab.recording import Best, Case, Recording, RecordingError
from baker.ab.replay import greedy, log_softmax, record, teacher_forced
from baker.ab.trial import check_fits, run
from server.runtime.base import read_prompt
from server.runtime.fake import FakeRuntime

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

VOCAB = 40


class Letters:
    """A vocabulary of one token for each letter."""

    def tokenize(self, text: str) -> tuple[int, ...]:
        return (2, *(ord(letter) % VOCAB for letter in text))

    def detokenize(self, token_ids: Sequence[int]) -> str:
        return " ".join(str(token) for token in token_ids)


def fake(chunk: int = 8, context: int = 64) -> FakeRuntime:
    return FakeRuntime(vocab_size=VOCAB, context=context, chunk=chunk)


def recorded(prompt: str, steps: int) -> Case:
    return record(fake(), Letters(), "case", prompt, steps)


def observed(runtime: FakeRuntime, case: Case) -> list[object]:
    logits = teacher_forced(runtime, case, len(case.greedy_ids))
    return [observe(row, best) for row, best in zip(logits, case.best, strict=True)]


def with_token(case: Case, step: int, token: int) -> Case:
    """The case as if the recording had said `token` at one step."""
    ids = (*case.greedy_ids[:step], token, *case.greedy_ids[step + 1 :])
    return Case(**{**vars(case), "greedy_ids": ids})


@settings(deadline=None)
@given(
    st_numpy.arrays(
        np.float32, st.integers(2, 9), elements=st.floats(-90, 90, width=32, allow_nan=False)
    )
)
def test_log_softmax_is_that_of_exact_arithmetic(logits: NDArray[np.float32]) -> None:
    with localcontext(prec=120):
        values = [Decimal(float(value)) for value in logits]
        total = sum((value.exp() for value in values), Decimal(0)).ln()
        exact = [float(value - total) for value in values]
    np.testing.assert_allclose(log_softmax(logits), exact, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_logits_that_are_no_numbers_give_none(value: float) -> None:
    assert np.isnan(log_softmax(np.array([0, value, 1], np.float32))).all()


@settings(deadline=None)
@given(st.text(max_size=20), st.integers(1, 8), st.integers(1, 8))
def test_a_runtime_agrees_with_its_own_recording(prompt: str, steps: int, chunk: int) -> None:
    case = recorded(prompt, steps)
    assert observed(fake(chunk), case) == list(recorded_steps(case))


@settings(deadline=None)
@given(st.integers(0, 5), st.integers(0, VOCAB - 1))
def test_the_own_answer_leaves_the_recorded_one_where_the_first_token_differs(
    step: int, token: int
) -> None:
    own = recorded("a prompt", 6)
    case = with_token(own, step, token)
    (result,) = run(fake(), None, Recording(meta={}, cases=(case,)), 0, lambda _: None)
    prefix = 6 if token == own.greedy_ids[step] else step
    assert own.greedy_ids[:prefix] == case.greedy_ids[:prefix]
    assert result.common_prefix == prefix
    if prefix < 6:
        assert result.divergence is not None
        assert (result.divergence.step, result.divergence.recorded) == (step, token)


def test_teacher_forced_reads_the_recorded_token_whatever_the_runtime_says() -> None:
    case = with_token(recorded("x", 4), 1, 39)
    logits = list(teacher_forced(fake(), case, 4))
    direct = read_prompt(fake(), [*case.prompt_ids, *case.greedy_ids[:3]])
    np.testing.assert_array_equal(logits[3], direct)


def test_a_recording_keeps_the_best_five() -> None:
    case = recorded("best", 3)
    logits = read_prompt(fake(), case.prompt_ids)
    ranked = np.argsort(-logits)[:5]
    assert case.best[0].token_ids == tuple(ranked)
    assert case.greedy_ids[0] == greedy(logits)
    np.testing.assert_allclose(case.best[0].logprobs, log_softmax(logits)[ranked])


def test_a_run_goes_through_all_cases_and_splits_the_blame() -> None:
    cases = (recorded("one", 5), recorded("two", 3))
    said: list[str] = []
    recording = Recording(meta={}, cases=cases)
    results = list(run(fake(), fake(chunk=3), recording, 2, said.append))
    assert [result.equal for result in results] == [5, 3]
    assert [result.exact for result in results] == [True, True]
    for result in results:
        assert result.blame is not None
        assert result.blame.steps == 2
        assert result.blame.model.largest == result.blame.lowering.largest == 0
    assert len(said) == 4


def test_blame_falls_on_the_side_that_differs() -> None:
    case = recorded("one", 5)
    other = FakeRuntime(vocab_size=VOCAB, context=64, spread=2.0)
    recording = Recording(meta={}, cases=(case,))

    (lowering,) = run(other, fake(), recording, 3, lambda _: None)
    assert lowering.blame is not None
    assert lowering.blame.model.largest == 0
    assert lowering.blame.lowering.largest > 0.1

    (model,) = run(fake(), other, recording, 3, lambda _: None)
    assert model.blame is not None
    assert model.spread.largest == 0
    assert model.blame.model.largest > 0.1


def test_a_case_that_does_not_fit_is_refused_by_name() -> None:
    recording = Recording(meta={}, cases=(recorded("0123456789", 6),))
    (case,) = recording.cases
    check_fits(recording, fake(context=case.positions))
    with pytest.raises(RecordingError, match="case takes 16 positions and the bundle has 15"):
        check_fits(recording, fake(context=case.positions - 1))
    strange = Best(token_ids=(case.greedy_ids[0], VOCAB), logprobs=(-1.0, -2.0))
    odd = Case(**{**vars(case), "best": (strange, *case.best[1:])})
    with pytest.raises(RecordingError, match=f"token {VOCAB} and the bundle knows {VOCAB}"):
        check_fits(Recording(meta={}, cases=(odd,)), fake())


def test_spread_of_different_lengths_is_our_bug() -> None:
    steps = recorded_steps(recorded("x", 3))
    with pytest.raises(ValueError, match="shorter"):
        spread(steps, steps[:2])
