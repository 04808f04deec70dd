"""The table of the benchmark of LoRA gradients."""

from __future__ import annotations

from benchmarks.lora_gradients import table


def test_a_row_for_each_number_of_tokens_and_no_column_for_what_was_not_measured() -> None:
    figures = {"compile_cpu_seconds": 40.04, "compile_peak_mb": 268.9, "peak_mb": 2384.2}
    made = table("title", {32: figures, 128: {**figures, "peak_mb": 3892.0}})
    assert made.headings == ("tokens", "compile, CPU s", "compile, MB", "peak, MB")
    assert made.rows == (("32", "40.0", "269", "2384"), ("128", "40.0", "269", "3892"))
