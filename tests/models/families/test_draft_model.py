"""A draft model: it drafts what it generates alone, and has the model's vocabulary."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typing_extensions import override

from examples.train_tiny_gemma import tokenizer
from hearthd.baker.parameters.parameter_writer import locate, write_parameters
from hearthd.baker.pipeline.bake import resolve
from hearthd.baker.pipeline.bake_options import bake_options
from hearthd.baker.pipeline.draft_model import WeightsWithDraftModel, open_draft_model
from hearthd.baker.pipeline.language_plan import LanguagePlan
from hearthd.baker.reference.numpy_runtime import (
    NumpyRuntime,
    answering_parameters,
    stored_parameters,
)
from hearthd.baker.weights.open_weights import open_weights
from hearthd.baker.weights.source import BadFile
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.decoder.architecture import DraftShape
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.program import ProgramOptions
from hearthd.runtime.iree.device_draft_model import DeviceDraftModel
from hearthd.runtime.iree.device_drafter import ReadToken
from tests.models.families.llama_pair import (
    DRAFTED,
    FIRST,
    LARGE,
    SMALL,
    write_llama,
    write_llama_gguf,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.models.config import ModelConfig
    from hearthd.models.decoder.architecture import Architecture

TOKENS = np.random.default_rng(0).integers(0, 256, 300).tolist()
CHUNK = 8


def in_slot_0(tokens: Sequence[int], start: int) -> list[ReadToken]:
    return [ReadToken(0, token, position) for position, token in enumerate(tokens, start)]


class Drafting(DeviceDraftModel):
    """A draft model in NumPy, in place of a device's."""

    exists = True

    def __init__(self, weights: Path, drafter: Path, folder: Path) -> None:
        draft = open_draft_model(drafter, 64, None)
        source = WeightsWithDraftModel(open_weights(weights), draft)
        llama: Architecture[Any] = ARCHITECTURES["llama"]
        config: ModelConfig = llama.from_hugging_face(source.metadata())
        shape = DraftShape(architecture=draft.architecture, config=draft.config)
        program = llama.program(
            config,
            ProgramOptions(
                context=64, precision="f32", prefill_tokens=(CHUNK,), decode_batches=(1,),
                draft_tokens=257, draft_model=shape,
            ),
        )  # fmt: skip
        write_parameters(
            source, locate(source, llama, config, program), folder / "p.irpa", lambda _: None
        )
        self._parameters = stored_parameters(program.parameters, folder / "p.irpa")
        self.runtime = NumpyRuntime(program, self._parameters, context=64, slots=1)
        self._graphs = {p.tokens: graph for p, graph in program.entry_points if p.kind == "draft"}
        self._functions = dict.fromkeys(sorted(self._graphs))
        self._followed = {}
        self._specs = program.caches

    @override
    def _read(self, tokens: Sequence[int], start: int, caches: Sequence[Any]) -> NDArray[Any]:
        size = next(size for size in self._functions if size >= len(tokens))
        padded = [*tokens, *[0] * (size - len(tokens))]
        taken = [i for i, spec in enumerate(self._specs) if spec.drafts]
        rows = self.runtime._slot_caches(0)
        numbers = [np.array(values, np.int32) for values in (padded, [start], [len(tokens)])]
        graph = self._graphs[size]
        logits, *updated = evaluate(graph, [*numbers, *(rows[i] for i in taken)], self._parameters)
        for i, cache in zip(taken, updated, strict=True):
            rows[i] = cache
        row: NDArray[Any] = logits[0]
        return row

    def read(self, tokens: Sequence[int], start: int) -> None:
        """What the runtime says of a verify of these tokens."""
        self.keep(None, in_slot_0(tokens, start), len(tokens))

    def drafted(self, position: int) -> list[int]:
        drafts = self.draft(0, TOKENS[position], position, ())
        return [token for token, _ in itertools.islice(drafts, 3)]


@pytest.mark.parametrize("write", [write_llama, write_llama_gguf])
def test_drafts_are_those_of_transformers(
    write: Callable[[Path, int], Path], tmp_path: Path
) -> None:
    """After a prompt in chunks, tokens of other calls, and rejected drafts."""
    model = Drafting(
        write_llama(tmp_path / "large", LARGE), write(tmp_path / "small", SMALL), tmp_path
    )
    for start in range(0, FIRST, CHUNK):
        model.runtime.prefill(0, TOKENS[start : min(start + CHUNK, FIRST)], start)
    model.forget(0)
    found = []
    for at in range(FIRST, FIRST + 4):
        found.append(model.drafted(at))
        model.read([TOKENS[at], 5, 6], at)  # the last two are rejected
    assert found == DRAFTED[:4]
    assert model.drafted(FIRST + 9) == []  # tokens before it were not read
    model.read(TOKENS[FIRST + 4 : FIRST + 7], FIRST + 4)
    assert model.drafted(FIRST + 7) == DRAFTED[7]
    model.forget(0)
    assert model.drafted(FIRST) == DRAFTED[0]


