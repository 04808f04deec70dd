"""The assistant of Gemma 4 drafts what transformers and llama.cpp draft."""

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
from hearthd.models.catalog import ASSISTANTS
from hearthd.models.config import ConfigError
from hearthd.models.dsl.evaluate import evaluate
from tests.models.families.gemma4_pair import (
    ANSWERED,
    ASSISTANT,
    DRAFTED,
    DRAFTED_IN_CLUSTERS,
    LLAMACPP,
    write_assistant,
    write_assistant_gguf,
    write_clustered,
    write_gemma4,
    write_gemma4_gguf,
)
from tests.models.families.llama_pair import write_llama

if TYPE_CHECKING:
    from pathlib import Path

TOKENS = np.random.default_rng(0).integers(0, 256, 300).tolist()


def planned(weights: Path, drafter: Path) -> LanguagePlan:
    options = {"weights": weights, "drafter": drafter, "context": 256, "precision": "f32"}
    plan = resolve(bake_options(options))
    assert isinstance(plan, LanguagePlan)
    return plan


class Assisted(NumpyRuntime):
    """A model with its assistant, in NumPy."""

    def __init__(self, plan: LanguagePlan, folder: Path) -> None:
        program, model = plan.model.program(plan.program), plan.model
        write_parameters(model.source, model.locate(program), folder / "p.irpa", lambda _: None)
        parameters = stored_parameters(program.parameters, folder / "p.irpa")
        super().__init__(program, parameters, context=256, slots=1)
        self._lent = [i for i, spec in enumerate(program.caches) if spec.lent]
        self.lent_names = {program.caches[i].name for i in self._lent}

    def read(self, tokens: list[int]) -> None:
        """A prompt."""
        for start in range(0, len(tokens), 128):
            self.prefill(0, tokens[start : start + 128], start)

    def drafts(self, before: int, token: int, position: int) -> tuple[int, list[int]]:
        """What the model answers after the token before a position, and drafts after `token`."""
        point, graph = self._points("decode")[0]
        logits, state = self._run(point, graph, ([before], [position - 1], [0]), 0)
        answer, drafted = int(logits[0].argmax()), list[int]()
        ((_, graph),) = self._points("draft")
        caches = [self._slot_caches(0)[i] for i in self._lent]
        for _ in range(3):
            latest, start = np.array([token], np.int32), np.array([position], np.int32)
            logits, state = evaluate(graph, [latest, state, start, *caches], self._parameters)
            token = int(logits[0].argmax())
            drafted.append(token)
        return answer, drafted


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> LanguagePlan:
    folder = tmp_path_factory.mktemp("assistant")
    return planned(write_gemma4(folder / "model"), write_assistant(folder / "assistant"))


def test_drafts_are_those_of_transformers(plan: LanguagePlan, tmp_path: Path) -> None:
    runtime = Assisted(plan, tmp_path)
    assert runtime.lent_names == {
        f"layers.{layer}.{part}" for layer in (1, 2) for part in ("key", "value")
    }
    for length, expected in DRAFTED.items():
        runtime.read(TOKENS[: length - 1])
        assert runtime.drafts(TOKENS[length - 1], TOKENS[length], length)[1] == expected


def test_the_head_has_the_tokens_of_the_closest_clusters(tmp_path: Path) -> None:
    runtime = Assisted(planned(*write_clustered(tmp_path / "pair")), tmp_path)
    for length, expected in DRAFTED_IN_CLUSTERS.items():
        runtime.read(TOKENS[: length - 1])
        assert runtime.drafts(TOKENS[length - 1], TOKENS[length], length)[1] == expected


def test_clusters_divide_the_vocabulary() -> None:
    data = {**ASSISTANT, "use_ordered_embeddings": True}
    with pytest.raises(ConfigError, match=r"num_centroids: got 2048, of which 32 are chosen"):
        ASSISTANTS["gemma4-assistant"].from_hugging_face(data)


def test_drafts_of_gguf_files_are_those_of_llamacpp(tmp_path: Path) -> None:
    model = write_gemma4_gguf(tmp_path / "model")
    runtime = Assisted(planned(model, write_assistant_gguf(tmp_path / "assistant")), tmp_path)
    runtime.read(TOKENS[:39])
    tokens = [*TOKENS[39:40], *ANSWERED]
    for at, expected in enumerate(LLAMACPP):
        assert runtime.drafts(tokens[at], tokens[at + 1], 40 + at) == (tokens[at + 1], expected)


def test_the_plan_has_the_assistant(plan: LanguagePlan) -> None:
    assert plan.program.draft_sizes == (1,)
    assert plan.program.draft_tokens == 257
    assert plan.record.options["drafter"] == "assistant"


def test_the_assistant_of_another_model_is_rejected(tmp_path: Path) -> None:
    assistant = write_assistant(tmp_path / "a")
    message = r"--drafter: .* is the assistant of another model: it needs a Gemma 4 with hidden "
    for model in (
        write_llama(tmp_path / "llama", 128),
        write_gemma4(tmp_path / "wide", hidden_size=192),
        write_gemma4(tmp_path / "heads", head_dim=64),
    ):
        with pytest.raises(BadFile, match=message):
            planned(model, assistant)
