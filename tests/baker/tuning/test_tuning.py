"""Whole runs on a tiny model: killed and continued, early stop, limits, and what they write."""

from __future__ import annotations

import io
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import ml_dtypes
import numpy as np
import pytest
from rich.console import Console

from hearthd.baker.adapters.adapter import read_adapter
from hearthd.baker.tuning import batches, tuning
from hearthd.baker.tuning.checkpoint import CHECKPOINT, CheckpointError, read_checkpoint
from hearthd.baker.tuning.training_program import DivergedError, Trainer, compile_program
from hearthd.baker.tuning.tune_request import TuneError, TuneRequest
from hearthd.baker.tuning.tuning_report import LOSS_PLOT, TuningReport
from hearthd.bundle import DRAFTER, PARAMETERS, VMFB
from hearthd.bundle.lora.adapter_folder import TENSORS
from hearthd.bundle.lora.adapter_settings import CONFIG
from hearthd.cli import main
from hearthd.models.decoder.next_token_loss import loss_graph
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.families.gemma3 import ARCHITECTURE
from tests.baker.tuning.tiny_model import CONFIG as TINY
from tests.baker.tuning.tiny_model import request, write_lines, write_model
from tests.conftest import Silent

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearthd.baker.tuning.checkpoint import History
    from hearthd.baker.tuning.examples import Example

BF16 = ml_dtypes.bfloat16
ROOT = Path(__file__).parents[3]
LINES = [{"prompt": f"{a}+{b}=", "completion": str(a + b)} for a in range(4) for b in range(4)]
OPTIONS: dict[str, Any] = {
    "steps": 9, "save_every": 2, "validation": 0.25, "validate_every": 3, "dropout": 0.05,
}  # fmt: skip
FILES = {CONFIG, TENSORS, CHECKPOINT, LOSS_PLOT}
KILLED_STEP = 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tuning")
    write_model(made / "model")
    write_lines(made / "data.jsonl", LINES)
    return made


def use_program(place: Path, patch: pytest.MonkeyPatch) -> None:
    """Compile once into a folder, and have later runs copy the program from there."""

    def copy_program(*arguments: Any) -> None:
        *_, folder, _ = arguments
        if not (place / VMFB).exists():
            compile_program(*arguments)
            place.mkdir(exist_ok=True)
            for name in (PARAMETERS, VMFB):
                shutil.copy(folder / name, place / name)
        for name in (PARAMETERS, VMFB):
            shutil.copy(place / name, folder / name)

    patch.setattr("hearthd.baker.tuning.tuning.compile_program", copy_program)


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[TuneRequest], str]:
    """Tune, all with one compiled program; returns what is printed."""
    use_program(folder / "program", monkeypatch)

    def run(one: TuneRequest) -> str:
        console = Console(file=io.StringIO(), width=200)
        tuning.tune(one, Silent(), TuningReport(console, one.out))
        assert isinstance(console.file, io.StringIO)
        return console.file.getvalue()

    return run


def run_command(one: TuneRequest, monkeypatch: pytest.MonkeyPatch) -> object:
    """Tune with `hearth tune`; returns the exit code."""
    names = ("data", "out", "rank", "batch", "accumulate", "learning_rate", *OPTIONS)
    flags = [f"--{name.replace('_', '-')}={getattr(one, name)}" for name in names]
    targets = f"--targets={','.join(one.targets)}"
    monkeypatch.setattr(sys, "argv", ["hearth", "tune", str(one.weights), targets, *flags])
    with pytest.raises(SystemExit) as exited:
        main()
    return exited.value.code


def history(out: Path) -> History:
    checkpoint = read_checkpoint(out, {})
    assert checkpoint is not None
    return checkpoint.history


