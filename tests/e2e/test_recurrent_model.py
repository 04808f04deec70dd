"""Small recurrent models, baked: their states in slots, drafts and the prefix cache."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.baker.pipeline.bake import bake
from hearthd.baker.pipeline.stages import comparison_stage
from hearthd.bundle import LanguageManifest, read_manifest_of
from hearthd.runtime.interface import ALL_LOGITS
from hearthd.runtime.language_model import IreeRuntime
from hearthd.runtime.system.cpu_features import cpu_features
from hearthd.sampling.options import SamplingOptions
from hearthd.server.engine.drafting.drafts import costs_of
from hearthd.server.engine.engine import Engine
from hearthd.server.engine.generation import Request, Started, Token
from hearthd.server.engine.prefixes.prefix_cache import PrefixCache
from hearthd.server.engine.prefixes.prefix_store import PrefixStore
from hearthd.server.engine.prompt import Prompt
from tests.conftest import Silent, options_for
from tests.models.families.hybrid_models import CONFIGS, TEXT, write_model

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.server.engine.generation import Generation

READ = 200  # tokens of TEXT that are read in chunks


@pytest.fixture(
    scope="module",
    params=[("qwen35", "f32"), *((name, "int8-g32") for name in CONFIGS)],
    ids="-".join,
)
def runtime(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> IreeRuntime:
    folder = tmp_path_factory.mktemp("recurrent")
    name, precision = request.param
    options = {"slots": 2, "context": 1024, "precision": precision}
    weights = write_model(folder / "weights", name)
    bundle = bake(options_for(folder / "b", model=None, weights=weights, **options), Silent())
    cpu_features()  # asks for the registers of AMX
    return IreeRuntime(bundle, read_manifest_of(bundle, LanguageManifest), threads=2)


def read(runtime: IreeRuntime, slot: int, sizes: Sequence[int], count: int = READ) -> None:
    start, turn = 0, 0
    while start < count:
        stop = min(start + sizes[turn % len(sizes)], count)
        runtime.prefill(slot, TEXT[start:stop], start)
        start, turn = stop, turn + 1


def decoded(runtime: IreeRuntime, slot: int, position: int) -> NDArray[np.float32]:
    (row,) = runtime.decode([slot], [TEXT[position]], [position], [ALL_LOGITS])
    return np.asarray(row)


@pytest.mark.nightly
@pytest.mark.slow
def test_bits_depend_neither_on_chunks_nor_on_batches_nor_on_drafts(runtime: IreeRuntime) -> None:
    read(runtime, 0, [128])
    expected = [decoded(runtime, 0, READ + ahead) for ahead in range(5)]
    for sizes in ([16], [7], [5, 100, 3, 16, 1]):
        read(runtime, 0, sizes)
        assert np.array_equal(decoded(runtime, 0, READ), expected[0])
    read(runtime, 0, [128])
    read(runtime, 1, [128], 150)
    rows = runtime.decode([0, 1], [TEXT[READ], TEXT[150]], [READ, 150], [ALL_LOGITS] * 2)
    assert np.array_equal(rows[0], expected[0])
    for accepted in (1, 2, 3, 4):
        read(runtime, 0, [128])
        drafted = [*TEXT[READ : READ + accepted], 1, 2, 3][:4]
        verified = list(runtime.verify(0, drafted, READ, margin=ALL_LOGITS))
        assert all(map(np.array_equal, verified[:accepted], expected))
        assert np.array_equal(decoded(runtime, 0, READ + accepted), expected[accepted])


def much_changed(parameters: dict[str, NDArray[Any]], _: int = 0) -> dict[str, NDArray[Any]]:
    vectors = {name: 3 * array for name, array in parameters.items() if array.ndim == 1}
    return {**parameters, **vectors}


def baked_tolerance(folder: Path, activations: str) -> float:
    """The tolerance of a bundle of a small Qwen3.5 with rounded activations."""
    folder.mkdir()
    weights = write_model(folder / "weights", "qwen35")
    options = {"precision": "int8-g32", "activations": activations}
    bundle = bake(options_for(folder / "out", model=None, weights=weights, **options), Silent())
    return read_manifest_of(bundle, LanguageManifest).tolerance


@pytest.mark.nightly
@pytest.mark.slow
def test_the_tolerance_covers_how_far_rounding_changes_logits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison_stage, "slightly_changed", much_changed)
    assert baked_tolerance(tmp_path / "int16", "int16") < 0.1
    assert baked_tolerance(tmp_path / "int8", "int8") > 1.1


END = 256  # the token after each message


def conversation(seed: int) -> list[tuple[int, ...]]:
    """The prompts of a conversation that grows, is edited, branches, and is answered again."""
    rng = random.Random(seed)

    def message(shortest: int, longest: int) -> tuple[int, ...]:
        return (*rng.choices(range(256), k=rng.randrange(shortest, longest)), END)

    systems = random.Random(seed % 3)
    messages = [(*systems.choices(range(256), k=140), END), message(10, 150)]
    prompts = []
    for _ in range(5):
        prompts.append((*itertools.chain(*messages), 1, 2, 3))
        kind = rng.random()
        if kind < 0.2:
            continue
        if kind < 0.6:
            messages += [message(5, 80), message(5, 80)]
            continue
        kept = rng.randrange(1, len(messages))
        if kind < 0.8:
            messages[kept] = message(10, 120)
        else:
            messages = [*messages[:kept], message(10, 120)]
    return prompts


async def answered(generation: Generation) -> tuple[int, list[object]]:
    """How many tokens were cached, and the answer with its log-probabilities."""
    with generation:
        events = [event async for event in generation.events()]
    (started,) = (event for event in events if isinstance(event, Started))
    tokens: list[object] = [(e.id, e.logprobs) for e in events if isinstance(e, Token)]
    return started.cached_tokens, tokens


def serve(
    runtime: IreeRuntime, cache: PrefixCache | None, count: int
) -> list[list[tuple[int, list[object]]]]:
    """The answers in some conversations; with a cache, two conversations at a time."""
    costs = costs_of(runtime)
    engine = Engine(runtime, eos=(END,), queue_limit=99, cache=cache, costs=costs)
    engine.start()

    async def hold(seed: int) -> list[tuple[int, list[object]]]:
        sampling = SamplingOptions(temperature=0.0, logprobs=3)
        requests = (
            Request(prompt=Prompt(prompt), max_tokens=8, sampling=sampling, seed=1)
            for prompt in conversation(seed)
        )
        return [await answered(engine.submit(request)) for request in requests]

    async def hold_all() -> list[list[tuple[int, list[object]]]]:
        together, answers = 1 if cache is None else 2, []
        for seed in range(0, count, together):
            some = range(seed, min(seed + together, count))
            answers += await asyncio.gather(*map(hold, some))
        return answers

    try:
        return asyncio.run(hold_all())
    finally:
        engine.close()


def tokens_of(answers: list[list[tuple[int, list[object]]]]) -> list[list[list[object]]]:
    return [[tokens for _, tokens in answer] for answer in answers]


@pytest.mark.nightly
@pytest.mark.slow
def test_200_conversations_have_the_bits_of_a_server_without_a_cache(
    runtime: IreeRuntime, tmp_path: Path
) -> None:
    count = 200
    expected = tokens_of(serve(runtime, None, count))
    for limit in (2**28, 2**21):  # room for all of them, and for a few
        store = PrefixStore(tmp_path / str(limit), bundle=bytes(32), limit_bytes=2**30)
        for _ in range(2):  # the second time from the disk
            served = serve(runtime, PrefixCache(limit_bytes=limit, store=store), count)
            assert tokens_of(served) == expected
            assert sum(cached for answer in served for cached, _ in answer) > 50 * count
        store.close()
