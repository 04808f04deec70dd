"""The decode benchmark: what a worker measures, the bandwidth's limit, reports of KL divergence."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from typing_extensions import override

from benchmarks.decode import (
    FIGURES,
    TARGETS,
    bench_command,
    bench_of,
    distinct,
    pair_of,
    read_kl,
    section,
    with_benches,
)
from benchmarks.engines.decode_rounds import BenchmarkError, Measurements, Model, bandwidth_limit
from benchmarks.engines.decode_worker import (
    DEPTHS,
    PROMPTS,
    STEPS,
    TOGETHER,
    EngineDescription,
    Text,
    measure,
)
from benchmarks.engines.llama_bench import LlamaBench, LlamaBenchError
from benchmarks.report.figures import rows
from hearthd.baker.memory_bandwidth import read_bandwidth
from tests.fake_runtime import FakeRuntime

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TEXT = Text(tokens=[7] * PROMPTS[-1])


def test_a_worker_measures_everything_that_fits_the_context() -> None:
    whole = FakeRuntime(
        vocab_size=16, context=PROMPTS[-1], slots=TOGETHER, chunk=512, batch=TOGETHER
    )
    figures = measure(whole, TEXT, time.monotonic())
    shown = {figure.name for figure in FIGURES}
    assert {f"decode_{n}" for n in DEPTHS} | {f"prefill_{n}" for n in PROMPTS} < set(figures)
    assert shown - set(figures) == {
        "weights_mb", "limit_percent", "served_first_s", "served_mb", "kl",
    }  # fmt: skip
    assert all(value > 0 for value in figures.values())
    small = measure(FakeRuntime(vocab_size=16, context=200), TEXT, time.monotonic())
    assert set(figures) - set(small) == {
        "prefill_512", "prefill_4096", "decode_1024", "decode_1900", "decode_together",
    }  # fmt: skip
    short = Text(tokens=TEXT.tokens[: DEPTHS[0] + STEPS])
    assert set(measure(whole, short, time.monotonic())) == {*small, "decode_together"}
    shallow = measure(whole, replace(TEXT, max_depth=DEPTHS[1]), time.monotonic())
    assert set(figures) - set(shallow) == {"decode_1900"}
    too_small = FakeRuntime(vocab_size=16, context=DEPTHS[0] + STEPS - 1)
    assert set(small) - set(measure(too_small, TEXT, time.monotonic())) == {"decode_128"}


def test_a_batch_counts_the_tokens_of_every_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    def a_second(work: Callable[[], object], _: int = 0) -> float:
        work()
        return 1.0

    monkeypatch.setattr("benchmarks.engines.decode_worker._median_seconds", a_second)
    runtime = FakeRuntime(vocab_size=16, context=200, slots=TOGETHER, chunk=512, batch=TOGETHER)
    figures = measure(runtime, TEXT, time.monotonic())
    assert figures["prefill_128"] == 128
    assert figures["decode_128"] == STEPS
    assert figures["decode_together"] == TOGETHER * STEPS


def test_sequences_of_a_batch_read_other_tokens() -> None:
    batches: list[list[int]] = []

    class Watched(FakeRuntime):
        @override
        def decode(self, slots: Any, tokens: Any, positions: Any, margins: Any = ()) -> Any:
            batches.append(list(tokens))
            return super().decode(slots, tokens, positions, margins)

    text = Text(tokens=list(range(DEPTHS[0] + STEPS)))
    runtime = Watched(vocab_size=256, context=200, slots=TOGETHER, chunk=512, batch=TOGETHER)
    measure(runtime, text, time.monotonic())
    together = [tokens for tokens in batches if len(tokens) == TOGETHER]
    assert together
    assert all(len(set(tokens)) == TOGETHER for tokens in together)


def test_decode_steps_are_measured_three_times() -> None:
    read: list[int] = []

    class Counting(FakeRuntime):
        @override
        def decode(self, slots: Any, tokens: Any, positions: Any, margins: Any = ()) -> Any:
            read.extend(positions)
            return super().decode(slots, tokens, positions, margins)

    short = Text(tokens=TEXT.tokens[: DEPTHS[0] + STEPS])
    measure(Counting(vocab_size=16, context=200, chunk=512), short, time.monotonic())
    assert read.count(DEPTHS[0] + STEPS - 1) == 3
    assert read.count(DEPTHS[0] - 2) == 1  # before the clock starts


def test_the_bandwidth_limit_reads_all_weights_per_token() -> None:
    limit = bandwidth_limit(weights_bytes=500_000_000, decode=30, bandwidth=20)
    assert limit == {"bandwidth": 20, "weights_mb": 500, "limit_percent": pytest.approx(75)}


def test_the_read_bandwidth_is_plausible() -> None:
    bandwidth = read_bandwidth(threads=1, size=1 << 26)
    assert 0.01 < bandwidth < 2000


def report(path: Path, a: str, b: str, kl: float | None) -> Path:
    """A report.json of `hearth compare`, as short as one can be."""
    side = {"kind": "llama.cpp", "gives": "all", "details": {}}
    summary: dict[str, Any] = dict.fromkeys(
        ("kl_error", "kl_median", "kl_p90", "kl_p99", "kl_max", "mean_difference",
         "largest_difference", "perplexity_a", "perplexity_b", "mass_a", "mass_b"), 1.0
    )  # fmt: skip
    path.write_text(
        json.dumps(
            {
                "made": "2025-01-01T00:00:00+00:00", "hearth": "0.1.0", "exact": True,
                "a": {**side, "name": a}, "b": {**side, "name": b}, "computed": "exact",
                "texts": kl and {**summary, "positions": 9, "agree": 9, "kl_mean": kl},
                "answers": None, "passages": [], "worst": [], "notes": [], "failures": [],
            }
        )
    )  # fmt: skip
    return path


def test_kl_divergences_are_read_by_the_name_of_the_model(tmp_path: Path) -> None:
    models = [Model(path=tmp_path / name) for name in ("int8-g32", "q8.gguf")]
    ours = report(tmp_path / "1.json", "/a/f32.gguf", "bundles/int8-g32/", 0.01)
    theirs = report(tmp_path / "2.json", "f32.gguf", "/b/q8.gguf", 0.003)
    assert read_kl([ours, theirs], models) == {"int8-g32": 0.01, "q8.gguf": 0.003}
    all_exact = report(tmp_path / "6.json", "f32.gguf", "exact:/a/int8-g32", 0.001)
    both = [*models, Model(path=tmp_path / "int8-g32", exact=True)]
    assert read_kl([ours, all_exact], both) == {"int8-g32": 0.01, "exact:int8-g32": 0.001}
    refused = {
        "expected one of int8-g32, q8.gguf": report(tmp_path / "3.json", "f32.gguf", "int4", 1.0),
        "int8-g32 on answers": report(tmp_path / "4.json", "f32.gguf", "int8-g32", None),
        "expected only one": report(tmp_path / "5.json", "bf16.gguf", "int8-g32", 1.0),
        r"expected a report.json of `hearth compare`": tmp_path / "none.json",
    }
    for message, path in refused.items():
        with pytest.raises(BenchmarkError, match=message):
            read_kl([theirs, path], models)


def test_models_with_the_same_name_are_rejected(tmp_path: Path) -> None:
    one, other = (Model(path=tmp_path / folder / "q8.gguf") for folder in "ab")
    assert distinct([one, one]) == [one]
    with pytest.raises(BenchmarkError, match="have the same name"):
        distinct([one, other])


def test_bundles_of_a_run_have_one_vocabulary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"a": 16, "b": 32}
    for name in sizes:
        (tmp_path / name).mkdir()

    def manifest(path: Path, _: object) -> SimpleNamespace:
        return SimpleNamespace(vocab_size=sizes[path.name], context=4096)

    monkeypatch.setattr("benchmarks.decode.read_manifest_of", manifest)
    models = [Model(path=tmp_path / name) for name in sizes]
    with pytest.raises(BenchmarkError, match=r"vocabularies of \[16, 32\] tokens"):
        bench_of(argparse.Namespace(), models)


def test_a_pair_is_a_bundle_and_a_gguf_file(tmp_path: Path) -> None:
    (tmp_path / "int8-g32").mkdir()
    (tmp_path / "q8.gguf").touch()
    ours, theirs = pair_of(f"{tmp_path}/int8-g32={tmp_path}/q8.gguf")
    assert (ours.name, ours.is_hearth, theirs.name, theirs.is_hearth) == (
        "int8-g32",
        True,
        "q8.gguf",
        False,
    )
    assert (ours.exact, theirs.exact) == (False, False)
    exact, _ = pair_of(f"exact:{tmp_path}/int8-g32={tmp_path}/q8.gguf")
    assert (exact.name, exact.path, exact.exact) == ("exact:int8-g32", ours.path, True)
    assert distinct([ours, exact]) == [ours, exact]
    for wrong in ("int8-g32", "q8.gguf=int8-g32", "int8-g32=int8-g32", "int8-g32=none"):
        text = "=".join(f"{tmp_path}/{part}" for part in wrong.split("="))
        with pytest.raises(argparse.ArgumentTypeError, match=r"expected|does not exist"):
            pair_of(text)


def test_a_pair_has_the_goals_of_its_quality(tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()
    ours, theirs = Model(path=tmp_path / "ours"), Model(path=tmp_path / "q8.gguf")
    kinds = {"ours": "int8-g32", "q8.gguf": "Q8_0"}
    measurements = Measurements(
        about={
            n: EngineDescription(quantization=k, weights_bytes=1, versions={})
            for n, k in kinds.items()
        },
        rounds={"ours": [{"decode_128": 90.0}], "q8.gguf": [{"decode_128": 50.0}]},
    )
    pair = section((ours, theirs), measurements, {"ours": 0.0031})
    assert list(pair.measured) == ["Hearth int8-g32", "llama.cpp Q8_0"]
    assert "0.0031" in pair.title
    assert pair.goals == TARGETS["Q8_0"].ratios
    assert [row.met for row in rows(FIGURES, pair.measured, pair.goals)] == [True]
    assert section((ours, theirs), measurements, {"ours": 0.04}).goals == {}  # another quality
    assert "unknown" in section((ours, theirs), measurements, {}).title
    assert section((ours,), measurements, {}).goals == {}


def test_every_goal_belongs_to_a_figure() -> None:
    shown = {figure.name for figure in FIGURES}
    for target in TARGETS.values():
        assert set(target.ratios) <= shown


# A program with llama-bench's options that prints what it was asked for.
FAKE_BENCH = """
import json, sys
if "--help" in sys.argv:
    print({help!r})
    sys.exit()