@pytest.mark.nightly
def test_a_killed_run_continues_with_the_same_bits(
    folder: Path, run: Callable[[TuneRequest], str]
) -> None:
    whole, killed = (request(folder, name, **OPTIONS) for name in ("whole", "killed"))
    said = run(whole)
    assert "12 examples to learn, 4 held out; 9 steps; batches of 2 x 8 tokens" in said
    assert {path.name for path in whole.out.iterdir()} == FILES
    code = f"""
import os, signal
import pytest
from pathlib import Path
from hearthd.baker.tuning.tuning_report import TuningReport
from rich.console import Console
from tests.baker.tuning import test_tuning
from tests.baker.tuning.tiny_model import request
from tests.conftest import Silent
test_tuning.use_program(Path({str(folder / "program")!r}), pytest.MonkeyPatch())
stepped = TuningReport.stepped
def kill(self, history):
    stepped(self, history)
    if history.step == {KILLED_STEP}:
        os.kill(os.getpid(), signal.SIGKILL)
TuningReport.stepped = kill
one = request(Path({str(folder)!r}), "killed", **test_tuning.OPTIONS)
test_tuning.tuning.tune(one, Silent(), TuningReport(Console(), one.out))
"""
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert history(killed.out).step == KILLED_STEP - 1
    assert not (killed.out / TENSORS).exists()
    assert f"continue after step {KILLED_STEP - 1} of 9" in run(killed)
    for name in FILES - {CONFIG}:
        assert (killed.out / name).read_bytes() == (whole.out / name).read_bytes(), name
    assert {path.name for path in killed.out.iterdir()} == FILES
    losses = history(whole.out).losses
    assert sum(losses[-3:]) < sum(losses[:3]) - 0.5


@pytest.mark.parametrize(("name", "drafter"), [(TENSORS, False), (DRAFTER, True)])
def test_the_result_of_another_run_is_not_replaced(name: str, drafter: bool, folder: Path) -> None:
    one = request(folder, f"other-{name}", steps=1, drafter=drafter)
    one.out.mkdir()
    (one.out / name).write_text("of another program")
    with pytest.raises(TuneError, match=rf"^--out: {one.out}/{name} exists, .*; choose another"):
        tuning.tune(one, Silent(), TuningReport(Console(), one.out))
    assert (one.out / name).read_text() == "of another program"
    assert [path.name for path in one.out.iterdir()] == [name]


def test_a_full_disk_is_named_and_nothing_is_half_written(folder: Path, full_disk: Path) -> None:
    one = replace(request(folder, steps=1), out=full_disk / "adapter")
    with pytest.raises(OSError, match="No space left on device") as caught:
        tuning.tune(one, Silent(), TuningReport(Console(), one.out))
    assert str(caught.value.filename).startswith(str(one.out))
    assert not list(one.out.iterdir())


