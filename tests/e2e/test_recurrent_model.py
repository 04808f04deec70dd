"""A small Qwen3.5 with random weights, baked: its states in slots, drafts and the prefix cache."""

from __future__ import annotations

import asyncio
import json
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from examples.train_tiny_gemma import tokenizer
from hearthd.baker.pipeline.bake import bake
from hearthd.bundle import LanguageManifest, read_manifest_of
from hearthd.models.families.qwen35 import ARCHITECTURE, Qwen35
from hearthd.runtime.cpu_features import cpu_features
from hearthd.runtime.language_model import IreeRuntime
from hearthd.sampling.options import SamplingOptions
from hearthd.server.engine.drafts import Costs
from hearthd.server.engine.engine import Engine
from hearthd.server.engine.generation import Request, Started, Token
from hearthd.server.engine.prefix_cache import PrefixCache
from hearthd.server.engine.prefix_store import PrefixStore
from hearthd.server.engine.prompt import Prompt
from tests.conftest import Silent, options_for
from tests.models.families.cases import random_tensors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.server.engine.generation import Generation

CONFIG: dict[str, Any] = {
    "model_type": "qwen3_5_text", "num_hidden_layers": 4, "hidden_size": 128,
    "intermediate_size": 192, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
    "max_position_embeddings": 2048, "vocab_size": 257, "rms_norm_eps": 1e-6, "eos_token_id": 256,
    "tie_word_embeddings": True, "linear_num_key_heads": 8, "linear_num_value_heads": 16,
    "linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4,
    "rope_parameters": {
        "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25,
    },
}  # fmt: skip
TEXT = np.random.default_rng(0).integers(0, 256, 300).tolist()
READ = 200  # tokens of TEXT that are read in chunks


def write_model(folder: Path) -> Path:
    """Write the model as a Hugging Face folder; returns it."""
    folder.mkdir()
    config = ARCHITECTURE.from_hugging_face(CONFIG)
    shapes = {}
    for name, tensor in Qwen35(config).parameters().items():
        stored = ARCHITECTURE.tensors.find(config, name, (), gguf=False).name
        wide = "conv1d" in name
        shapes[stored] = (tensor.shape[0], 1, tensor.shape[1]) if wide else tensor.shape
    save_file(random_tensors(shapes), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    tokenizer().save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module", params=["f32", "int8-g32"])
def runtime(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> IreeRuntime:
    folder = tmp_path_factory.mktemp("recurrent")
    options = {"slots": 2, "context": 1024, "precision": request.param}
    weights = write_model(folder / "weights")
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
    (row,) = runtime.decode([slot], [TEXT[position]], [position], [True])
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
    rows = runtime.decode([0, 1], [TEXT[READ], TEXT[150]], [READ, 150], [True, True])
    assert np.array_equal(rows[0], expected[0])
    for accepted in (1, 2, 3, 4):
        read(runtime, 0, [128])
        drafted = [*TEXT[READ : READ + accepted], 1, 2, 3][:4]
        verified = list(runtime.verify(0, drafted, READ, exact=True))
        assert all(map(np.array_equal, verified[:accepted], expected))
        assert np.array_equal(decoded(runtime, 0, READ + accepted), expected[accepted])


def prompts(count: int) -> Iterator[tuple[int, ...]]:
    """The prompts of conversations that grow, are edited, branch, and ask again."""
    rng = random.Random(0)

    def some(length: int) -> tuple[int, ...]:
        return tuple(rng.randrange(256) for _ in range(length))

    system = some(140)
    while count:
        text = (*system, *some(rng.randrange(20, 300)))
        for _ in range(min(count, 4)):
            yield text
            count -= 1
            kind = rng.random()
            if kind < 0.3:
                text = (*text[: len(text) // 2], *some(40))
            elif kind < 0.8:
                text = (*text, *some(60))


async def answered(generation: Generation) -> tuple[int, list[object]]:
    """How many tokens were cached, and the answer with its log-probabilities."""
    with generation:
        events = [event async for event in generation.events()]
    (started,) = (event for event in events if isinstance(event, Started))
    tokens: list[object] = [(e.id, e.logprobs) for e in events if isinstance(e, Token)]
    return started.cached_tokens, tokens


@pytest.mark.nightly
@pytest.mark.slow
def test_conversations_have_the_bits_of_a_server_without_a_cache(
    runtime: IreeRuntime, tmp_path: Path
) -> None:
    requests = [
        Request(
            prompt=Prompt(prompt),
            max_tokens=8,
            sampling=SamplingOptions(temperature=0.0, logprobs=3),
            seed=1,
        )
        for prompt in prompts(40)
    ]

    def serve(cache: PrefixCache | None) -> list[tuple[int, list[object]]]:
        costs = Costs(runtime.verify_tokens)
        engine = Engine(runtime, eos=(), queue_limit=99, cache=cache, costs=costs)
        engine.start()

        async def one_by_one() -> list[tuple[int, list[object]]]:
            return [await answered(engine.submit(request)) for request in requests]

        try:
            return asyncio.run(one_by_one())
        finally:
            engine.close()

    expected = [answer for _, answer in serve(None)]
    for limit in (2**28, 2**21):  # all of them, and a few
        store = PrefixStore(tmp_path / str(limit), bundle=bytes(32), limit_bytes=2**30)
        for _ in range(2):  # the second time from the disk
            served = serve(PrefixCache(limit_bytes=limit, store=store))
            assert [answer for _, answer in served] == expected
            assert sum(cached for cached, _ in served) > 1000
        store.close()
