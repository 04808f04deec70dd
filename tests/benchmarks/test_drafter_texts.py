"""The texts of drafters: what is held out, and the time of calls by given costs."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, cast

import pytest

from benchmarks.drafts.drafter_speed import Written, measure, table_of
from benchmarks.drafts.drafter_texts import (
    CountingRuntime,
    GivenCosts,
    Writer,
    prompts,
    score,
    write_answers,
)
from examples.train_tiny_gemma import END, tokenizer
from hearthd.text.tokenizer import Tokenizer
from tests.fake_runtime import FakeRuntime

if TYPE_CHECKING:
    from pathlib import Path

    from hearthd.runtime.interface import Runtime


def writer(folder: Path, max_tokens: int) -> Writer:
    """Answers with a runtime whose drafter is always right at temperature 0."""
    runtime = FakeRuntime(
        vocab_size=END + 1, context=256, chunk=256, verify_tokens=(2, 4), drafter="right"
    )
    path = folder / "tokenizer.json"
    tokenizer().save(str(path))
    return Writer(
        cast("Runtime", runtime), Tokenizer.from_file(path, bos=None), None, (), max_tokens
    )


@pytest.mark.parametrize("asked", [False, True])
def test_held_out_prompts_have_other_topics(asked: bool) -> None:
    learned = prompts(held_out=False, asked=asked)
    held_out = prompts(held_out=True, asked=asked)
    assert (
        {kind for kind, _ in learned} == {kind for kind, _ in held_out} == {"chat", "code", "JSON"}
    )
    assert not {text for _, text in learned} & {text for _, text in held_out}
    assert len({text for _, text in held_out}) == len(held_out) == 24


def test_time_is_that_of_calls_by_given_costs() -> None:
    fake = FakeRuntime(
        vocab_size=9, context=64, chunk=64, verify_tokens=(2, 4), drafter="right", slots=1
    )
    runtime = CountingRuntime(cast("Runtime", fake), GivenCosts({2: 1.2, 4: 1.5}, 0.1))
    runtime.prefill(0, [1, 2], 0)
    runtime.decode([0], [3], [2])
    list(islice(runtime.draft(0, 4, 3), 2))
    list(runtime.verify(0, [4, 5, 6], 3))
    assert runtime.decodes == pytest.approx(1 + 2 * 0.1 + 1.5)
    assert runtime.steps == 2


def test_a_drafter_that_is_right_saves_steps(tmp_path: Path) -> None:
    """9 tokens: a decode, since the drafter has no state before it, and two verifications of 4."""
    table = score(writer(tmp_path, 9), {2: 1.2, 4: 1.5}, 0.1)
    rows = {row[:2]: row[2:] for row in table.rows}
    assert len(rows) == 8
    by_lookup, _, by_drafter, speed, tokens = rows["code", "0"]
    assert float(by_lookup) < 1.2
    assert by_drafter == "3.00"
    assert tokens == "72"
    assert 1.5 < float(speed) <= 9 / (1 + 2 * (1.5 + 3 * 0.1))


def test_speeds_are_those_of_tokens_after_the_first(tmp_path: Path) -> None:
    written = measure(writer(tmp_path, 9), rounds=1)
    assert {total.tokens for total in written.values()} == {8 * 8}
    assert all(total.seconds > 0 for total in written.values())
    modes = zip(("off", "lookup", "auto"), (1.0, 0.5, 0.25), strict=True)
    rows = table_of({("code", at, mode): Written(8, s) for mode, s in modes for at in (0.0, 0.8)})
    assert rows.rows[0] == ("code", "0", "8.0", "16.0 (x 2.00)", "32.0 (x 4.00)")
    assert rows.rows[1] == ("geometric mean", "0", "", "x 2.00", "x 4.00")


def test_costs_that_the_bundle_has_no_calls_for_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"has the sizes \(2, 4\)"):
        score(writer(tmp_path, 9), {4: 1.5}, 0.1)


def test_given_costs_are_not_measured() -> None:
    costs = GivenCosts({2: 1.2, 4: 1.5}, 0.1)
    costs.add(1, 5.0)
    costs.add_draft(7.0)
    assert [costs.to_verify(drafted) for drafted in (1, 2, 3)] == [1.2, 1.5, 1.5]
    assert costs.of_draft == costs.in_calls(9.0) == 0.1


def test_answers_are_examples_for_a_run(tmp_path: Path) -> None:
    write_answers(writer(tmp_path, 3), tmp_path / "answers.jsonl", at_once=1)
    lines = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert len(lines) == 2 * len(prompts(held_out=False, asked=False))
    assert {tuple(line) for line in lines} == {("prompt", "completion")}