option = dict(zip(sys.argv[1::2], sys.argv[2::2]))
common = dict(model_type="gemma3 270M Q4_K - Medium", model_size=253, build_commit="abc")
if option["-n"] == "0" and "-gp" not in option:
    size, repetitions = int(option["-p"]), int(option["-r"])
    rows = [dict(n_prompt=size, n_gen=0, avg_ts=size * repetitions)]
elif "-gp" in option:
    depth, steps = map(int, option["-gp"].split(","))
    rows = [dict(n_prompt=depth, n_gen=steps, avg_ts=depth / 2)]
else:
    rows = [dict(n_prompt=0, n_gen=int(option["-n"]), avg_ts=int(option["-d"]) / 2)]
print(json.dumps([common | row for row in rows]))
"""


@pytest.mark.parametrize("help_text", ["-d, --n-depth <n>", "-gp <pp,tg>"])
def test_llama_bench_measures_the_same_lengths(tmp_path: Path, help_text: str) -> None:
    script = tmp_path / "llama-bench"
    script.write_text(FAKE_BENCH.format(help=help_text), encoding="utf-8")
    bench = LlamaBench("fork", (sys.executable, str(script)))
    about, figures = bench.measure(tmp_path / "a.gguf", threads=2, context=4096, max_depth=1024)
    assert figures == {
        "prefill_128": 384, "prefill_512": 1536, "prefill_4096": 4096, "decode_128": 64,
        "decode_1024": 512,
    }  # fmt: skip
    assert about == EngineDescription(
        quantization="Q4_K - Medium", weights_bytes=253, versions={"fork": "abc"}
    )
    model = Model(path=tmp_path / "a.gguf", bench=bench)
    assert (model.name, model.engine) == ("a.gguf in fork", "fork")


def test_a_failing_llama_bench_is_named(tmp_path: Path) -> None:
    script = "import sys; sys.exit('no such model')"
    bench = LlamaBench("fork", (sys.executable, "-c", script))
    with pytest.raises(LlamaBenchError, match=r"^fork ended with 1: no such model$"):
        bench.measure(tmp_path / "a.gguf", threads=2, context=600, max_depth=128)
    with pytest.raises(LlamaBenchError, match=r"^fork: .*No such file"):
        LlamaBench("fork", (str(tmp_path / "absent"),)).measure(
            tmp_path, threads=2, context=600, max_depth=128
        )


def test_each_bench_is_compared_with_the_bundle(tmp_path: Path) -> None:
    pair = Model(path=tmp_path), Model(path=tmp_path / "a.gguf")
    benches = [bench_command("one=PATH -rtr 1"), bench_command("two=other")]
    assert benches[0] == LlamaBench("one", ("PATH", "-rtr", "1"))
    assert [group[1].name for group in with_benches(pair, benches)] == [
        "a.gguf in one",
        "a.gguf in two",
    ]
    assert with_benches(pair, []) == [pair]
    assert with_benches(pair[:1], benches) == [pair[:1]]
    with pytest.raises(argparse.ArgumentTypeError, match="expected NAME=COMMAND"):
        bench_command("one")