class Recording(DeviceDraftModel):
    """Notes the tokens that the draft model has read, by position."""

    def __init__(self) -> None:
        self._functions = {1: None, 4: None}
        self._followed, self.rows = {}, dict[int, int]()

    @override
    def _read(self, tokens: Sequence[int], start: int, caches: Sequence[Any]) -> NDArray[Any]:
        assert len(tokens) <= 4
        self.rows |= dict(enumerate(tokens, start))
        logits = np.zeros(10, np.float32)
        logits[sum(self.rows.values()) % 10] = 1
        return logits


def test_the_draft_model_has_read_the_accepted_tokens() -> None:
    """Of random prompts, decodes, verifies and drafts in one slot."""
    random, model = np.random.default_rng(0), Recording()
    for _ in range(200):
        tokens = random.integers(0, 10, random.integers(0, 9)).tolist()
        if tokens:
            model.forget(0)
            model.rows |= dict(enumerate(tokens))  # a prefill
        token = 3
        for _ in range(random.integers(1, 8)):
            drafts: list[int] = []
            if random.random() < 0.6:
                drafted = model.draft(0, token, len(tokens), ())
                drafts = [x for x, _ in itertools.islice(drafted, int(random.integers(0, 4)))]
                latest = [*tokens, token]
                read = [model.rows[at] for at in range(len(latest))] if drafts else latest
                assert read == latest
            model.keep(None, in_slot_0([token, *drafts], len(tokens)), 1)
            accepted = random.integers(0, len(drafts) + 1)
            tokens += [token, *drafts[:accepted]]
            token = int(random.integers(0, 10))


def planned(weights: Path, drafter: Path) -> LanguagePlan:
    plan = resolve(bake_options({"weights": weights, "drafter": drafter, "context": 64}))
    assert isinstance(plan, LanguagePlan)
    return plan


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("draft") / "large", LARGE)


def test_the_plan_has_the_draft_model(large: Path, tmp_path: Path) -> None:
    small = write_llama_gguf(tmp_path / "small", SMALL)
    plan = planned(large, small)
    assert plan.program.verify_tokens == (2, 4, 8)
    assert plan.program.draft_tokens == 257
    assert plan.program.draft_sizes == (1, 16)
    assert plan.record.options["drafter"] == "model.gguf"
    assert plan.record.others == (small,)


def test_answers_need_no_sketch(large: Path, tmp_path: Path) -> None:
    """A bundle from before drafts had one is compared and tuned."""
    plan = planned(large, write_llama_gguf(tmp_path / "small", SMALL))
    program = plan.model.program(replace(plan.program, precision="int8-g32"))
    needed = answering_parameters(program)
    drafting = program.parameters.keys() - needed.keys()
    sketch = {f"drafter.lm_head.sketch_{name}" for name in ("weight", "scale")}
    assert {name for name in program.parameters if "sketch" in name} == sketch
    assert sketch < drafting
    assert all(name.startswith("drafter.") for name in drafting)
    assert "drafter.embed_tokens.upper" in needed


def test_another_vocabulary_is_rejected(large: Path, tmp_path: Path) -> None:
    small = write_llama(tmp_path / "small", SMALL)
    text = json.loads(tokenizer().to_str())
    vocabulary = text["model"]["vocab"]
    vocabulary["<0x20>"], vocabulary["<0x21>"] = vocabulary["<0x21>"], vocabulary["<0x20>"]
    (small / "tokenizer.json").write_text(json.dumps(text))
    message = r"--drafter: .* has another vocabulary than the model: token 32 is '<0x21>', expected"
    with pytest.raises(BadFile, match=message):
        planned(large, small)


def test_tensors_that_are_not_used_are_rejected(large: Path, tmp_path: Path) -> None:
    small = write_llama(tmp_path / "small", SMALL)
    data = json.loads((small / "config.json").read_text())
    (small / "config.json").write_text(json.dumps(data | {"num_hidden_layers": 1}))
    with pytest.raises(BadFile, match="the weights hold tensors that llama does not use"):
        planned(large, small)


def test_values_of_a_gguf_file_are_those_of_its_folder(large: Path, tmp_path: Path) -> None:
    """Rows of queries that a file has in another order among them."""
    small, base = write_llama_gguf(tmp_path / "small", SMALL), open_weights(large)
    file, folder = (
        WeightsWithDraftModel(base, open_draft_model(path, 64, None))
        for path in (small, small.parent)
    )
    drafted = [name for name in file.names() if name.startswith("drafter.")]
    assert len(drafted) == 21
    for name in drafted:
        assert file.shape(name) == folder.shape(name)
        assert (file.dtype(name), file.integer_storage(name)) == ("f32", None)
        np.testing.assert_array_equal(file.read(name), folder.read(name))
