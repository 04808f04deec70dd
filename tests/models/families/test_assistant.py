"""The assistant of Gemma 4 drafts what transformers drafts, from the model's keys and values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from hearthd.baker.parameters.parameter_writer import write_parameters
from hearthd.baker.pipeline.bake import resolve
from hearthd.baker.pipeline.bake_options import bake_options
from hearthd.baker.pipeline.language_plan import LanguagePlan
from hearthd.baker.reference.numpy_runtime import NumpyRuntime, stored_parameters
from hearthd.baker.weights.source import BadFile
from hearthd.models.dsl.evaluate import evaluate
from tests.models.families.gemma4_pair import DRAFTED, write_assistant, write_gemma4
from tests.models.families.llama_pair import write_llama

if TYPE_CHECKING:
    from pathlib import Path

TOKENS = np.random.default_rng(0).integers(0, 256, 300).tolist()


def planned(weights: Path, drafter: Path) -> LanguagePlan:
    options = {"weights": weights, "drafter": drafter, "context": 256, "precision": "f32"}
    plan = resolve(bake_options(options))
    assert isinstance(plan, LanguagePlan)
    return plan


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> LanguagePlan:
    folder = tmp_path_factory.mktemp("assistant")
    return planned(write_gemma4(folder / "model"), write_assistant(folder / "assistant"))


def test_drafts_are_those_of_transformers(plan: LanguagePlan, tmp_path: Path) -> None:
    program = plan.model.program(plan.program)
    located = plan.model.locate(program)
    write_parameters(plan.model.source, located, tmp_path / "p.irpa", lambda _: None)
    parameters = stored_parameters(program.parameters, tmp_path / "p.irpa")
    (draft,) = (graph for point, graph in program.entry_points if point.kind == "draft")
    lent = [i for i, spec in enumerate(program.caches) if spec.lent]
    assert {program.caches[i].name for i in lent} == {
        f"layers.{layer}.{part}" for layer in (2, 3) for part in ("key", "value")
    }
    for length, expected in DRAFTED.items():
        runtime = NumpyRuntime(program, parameters, context=256, slots=1)
        for start in range(0, length - 1, 128):
            runtime.prefill(0, TOKENS[start : min(start + 128, length - 1)], start)
        point, decode = next(pair for pair in program.entry_points if pair[0].kind == "decode")
        numbers = ([TOKENS[length - 1]], [length - 1], [0])
        _, state = runtime._run(point, decode, numbers, 0)
        token, drafted = TOKENS[length], []
        for _ in expected:
            caches = runtime._slot_caches(0)
            latest, position = np.array([token], np.int32), np.array([length], np.int32)
            lent_caches = [caches[i] for i in lent]
            logits, state = evaluate(draft, [latest, state, position, *lent_caches], parameters)
            token = int(logits[0].argmax())
            drafted.append(token)
        assert drafted == expected


def test_the_plan_has_the_assistant(plan: LanguagePlan) -> None:
    assert plan.program.draft_sizes == (1,)
    assert plan.program.draft_tokens == 257
    assert plan.record.options["drafter"] == "assistant"


def test_the_assistant_of_another_model_is_rejected(tmp_path: Path) -> None:
    llama, assistant = write_llama(tmp_path / "llama", 128), write_assistant(tmp_path / "a")
    message = r"--drafter: .* is the assistant of another model: it needs a Gemma 4 with hidden "
    with pytest.raises(BadFile, match=message):
        planned(llama, assistant)
