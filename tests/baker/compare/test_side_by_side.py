"""Sides without weights reading in step: their logits depend on the tokens read alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from hearthd.baker.compare.measurement.passages import Passage, answer_passage, recorded_passages
from hearthd.baker.compare.measurement.side_by_side import WORST, compare
from hearthd.baker.compare.sides.prediction import FullPrediction, TopPrediction
from hearthd.baker.compare.sides.recording import Best, Case, Recording
from hearthd.baker.compare.sides.side import (
    ALL,
    BundleSide,
    LlamaSide,
    ReaderSide,
    RecordedSide,
    SideDescription,
    SideError,
    greedy_answer,
)
from hearthd.runtime.interface import read_prompt
from tests.fake_runtime import FakeRuntime

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hearthd.baker.compare.measurement.side_by_side import ComparisonResult

VOCAB = 40
ABOUT = SideDescription(side_type="bundle", name="fake", gives=ALL, details={})
tokens = st.lists(st.integers(0, VOCAB - 1), min_size=2, max_size=20).map(tuple)


def fake(*, chunk: int = 8, spread: float = 3.0) -> ReaderSide:
    runtime = FakeRuntime(vocab_size=VOCAB, context=64, chunk=chunk, spread=spread)
    return ReaderSide(runtime, ABOUT, None)


def logits(token_ids: Sequence[int]) -> np.ndarray:
    return read_prompt(FakeRuntime(vocab_size=VOCAB, context=64), token_ids)


@given(tokens, st.data())
def test_a_bundle_reads_several_tokens_at_once_as_one_after_the_other(
    token_ids: tuple[int, ...], data: st.DataObject
) -> None:
    start = data.draw(st.integers(1, len(token_ids) - 1))
    sizes = data.draw(st.sampled_from([(), (2,), (2, 5)]))
    runtime = FakeRuntime(vocab_size=VOCAB, context=64, chunk=8, spread=3.0, verify_tokens=sizes)
    side, alone = BundleSide(runtime, ABOUT, None), fake()
    for _ in range(2):
        read = [prediction.logits for prediction in side.read(token_ids, start)]
        expected = [prediction.logits for prediction in alone.read(token_ids, start)]
        np.testing.assert_array_equal(read, expected)
    after = side.after(token_ids)
    np.testing.assert_array_equal(after.logits, alone.after(token_ids).logits)


def text(token_ids: tuple[int, ...], start: int = 1) -> Passage:
    return Passage(name="text", passage_type="text", token_ids=token_ids, start=start)


def recorded(prompt_ids: tuple[int, ...], steps: int) -> RecordedSide:
    """The fake's own answer, as a recording keeps it."""
    best = []
    for prediction in greedy_answer(fake(), prompt_ids, steps):
        ids = prediction.best(5)
        logprobs = tuple(prediction.logprob(token) or math.nan for token in ids)
        best.append(Best(token_ids=ids, logprobs=logprobs))
    greedy = tuple(row.token_ids[0] for row in best)
    case = Case(
        name="own", prompt="p", prompt_ids=prompt_ids, greedy_ids=greedy, text="t", best=tuple(best)
    )
    about = SideDescription(side_type="recording", name="golden.json", gives="five", details={})
    return RecordedSide(Recording(meta={}, cases=(case,)), about)


def silent() -> None:
    pass


def trial(
    a: ReaderSide | RecordedSide, b: ReaderSide | RecordedSide, *read: Passage
) -> ComparisonResult:
    return compare(a, b, read, silent)


@given(tokens, st.integers(1, 8))
def test_a_side_equals_itself_everywhere(token_ids: tuple[int, ...], chunk: int) -> None:
    result = trial(fake(), fake(chunk=chunk), text(token_ids))
    (reading,) = result.passages
    assert result.worst == ()
    assert [position.kl for position in reading.positions] == [0] * (len(token_ids) - 1)
    assert reading.first_difference is None


@given(tokens, st.data())
def test_a_text_is_read_as_it_is(token_ids: tuple[int, ...], data: st.DataObject) -> None:
    start = data.draw(st.integers(1, len(token_ids) - 1))
    predictions = list(fake().read(token_ids, start))
    assert len(predictions) == len(token_ids) - start
    for place, prediction in enumerate(predictions, start=start):
        np.testing.assert_array_equal(prediction.logits, logits(token_ids[:place]))


def test_a_side_predicts_after_any_tokens_in_any_order() -> None:
    side = fake(chunk=2)
    for asked in ((1, 2, 3), (1, 2, 3, 4), (1, 2, 3, 4), (1, 2), (5,), (5, 6), (1, 2, 3, 4, 5)):
        np.testing.assert_array_equal(side.after(asked).logits, logits(asked))


class InBatches(FakeRuntime):
    """A reader that gives the logits after each token of a text at once, as llama.cpp does."""

    def logits_after_each(self, read: Sequence[int], first: int) -> Iterator[np.ndarray]:
        return (read_prompt(self, read[:end]) for end in range(first, len(read) + 1))