def test_the_first_losses_of_the_command_are_those_of_the_plain_model_in_numpy(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_program(folder / "program", monkeypatch)
    one = request(folder, "losses", **OPTIONS)
    assert run_command(one, monkeypatch) == 0
    assert {path.name for path in one.out.iterdir()} == FILES
    recorded = history(one.out)
    prepared = tuning._prepared(one)
    weights = {
        name: prepared.source.read(stored.name).astype(BF16).astype(np.float32) + stored.offset
        if len(prepared.source.shape(stored.name)) == 2
        else prepared.source.read(stored.name) + np.float32(stored.offset)
        for name in ARCHITECTURE.model(TINY).parameters()
        for stored in (ARCHITECTURE.tensors.find(TINY, name, (), gguf=False),)
    }

    def sum_of_losses(example: Example) -> float:
        """Of the answer's tokens: the last ones of the example."""
        ids, count = np.array(example.ids, np.int32), len(example.learned)
        whole, prompt = (
            evaluate(
                loss_graph(ARCHITECTURE.model(TINY), end - 1), [ids[: end - 1], ids[1:end]], weights
            )[0]
            * (end - 1)
            for end in (len(ids), len(ids) - count)
        )
        return float(whole - prompt)

    step = next(
        batches.steps(prepared.learned, prepared.shapes, accumulate=one.accumulate, seed=one.seed)
    )
    for examples, loss in (
        ([prepared.learned[i] for batch in step for i in batch.examples], recorded.losses[0]),
        (prepared.held_out, recorded.validation[0][1]),
    ):
        total = sum(len(example.learned) for example in examples)
        expected = sum(map(sum_of_losses, examples)) / total
        # Products with bf16 matrices round their inputs to bf16.
        assert loss == pytest.approx(expected, rel=5e-4)


@pytest.mark.nightly
def test_the_adapter_of_the_lowest_validation_loss_is_written(
    folder: Path, run: Callable[[TuneRequest], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = iter([3.0, 1.0, 2.0, 1.5])
    monkeypatch.setattr(tuning, "_validation_loss", lambda *_: next(losses))
    best = request(folder, "best", **OPTIONS)
    run(best)
    assert history(best.out).validation == [(0, 3.0), (3, 1.0), (6, 2.0), (9, 1.5)]
    losses = iter([3.0, 1.0, 2.0, 1.5])
    stopped = request(folder, "stopped", **OPTIONS, patience=1)
    assert "stopped early after step 6" in run(stopped)
    assert history(stopped.out).step == 6
    checkpoints = [read_checkpoint(one.out, {}) for one in (best, stopped)]
    terms = read_adapter(best.out, ARCHITECTURE, TINY)["layers.0.self_attn.q_proj.weight"]
    for checkpoint in checkpoints:
        assert checkpoint is not None
        (a, b), (last, _) = checkpoint.best.values(), checkpoint.adapters.values()
        np.testing.assert_array_equal(terms.a, a)
        np.testing.assert_array_equal(terms.b, b)
        assert not np.array_equal(a, last)
    assert ET.parse(best.out / LOSS_PLOT).getroot().get("role") == "img"


@pytest.mark.nightly
def test_a_checkpoint_of_other_options_is_not_continued(
    folder: Path, run: Callable[[TuneRequest], str]
) -> None:
    one = request(folder, "other", **OPTIONS)
    run(one)
    for change, message in (
        ({"seed": 1}, "another seed: got 1, expected 0"),
        ({"learning_rate": 0.1}, "another learning_rate: got 0.1, expected 0.05"),
    ):
        with pytest.raises(CheckpointError, match=message):
            run(replace(one, **change))
    (one.out / CHECKPOINT).write_bytes(b"x" * 100)
    with pytest.raises(CheckpointError, match="cannot be read: "):
        run(one)


@pytest.mark.nightly
def test_values_are_computed_again_where_they_need_too_much_memory(
    folder: Path, run: Callable[[TuneRequest], str]
) -> None:
    one = request(folder, "again", **OPTIONS)
    kept, again = (
        tuning._traced(tuning._prepared(one), recompute=recompute).memory
        for recompute in (False, True)
    )
    assert again < kept
    text = "with values that gradients compute again"
    assert text not in run(replace(one, max_memory=kept))
    with pytest.raises(CheckpointError, match="another recompute: got True, expected False"):
        run(replace(one, max_memory=kept - 1))
    shutil.rmtree(one.out)
    assert text in run(replace(one, max_memory=kept - 1))
    with pytest.raises(TuneError, match="--max-memory: tuning needs about"):
        run(replace(one, out=folder / "more", max_memory=again - 1))


def test_a_run_that_cannot_start_says_why(folder: Path, run: Callable[[TuneRequest], str]) -> None:
    for options, message in (
        ({"max_memory": 100_000_000}, r"--max-memory: tuning needs about 2\d\d.* MB, and 100.0 MB"),
        ({"patience": 2}, "--patience needs --validation"),
        ({"validation": 0.99}, "leave none to learn"),
        ({"learning_rate": float("nan")}, "--learning-rate: got nan, expected a finite number ab"),
        ({"max_norm": 0.0}, r"--max-norm: got 0\.0, expected a finite number above 0"),
        ({"alpha": float("inf")}, "--alpha: got inf, expected a finite number"),
        ({"steps": 10**18}, "got 10{18} steps, expected at most 2147483647"),
        ({"rank": 10**6}, r"--rank: got 10{6}, expected at most \d+, the largest size"),
        ({"targets": ("x_proj",)}, "--targets: .*no product with a matrix x_proj"),
    ):
        with pytest.raises(TuneError, match=message):
            run(request(folder, "impossible", **options))
    assert not (folder / "impossible").exists()
    with tuning._locked(folder / "used"), pytest.raises(TuneError, match="another run writes to"):
        run(request(folder, "used"))


def test_a_batch_has_no_more_sequences_than_there_are_examples(folder: Path) -> None:
    prepared = tuning._prepared(request(folder, batch=10**9))
    assert {shape.sequences for shape in prepared.shapes} == {len(LINES)}


def test_an_adapter_that_is_not_finite_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = object.__new__(Trainer)
    vars(trainer).update(_traced=SimpleNamespace(adapters={}), _adapters=[])
    monkeypatch.setattr(Trainer, "_arrays", lambda *_: {"lora_A": np.array([0, np.nan])})
    with pytest.raises(DivergedError, match="the adapter has values that are not finite; lower"):
        trainer.adapters()
