"""The benchmark of the time of verifications: what it calls, and its table."""

from __future__ import annotations

from benchmarks.drafts.verify_cost import measure, row_of
from tests.fake_runtime import FakeRuntime


def test_each_turn_measures_a_decode_and_each_size_of_verification() -> None:
    runtime = FakeRuntime(
        vocab_size=97, context=128, slots=1, batch=1, chunk=8, verify_tokens=(2, 4)
    )
    seconds = measure(runtime, tuple(range(64)), 20, 5, margin=6)
    assert {size: len(times) for size, times in seconds.items()} == {1: 5, 2: 5, 4: 5}
    assert all(time > 0 for times in seconds.values() for time in times)


def test_a_cell_is_the_median_time_in_decodes() -> None:
    seconds = {1: [0.010, 0.020, 0.030], 4: [0.025, 0.030, 0.090]}
    assert row_of("a", seconds, (2, 4)) == ("a", "20.0", "", "1.50")
