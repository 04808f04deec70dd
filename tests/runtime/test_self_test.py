"""The self-test: golden logits pass, and every wrong logit fails."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typing_extensions import override

from hearthd.bundle import GoldenImage, GoldenRow, GoldenState
from hearthd.runtime.checks.row_difference import ROW_TOLERANCE
from hearthd.runtime.checks.self_test import (
    MARGIN,
    STATE_TOLERANCE,
    GoldenValues,
    Level,
    Verdict,
    largest_logit_difference,
    self_test_language,
)
from hearthd.runtime.interface import LOGIT_MARGIN
from hearthd.runtime.media.pixels import golden_pixels
from tests.fake_runtime import FakeRuntime
from tests.server import fakes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearthd.bundle import Golden
    from hearthd.runtime.interface import Reader, Runtime

RUNTIME = FakeRuntime(vocab_size=40, context=64, chunk=8)
CASE = fakes.golden_of(RUNTIME, prompt=(2, 5, 6, 7, 8), steps=4)[0]


def self_test(
    runtime: Runtime, prompts: tuple[Golden, ...], *, level: Level = "full", **others: Any
) -> Verdict:
    return self_test_language(runtime, GoldenValues(prompts=prompts, **others), level=level)


def test_golden_logits_pass_with_any_chunk_size() -> None:
    for chunk in (1, 2, 8):
        runtime = replace(RUNTIME, chunk=chunk)
        verdict = self_test(runtime, (CASE,), tolerance=0.0)
        assert verdict.passed
        assert verdict.steps == 4 + 1  # and the embedding's caches
        assert verdict.largest_difference == 0
        assert verdict.message.startswith("the self-test passed")


@pytest.mark.parametrize("step", [0, 2, 3])
def test_one_wrong_logit_fails_and_is_named(step: int) -> None:
    logits = list(CASE.steps[step].logits)
    logits[3] += 0.5
    steps = list(CASE.steps)
    steps[step] = replace(steps[step], logits=tuple(logits))
    wrong = replace(CASE, steps=tuple(steps))
    verdict = self_test(RUNTIME, (CASE, wrong), tolerance=0.25)
    assert not verdict.passed
    assert verdict.where == f"golden prompt 1, step {step} (fake)"
    assert verdict.largest_difference == pytest.approx(0.5)
    assert "differs by 0.5 at golden prompt 1" in verdict.message
    assert verdict.message.endswith("; bake the bundle on this machine, or report it")
    assert self_test(RUNTIME, (wrong,), tolerance=0.51).passed


@pytest.mark.parametrize(
    ("change", "level", "passes"), [(0.0, "full", True), (1.0, "full", False), (1.0, "quick", True)]
)
def test_a_full_test_compares_the_golden_image(change: float, level: Level, passes: bool) -> None:
    *_, rows = RUNTIME.read_media(golden_pixels(16))
    assert rows is not None
    values = rows[0] + np.float32(change)
    image = GoldenImage(side=16, values=tuple(values.tolist()))
    verdict = self_test(RUNTIME, (CASE,), tolerance=0.0, image=image, level=level)
    assert verdict.passed == passes
    assert passes or "at golden image (3 rows), expected at most 0.02" in verdict.message


@pytest.mark.parametrize(("below", "passes"), [(0.3, False), (1.0, True)])
def test_logits_that_may_be_approximate_are_not_compared(below: float, passes: bool) -> None:
    """Those that are more than MARGIN below the largest of their step."""

    @dataclass(kw_only=True)
    class Wrong(FakeRuntime):
        @override
        def decode(self, slots: Any, tokens: Any, positions: Any, margins: Any = ()) -> Any:
            logits = super().decode(slots, tokens, positions, margins)
            largest = logits.max(axis=1, keepdims=True)
            logits[logits < largest - below * MARGIN] += 0.5
            return logits

    runtime = Wrong(vocab_size=40, context=64, spread=15.0)
    case = fakes.golden_of(runtime, prompt=(2, 5, 6, 7, 8), steps=4)[0]
    distances = [max(step.logits) - logit for step in case.steps for logit in step.logits]
    assert any(0.3 * MARGIN < distance < MARGIN for distance in distances)
    assert max(distances) > MARGIN
    assert self_test(runtime, (case,), tolerance=0.1).passed is passes


def test_every_logit_that_is_compared_is_exact() -> None:
    assert MARGIN < LOGIT_MARGIN


def test_logits_that_are_not_numbers_fail() -> None:
    verdict = self_test(replace(RUNTIME, spread=math.nan), (CASE,), tolerance=1e9)
    assert not verdict.passed
    assert verdict.largest_difference == math.inf


def test_a_bundle_without_golden_values_fails() -> None:
    verdict = self_test(RUNTIME, (), tolerance=1.0)
    assert not verdict.passed
    assert "no golden values" in verdict.message


@pytest.mark.parametrize("poison", [7, CASE.steps[1].token_ids[0]])
def test_a_model_that_cannot_be_run_fails(poison: int, caplog: pytest.LogCaptureFixture) -> None:
    verdict = self_test(replace(RUNTIME, poison=poison), (CASE,), tolerance=1.0)
    assert not verdict.passed
    assert verdict.message == (
        f"the self-test failed: the model cannot be run: RuntimeError: token {poison} is poison"
    )
    assert f"token {poison} is poison" in caplog.text


def test_every_variant_and_every_row_of_a_batch_is_tested() -> None:
    """A runtime that is wrong in one row of a batch, in one of its variants."""

    @dataclass(kw_only=True)
    class Wrong(FakeRuntime):
        @override
        def decode(self, slots: Any, tokens: Any, positions: Any, margins: Any = ()) -> Any:
            logits = super().decode(slots, tokens, positions, margins)
            if len(slots) == 3:
                logits[1] += 1
            return logits

    @dataclass(kw_only=True)
    class TwoVariants(FakeRuntime):
        @override
        def variants(self) -> Mapping[str, Reader]:
            return {"one": self, "three": wrong}

    fields = {"vocab_size": 40, "context": 64, "chunk": 8}
    wrong = Wrong(slots=3, batch=3, **fields)  # type: ignore[arg-type]
    runtime = TwoVariants(**fields)  # type: ignore[arg-type]
    verdict = self_test(runtime, (CASE,), tolerance=0.5)
    assert not verdict.passed
    assert verdict.where.endswith("(three)")
    assert self_test(runtime, (CASE,), tolerance=0.5, level="quick").passed


def test_a_batch_has_different_prompts() -> None:
    """A row of a batch that reads the row before it passes, if both have the same prompt."""
    read: list[list[int]] = []

    @dataclass(kw_only=True)
    class Mixing(FakeRuntime):
        @override
        def decode(self, slots: Any, tokens: Any, positions: Any, margins: Any = ()) -> Any:
            read.append([*tokens])
            logits = super().decode(slots, tokens, positions, margins)
            return np.roll(logits, 1, axis=0)

    runtime = Mixing(vocab_size=40, context=64, chunk=8, slots=5, batch=5)
    other = fakes.golden_of(RUNTIME, prompt=(2, 9, 8), steps=4)[0]
    assert self_test(runtime, (CASE,), tolerance=0.0).passed
    read.clear()
    verdict = self_test(runtime, (CASE, other), tolerance=0.0)
    assert not verdict.passed
    assert "(fake)" in verdict.where
    first, second = (case.steps[0].token_ids[0] for case in (CASE, other))
    assert [first, second, first, second, first] in read
    assert self_test(replace(RUNTIME, slots=5, batch=5), (CASE, other), tolerance=0.0).passed


def test_quick_tests_the_first_prompt_only() -> None:
    poisoned = replace(CASE, prompt_ids=(2, 9))
    verdict = self_test(replace(RUNTIME, poison=9), (CASE, poisoned), tolerance=0, level="quick")
    assert (verdict.passed, verdict.steps, verdict.level) == (True, 4, "quick")


def test_off_tests_nothing() -> None:
    poisoned = replace(CASE, prompt_ids=(2, 9))
    verdict = self_test(replace(RUNTIME, poison=9), (poisoned,), tolerance=0, level="off")
    assert (verdict.passed, verdict.steps) == (True, 0)
    assert verdict.message == "the self-test is off"


# Two heads of two values, after three other bytes of a position.
ROW = GoldenRow(prompt=0, offset=3, integers=(127, -4, 10, -127), scales=(0.5, 2.0))
# Two keys and two values, the largest of each 127 steps long.
FLOAT_ROW = GoldenRow(
    prompt=0,
    offset=3,
    integers=(32767, 0, 0, -32767),
    scales=(127 / 32767, 254 / 32767),
    dtype="f16",
)


def self_test_of_row(row: GoldenRow, saved: bytes, level: Level = "full") -> Verdict:
    """The verdict on a runtime that has these bytes where a golden row begins."""

    @dataclass(kw_only=True)
    class Caching(FakeRuntime):
        @override
        def save(self, slot: int, start: int, stop: int) -> Any:
            assert (slot, start, stop) == (0, len(CASE.prompt_ids) - 1, len(CASE.prompt_ids))
            return np.frombuffer(b"abc" + saved + b"d", np.uint8)

    runtime = Caching(vocab_size=40, context=64, chunk=8)
    return self_test(runtime, (CASE,), tolerance=1.0, rows=(row,), level=level)


def int8_row(integers: list[int], scales: list[float]) -> bytes:
    return np.array(integers, "i1").tobytes() + np.array(scales, "f4").tobytes()


def test_a_cached_row_passes_with_a_small_difference() -> None:
    verdict = self_test_of_row(ROW, int8_row([*ROW.integers], [0.5, 2.001]))
    assert verdict.passed
    assert verdict.steps == 4 + 1 + 2  # the row after the prompt, and after the embedding
    assert verdict.largest_difference == pytest.approx(0.0005 * (10 + 127) / 2, rel=1e-3)
    assert verdict.tolerance == ROW_TOLERANCE["i8"]


def test_a_cached_row_can_have_a_tolerance_of_its_own() -> None:
    saved = int8_row([127, -3, 10, -127], [0.5, 2.0])  # half a step
    assert self_test_of_row(replace(ROW, tolerance=0.6), saved).passed
    assert not self_test_of_row(replace(ROW, tolerance=0.4), saved).passed


@pytest.mark.parametrize("level", ["quick", "full"])
@pytest.mark.parametrize(
    ("integers", "scales"),
    [
        ([127, -3, 10, -127], [0.5, 2.0]),
        ([127, -4, 10, -126], [0.5, 2.0]),
        ([127, -4, 10, -127], [0.5, 2.01]),
        ([127, -4, 10, -127], [0.5, math.nan]),
        ([10, -127, 127, -4], [2.0, 0.5]),
    ],
)
def test_a_wrong_cached_row_fails(integers: list[int], scales: list[float], level: Level) -> None:
    verdict = self_test_of_row(ROW, int8_row(integers, scales), level)
    assert not verdict.passed
    assert verdict.where.startswith("golden prompt 0, cached row")
    assert f"expected at most {ROW_TOLERANCE['i8']}" in verdict.message


@pytest.mark.parametrize("level", ["quick", "full"])
@pytest.mark.parametrize(
    ("values", "passes"),
    [
        ([127, 0, 0, -254], True),
        ([127, 0.15, 0, -254], True),
        ([127, 0, 0.35, -254], True),
        ([127, 0.25, 0, -254], False),
        ([127, 0, 0, -253.5], False),
        ([127, 0, 0, math.nan], False),
        ([0, -254, 127, 0], False),
    ],
)
def test_a_cached_row_of_floats_passes_with_a_small_difference(
    values: list[float], passes: bool, level: Level
) -> None:
    verdict = self_test_of_row(FLOAT_ROW, np.array(values, "f2").tobytes(), level)
    assert verdict.passed == passes
    assert passes or verdict.where.startswith("golden prompt 0, cached row")


STATE = GoldenState(prompt=0, offset=4, values=(0.5, -2.0, 0.0))


def self_test_of_state(values: list[float], level: Level = "full") -> Verdict:
    """The verdict on a runtime that has these values where a golden state begins."""

    @dataclass(kw_only=True)
    class Recurrent(FakeRuntime):
        @override
        def save_states(self, slot: int, stop: int) -> Any:
            assert (slot, stop) == (0, len(CASE.prompt_ids) + len(CASE.steps) - 1)
            return np.array([9.0, *values, 9.0], np.float32).view(np.uint8)

    runtime = Recurrent(vocab_size=40, context=64, chunk=8, state_bytes=20)
    return self_test(runtime, (CASE,), tolerance=1.0, states=(STATE,), level=level)


def test_a_state_passes_with_a_small_difference() -> None:
    verdict = self_test_of_state([0.5, -2.0, 0.003])
    assert verdict.passed
    assert verdict.steps == 4 + 1 + 1  # the state after the continuation, not after an embedding
    assert verdict.largest_difference == pytest.approx(0.003 / 3 / 2)
    assert verdict.tolerance == STATE_TOLERANCE


@pytest.mark.parametrize("level", ["quick", "full"])
@pytest.mark.parametrize(
    "values", [[0.5, -2.0, 0.02], [-2.0, 0.5, 0.0], [0.5, -2.0, math.nan], [0.0, 0.0, 0.0]]
)
def test_a_wrong_state_fails(values: list[float], level: Level) -> None:
    verdict = self_test_of_state(values, level)
    assert not verdict.passed
    assert verdict.where.startswith("golden prompt 0, state")


def test_a_wrong_state_after_a_verify_fails() -> None:
    @dataclass(kw_only=True)
    class Recurrent(FakeRuntime):
        reads: int = 0

        @override
        def save_states(self, slot: int, stop: int) -> Any:
            self.reads += 1
            wrong = self.reads > 1  # the first read follows decodes
            return np.array([9.0, 0.5, 2.0 if wrong else -2.0, 0.0], np.float32).view(np.uint8)

    sizes: Any = {"vocab_size": 40, "context": 64, "chunk": 8, "state_bytes": 16}
    runtime = Recurrent(**sizes, verify_tokens=(2,))
    verdict = self_test(runtime, (CASE,), tolerance=1.0, states=(STATE,))
    assert not verdict.passed
    assert verdict.where == "golden prompt 0, state (verify 2)"


@pytest.mark.parametrize("wrong", [0, 1])
def test_a_wrong_logit_of_either_sequence_of_a_pair_fails(wrong: int) -> None:
    @dataclass(kw_only=True)
    class Wrong(FakeRuntime):
        @override
        def verify_pair(self, slots: Any, tokens: Any, starts: Any, margins: Any = ()) -> Any:
            each = [list(rows) for rows in super().verify_pair(slots, tokens, starts, margins)]
            each[wrong][1][CASE.steps[1].token_ids[0]] += 0.5
            return each

    sizes: Any = {"vocab_size": 40, "context": 64, "chunk": 8, "slots": 2, "pair_tokens": 2}
    assert self_test(FakeRuntime(**sizes), (CASE,), tolerance=0.0).passed
    verdict = self_test(Wrong(**sizes), (CASE,), tolerance=0.25)
    assert not verdict.passed
    assert verdict.where == "golden prompt 0, step 1 (verify 2 of two)"


def test_the_largest_logit_difference_is_that_of_a_logit_that_is_compared() -> None:
    *before, last = CASE.steps
    shifted = [logit + 0.25 for logit in last.logits]
    case = replace(CASE, steps=(*before, replace(last, logits=tuple(shifted))))
    assert largest_logit_difference(RUNTIME, CASE) == 0
    assert largest_logit_difference(RUNTIME, case) == pytest.approx(0.25)
    low = (last.logits[0], *(-1e9 for _ in shifted[1:]))
    unsampled = replace(CASE, steps=(*before, replace(last, logits=low)))
    assert largest_logit_difference(RUNTIME, unsampled) == 0
