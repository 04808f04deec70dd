"""A small bundle with a drafter: its drafts are NumPy's, and answers have the bits of none."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from hearthd.baker.adapters.drafted_weights import DraftedWeights, model_drafter
from hearthd.baker.parameters.parameter_writer import tensors_of
from hearthd.baker.pipeline.bake import bake
from hearthd.baker.precision.kl_from_f32 import Meter
from hearthd.baker.reference.numpy_runtime import stored_parameters, traced
from hearthd.baker.tuning.bundle_weights import BundleWeights
from hearthd.baker.weights.open_weights import open_weights
from hearthd.baker.weights.source import BadFile
from hearthd.bundle import DRAFTER, PARAMETERS, LanguageManifest, read_manifest_of
from hearthd.models.decoder.drafting.drafter import DraftLayer
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.families.gemma3 import ARCHITECTURE
from hearthd.runtime.drafter_file import HEAD_TOKENS
from hearthd.runtime.iree.device_drafter import DeviceDrafter
from hearthd.runtime.language_model import IreeRuntime
from hearthd.sampling.options import SamplingOptions
from hearthd.server.engine.engine import Engine
from hearthd.server.engine.generation import Request, Token
from hearthd.server.engine.prefixes.prefix_cache import PrefixCache
from hearthd.server.engine.prompt import Prompt
from tests.baker.small_gemma import SMALL, small_gemma
from tests.conftest import Silent, few_entry_points, options_for
from tests.server.engine.test_engine_random import Free, free_costs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

pytestmark = pytest.mark.nightly

HEAD = np.arange(0, 256, 2)
TEXT = np.random.default_rng(0).integers(0, 256, 60).tolist()


def write_drafter(folder: Path, hidden: int = SMALL.hidden, **changes: Any) -> Path:
    """Write a drafter of random weights; returns its folder."""
    folder.mkdir()
    rng = np.random.default_rng(1)
    tensors = {
        f"drafter.layer.{name}": (rng.normal(size=x.shape) / np.sqrt(x.shape[-1])).astype(
            np.float16
        )
        for name, x in DraftLayer(hidden).parameters().items()
    }
    save_file({HEAD_TOKENS: HEAD.astype(np.float32), **tensors, **changes}, folder / DRAFTER)
    return folder


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drafter")
    weights, drafter = small_gemma(folder / "weights"), write_drafter(folder / "drafter")
    options = options_for(
        folder / "b", weights=weights, precision="int8-g32", slots=2, drafter=drafter
    )
    with few_entry_points():
        return bake(options, Silent())


@pytest.fixture(scope="module")
def runtime(bundle: Path) -> IreeRuntime:
    return IreeRuntime(bundle, read_manifest_of(bundle, LanguageManifest), threads=2)


def drafted(runtime: IreeRuntime, token: int, position: int) -> list[tuple[int, float]]:
    return list(itertools.islice(runtime.draft(0, token, position), 4))


def test_drafts_are_those_of_numpy(bundle: Path, runtime: IreeRuntime) -> None:
    """From the state after a decode, by NumPy from the same weights."""
    program = traced(read_manifest_of(bundle, LanguageManifest))
    parameters = stored_parameters(program.parameters, bundle / PARAMETERS)
    (draft,) = (graph for point, graph in program.entry_points if point.kind == "draft")
    runtime.prefill(0, TEXT[:20], 0)
    runtime.decode([0], TEXT[20:21], [20])
    assert isinstance(runtime._drafting, DeviceDrafter)
    state: NDArray[np.float32] = runtime._drafting._states[0][20][np.newaxis]
    token = TEXT[21]
    for drafted_token, probability in drafted(runtime, token, 21):
        logits, state = evaluate(draft, [np.array([token], np.int32), state], parameters)
        weights = np.exp(logits[0] - logits[0].max())
        token = int(HEAD[logits[0].argmax()])
        assert drafted_token == token
        assert probability == pytest.approx(1 / weights.sum(), rel=1e-2)


def test_a_verify_leaves_the_states_of_decodes(runtime: IreeRuntime) -> None:
    """After rejected drafts too: a sequence that never drafted gets the same next draft."""
    runtime.prefill(0, TEXT[:20], 0)
    plain = []
    for at in range(20, 26):
        runtime.decode([0], TEXT[at : at + 1], [at])
        plain.append(drafted(runtime, TEXT[at + 1], at + 1))
    runtime.prefill(0, TEXT[:20], 0)
    list(runtime.verify(0, [*TEXT[20:22], 5, 6], 20))  # the last two are rejected
    assert [drafted(runtime, TEXT[at + 1], at + 1) for at in (20, 21)] == plain[:2]
    list(runtime.verify(0, TEXT[22:26], 22))
    assert [drafted(runtime, TEXT[at + 1], at + 1) for at in range(22, 26)] == plain[2:]


def test_logits_are_the_callers_after_later_calls(runtime: IreeRuntime) -> None:
    runtime.prefill(0, TEXT[:20], 0)
    (decoded,) = runtime.decode([0], TEXT[20:21], [20])
    rows = [decoded, *runtime.verify(0, TEXT[20:24], 20)]
    copies = [row.copy() for row in rows]
    for token in range(9):
        runtime.decode([0], [token], [20])
        list(runtime.verify(0, [token, 1, 2, 3], 20))
    assert all(np.array_equal(row, copied) for row, copied in zip(rows, copies, strict=True))
    assert np.array_equal(rows[0], rows[1])


def test_nothing_is_drafted_without_a_state(runtime: IreeRuntime) -> None:
    runtime.prefill(0, TEXT[:20], 0)
    runtime.decode([0], TEXT[20:21], [20])
    assert drafted(runtime, 5, 30) == []
    rows = runtime.save(0, 20, 21)
    runtime.prefill(0, TEXT[:20], 0)
    assert drafted(runtime, TEXT[20], 20) == []
    runtime.decode([0], TEXT[20:21], [20])
    runtime.restore(0, 20, [rows])
    assert drafted(runtime, TEXT[21], 21) == []


def test_the_divergence_of_a_precision_is_that_without_a_drafter(bundle: Path) -> None:
    """`--precision auto` measures it by a program that drafts nothing."""
    source = open_weights(bundle.parent / "weights")
    drafter = model_drafter(bundle, ARCHITECTURE, SMALL)
    with_drafter = DraftedWeights(source, drafter, ARCHITECTURE, SMALL)
    measured, expected = (
        Meter(weights, ARCHITECTURE, SMALL, [tuple(TEXT[:4])]).measure("int8-g32")
        for weights in (with_drafter, source)
    )
    assert measured == expected


def test_a_bundle_with_a_drafter_has_the_weights_to_tune(bundle: Path) -> None:
    shapes = {name: x.shape for name, x in ARCHITECTURE.model(SMALL).parameters().items()}
    found = tensors_of(BundleWeights(bundle), ARCHITECTURE, SMALL, shapes)
    assert found.keys() == shapes.keys()


def answers(
    runtime: IreeRuntime, requests: Sequence[Request], costs: dict[int, Free] | None
) -> list[object]:
    """The tokens of requests with their log-probabilities; the last two are served together."""
    engine = Engine(
        runtime, eos=(), queue_limit=9, cache=PrefixCache(limit_bytes=1 << 20), costs=costs
    )
    engine.start()

    async def answer(request: Request) -> tuple[list[object], int]:
        with engine.submit(request) as generation:
            tokens = [event async for event in generation.events() if isinstance(event, Token)]
        return [(token.id, token.logprobs) for token in tokens], tokens[-1].drafted

    async def every() -> list[tuple[list[object], int]]:
        alone = [await answer(request) for request in requests[:-2]]
        return [*alone, *await asyncio.gather(*map(answer, requests[-2:]))]

    try:
        received = asyncio.run(every())
    finally:
        engine.close()
    assert (costs is None) == (sum(count for _, count in received) == 0)
    return [tokens for tokens, _ in received]


def test_answers_have_the_bits_of_plain_decoding(runtime: IreeRuntime) -> None:
    greedy = SamplingOptions(temperature=0.0, logprobs=3)
    penalized = replace(greedy, repeat_penalty=1.3, logit_bias=((7, 2.0),))
    hot = SamplingOptions(temperature=1.0, logprobs=3)
    requests = [
        Request(prompt=Prompt(tuple(TEXT[:count])), max_tokens=24, sampling=sampling, seed=seed)
        for seed, (count, sampling) in enumerate(
            [(30, greedy), (30, penalized), (30, hot), (1, hot), (40, hot), (41, greedy)]
        )
    ]
    assert answers(runtime, requests, free_costs(runtime)) == answers(runtime, requests, None)


@pytest.mark.parametrize(
    ("hidden", "changes", "message"),
    [
        (SMALL.hidden * 2, {}, "is not a drafter of gemma3 with hidden states of width"),
        (
            SMALL.hidden,
            {HEAD_TOKENS: np.array([3, 2], np.float32)},
            "expected head_tokens, ascending",
        ),
        (
            SMALL.hidden,
            {HEAD_TOKENS: np.array([0, 9e6], np.float32)},
            "expected head_tokens, ascending",
        ),
        (
            SMALL.hidden,
            {HEAD_TOKENS: np.array([0.5], np.float32)},
            "expected head_tokens, ascending",
        ),
        (SMALL.hidden, {"drafter.layer.x": np.array([np.nan], np.float32)}, "that are not finite"),
    ],
)
def test_a_drafter_of_another_model_is_rejected(
    tmp_path: Path, hidden: int, changes: dict[str, Any], message: str
) -> None:
    folder = write_drafter(tmp_path / "d", hidden, **changes)
    with pytest.raises(BadFile, match=message):
        model_drafter(folder, ARCHITECTURE, SMALL)


def test_a_file_that_is_no_drafter_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="cannot read"):
        model_drafter(tmp_path, ARCHITECTURE, SMALL)
    (tmp_path / DRAFTER).write_bytes(b"GGUF")
    with pytest.raises(BadFile, match="not a complete safetensors file"):
        model_drafter(tmp_path, ARCHITECTURE, SMALL)