@given(tokens, st.data())
def test_llama_cpp_in_batches_equals_one_token_at_a_time(
    token_ids: tuple[int, ...], data: st.DataObject
) -> None:
    start = data.draw(st.integers(1, len(token_ids) - 1))
    runtime: Any = InBatches(vocab_size=VOCAB, context=64)
    side = LlamaSide(runtime, ABOUT)
    for _ in range(2):
        batches = [one.logits for one in side.read(token_ids, start)]
        steps = [one.logits for one in fake().read(token_ids, start)]
        np.testing.assert_array_equal(batches, steps)
        np.testing.assert_array_equal(side.after(token_ids).logits, logits(token_ids))


def test_each_step_of_an_answer_is_the_top_token() -> None:
    read = [2, 7]
    for prediction in greedy_answer(fake(), (2, 7), 6):
        assert prediction.greedy == int(np.argmax(logits(read)))
        read.append(prediction.greedy)


def test_an_answer_outside_the_vocabulary_is_an_error() -> None:
    class Unknown(ReaderSide):
        @override
        def after(self, *_: object) -> Any:
            return TopPrediction((-1, 3), (-0.5, -1.0))

    side = Unknown(FakeRuntime(vocab_size=VOCAB, context=64), ABOUT, None)
    with pytest.raises(SideError, match="fake: after 2 tokens the text of the top token"):
        next(greedy_answer(side, (1, 2), 3))


@given(st.integers(0, 5), st.integers(0, VOCAB - 1))
def test_the_first_difference_is_where_the_answers_diverge(step: int, token: int) -> None:
    recorded_side = recorded((2, 7), 6)
    (passage,) = recorded_passages(recorded_side.recording)
    best = list(recorded_side.recording.cases[0].best)
    row = best[step]
    best[step] = Best(token_ids=(token, *row.token_ids[1:]), logprobs=row.logprobs)
    case = Case(**{**vars(recorded_side.recording.cases[0]), "best": tuple(best)})
    changed = RecordedSide(Recording(meta={}, cases=(case,)), recorded_side.about)
    (reading,) = trial(changed, fake(), passage).passages
    if token == row.token_ids[0]:
        assert reading.first_difference is None
    else:
        assert reading.first_difference is not None
        assert reading.first_difference.position == passage.start + step


def test_a_recording_agrees_with_its_own_engine() -> None:
    recorded_side = recorded((2, 7), 6)
    (passage,) = recorded_passages(recorded_side.recording)
    for a, b in ((recorded_side, fake()), (fake(), recorded_side), (recorded_side, recorded_side)):
        (reading,) = trial(a, b, passage).passages
        assert all(position.agree for position in reading.positions)
        assert max(position.kl for position in reading.positions) < 1e-9
        assert max(max(position.differences) for position in reading.positions) < 1e-9


def test_a_recording_predicts_nothing_else() -> None:
    with pytest.raises(
        SideError, match=r"golden\.json has no recorded prediction after these 3 tokens"
    ):
        recorded((2, 7), 6).after((1, 2, 3))


def test_the_worst_positions_keep_the_candidates_of_both_sides() -> None:
    ids = tuple(int(token) for token in np.random.default_rng(5).integers(0, VOCAB, 30))
    other = fake(spread=1.0)
    result = trial(fake(), other, text(ids), answer_passage("p", ids[:3], ids[3:9]))
    every = sorted((m.kl for reading in result.passages for m in reading.positions), reverse=True)
    assert [place.kl for place in result.worst] == every[:WORST]
    worst = result.worst[0]
    a = FullPrediction(logits(worst.passage.token_ids[: worst.position])).logprobs
    for token, ours, _ in worst.rows:
        assert ours == pytest.approx(float(a[token]))
    assert {token for token, _, _ in worst.rows} >= set(np.argsort(-a)[:5])


def test_the_first_of_many_differences_is_kept() -> None:
    class Other(ReaderSide):
        @override
        def after(self, token_ids: Sequence[int]) -> FullPrediction:
            return super().after([(token + 1) % VOCAB for token in token_ids])

    other = Other(FakeRuntime(vocab_size=VOCAB, context=64), ABOUT, None)
    (reading,) = trial(fake(), other, text(tuple(range(20)))).passages
    differs = [
        place for place, position in enumerate(reading.positions, start=1) if not position.agree
    ]
    assert len(differs) > 10
    assert reading.first_difference is not None
    assert reading.first_difference.position == differs[0]


def test_an_error_names_the_side_and_position_of_infinite_logits() -> None:
    class Broken(ReaderSide):
        @override
        def after(self, token_ids: Sequence[int]) -> FullPrediction:
            if len(token_ids) == 3:
                return FullPrediction(np.full(VOCAB, np.nan, np.float32))
            return super().after(token_ids)

    broken = Broken(FakeRuntime(vocab_size=VOCAB, context=64), ABOUT, None)
    with pytest.raises(SideError, match="B, fake: after 3 tokens of text: 40 of 40 logits"):
        trial(fake(), broken, text((1, 2, 3, 4, 5)))


def test_progress_advances_at_every_position() -> None:
    said: list[None] = []
    compare(fake(), fake(), [text((1, 2, 3)), text((4, 5))], lambda: said.append(None))
    assert len(said) == 3
