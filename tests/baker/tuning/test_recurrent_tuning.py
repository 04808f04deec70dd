"""Adapters of recurrent hybrids: no kernel without a gradient, right gradients, whole runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from rich.console import Console
from safetensors.numpy import load_file

from hearthd.baker.tuning import tuning
from hearthd.baker.tuning.batches import Bucket
from hearthd.baker.tuning.lora_task import LoraTask
from hearthd.baker.tuning.training_program import TrainingOptions
from hearthd.baker.tuning.tune_request import TuneError, TuneRequest
from hearthd.baker.tuning.tuning_report import TuningReport
from hearthd.bundle.lora.adapter_folder import TENSORS
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.decoder.config.decoder_config import DecoderConfig
from hearthd.models.dsl.composite import Fused
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.graph import op_of
from hearthd.models.lora.training import Lora, gradient_graph
from tests.baker.tuning.tiny_model import TEMPLATE, write_lines
from tests.conftest import Silent
from tests.models.families.hybrid_models import write_model
from tests.models.lora.lora_cases import OPTIMIZER, LoraCase
from tests.models.tiny_configs import tiny

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Array = NDArray[Any]

STEP, RISE = 3e-3, 1e-3  # at most, of an adapter and of the loss
MAMBA = ("in_proj", "out_proj", "q_proj")
PROJECTIONS = {
    "qwen35": ("in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "out_proj", "q_proj"),
    "granitehybrid": MAMBA,
    "nemotron_h": MAMBA,
    "falcon-h1": MAMBA,
}
each_hybrid = pytest.mark.parametrize("architecture", PROJECTIONS)


def case_of(architecture: str) -> LoraCase:
    lora = Lora(rank=2, alpha=4.0, projections=PROJECTIONS[architecture])
    config = tiny(architecture)
    assert isinstance(config, DecoderConfig)
    return LoraCase(architecture=architecture, config=config, lora=lora)


@each_hybrid
def test_a_tuning_run_has_no_kernels(architecture: str) -> None:
    case, shape = case_of(architecture), Bucket(sequences=2, length=8, rows=4)
    task = LoraTask(
        architecture=ARCHITECTURES[architecture], config=case.config, lora=case.lora, base=""
    )
    program = task.traced(
        TrainingOptions(optimizer=OPTIMIZER, shapes=[shape], precision="bf16", validated=False)
    )
    ops = {op_of(node) for graph in program.program.graphs for node in graph.nodes}
    assert not [op.name for op in ops if isinstance(op, Fused)]


@each_hybrid
def test_gradients_are_those_of_finite_differences(architecture: str) -> None:
    case = case_of(architecture)
    weights = case.weights()
    for name in weights:
        if name.endswith("rates.weight"):
            weights[name] = -abs(weights[name])
    adapters, batch = case.initial(), case.batch(0)
    graph = gradient_graph(case.graph, case.adapters, "gradient")
    _, *gradients = evaluate(graph, [*batch, *adapters.values()], weights)
    assert all(gradient.any() for gradient in gradients)
    # Both matrices of one adapter of each projection.
    pending = {f"{name}.lora_{side}" for name in PROJECTIONS[architecture] for side in "AB"}
    for name, gradient in zip(adapters, gradients, strict=True):
        kind = ".".join(name.split(".")[-3:-1])
        if kind not in pending:
            continue
        pending.remove(kind)
        slope = float(np.linalg.norm(gradient))
        direction = gradient / slope  # the loss rises most, so that noise matters least

        def loss(distance: float, name: str = name, direction: Array = direction) -> float:
            moved = {**adapters, name: adapters[name] + np.float32(distance) * direction}
            (value,) = evaluate(case.graph, [*batch, *moved.values()], weights)
            return float(value)

        step = min(STEP, RISE / slope)
        difference = (loss(step) - loss(-step)) / (2 * step)
        assert difference == pytest.approx(slope, rel=0.01, abs=1e-4), name
    assert not pending


def request_of(folder: Path, **options: Any) -> TuneRequest:
    """Tune a small Qwen3.5 on two examples."""
    write_model(folder / "model", "qwen35")
    (folder / "model/chat_template.jinja").write_text(TEMPLATE)
    data = write_lines(folder / "data.jsonl", [{"prompt": "1+1=", "completion": "2"}] * 2)
    return TuneRequest(
        model="qwen3.5", weights=folder / "model", data=data, out=folder / "adapter", rank=2,
        targets=("in_proj_qkv", "in_proj_z", "out_proj", "q_proj"), batch=1, accumulate=1, steps=2,
        **options,
    )  # fmt: skip


def tune(request: TuneRequest) -> None:
    report = TuningReport(Console(quiet=True), request.out)
    tuning.tune(request, Silent(), report)


def test_a_recurrent_model_is_tuned_where_memory_is_enough(tmp_path: Path) -> None:
    with pytest.raises(TuneError, match="--max-memory: tuning needs about"):
        tune(request_of(tmp_path, max_memory=1_000_000))


@pytest.mark.nightly
@pytest.mark.slow
def test_every_target_of_a_recurrent_model_learns(tmp_path: Path) -> None:
    request = request_of(tmp_path)
    tune(request)
    factors = load_file(request.out / TENSORS)
    assert {name.split(".")[-3] for name in factors} == set(request.targets or ())
    assert all(values.any() for values in factors.values())
