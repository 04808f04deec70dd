"""Small bundles of Qwen3.5 with and without the layer that drafts tokens: the answers are equal."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from typing_extensions import override

from hearthd.baker.pipeline.bake import bake
from hearthd.bundle import LanguageManifest, read_manifest_of
from hearthd.runtime.language_model import IreeRuntime
from hearthd.sampling.options import SamplingOptions
from hearthd.server.engine.engine import Engine
from hearthd.server.engine.generation import Request, Token
from hearthd.server.engine.prefixes.prefix_cache import PrefixCache
from hearthd.server.engine.prompt import Prompt
from tests.conftest import Silent, few_entry_points, options_for
from tests.models.families.gemma4_pair import CLUSTERED
from tests.models.families.mtp_models import write_mtp_model
from tests.server.engine.test_engine_random import Free, free_costs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

pytestmark = [pytest.mark.nightly, pytest.mark.slow]
TEXT = np.random.default_rng(0).integers(0, 256, 300).tolist()
READ = 150  # tokens of TEXT that are read as a prompt


class Notes(Silent):
    """Keeps the notes of a bake."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    @override
    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture(scope="module", params=["qwen35", "qwen35moe"])
def weights(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mtp_model(tmp_path_factory.mktemp("mtp") / "weights", request.param, right=True)


def baked(weights: Path, **options: str) -> tuple[IreeRuntime, list[str]]:
    notes, out = Notes(), weights.parent / f"bundle{len(options)}"
    shape = {"slots": 2, "context": 512, "precision": "int8-g32", **options}
    with few_entry_points():
        bundle = bake(options_for(out, model=None, weights=weights, **shape), notes)
    manifest = read_manifest_of(bundle, LanguageManifest)
    return IreeRuntime(bundle, manifest, threads=2), notes.notes


@pytest.fixture(scope="module")
def drafting(weights: Path) -> IreeRuntime:
    runtime, notes = baked(weights)
    assert any("--drafter none leaves it out" in note for note in notes)
    return runtime


@pytest.fixture(scope="module")
def plain(weights: Path) -> IreeRuntime:
    runtime, notes = baked(weights, drafter="none")
    assert not any("(MTP)" in note for note in notes)
    return runtime


class EveryThird:
    """A constraint: every third id."""

    finished = False

    def allowed(self) -> NDArray[np.bool_]:
        # For the model with most tokens.
        return np.array([id_ % 3 == 0 for id_ in range(CLUSTERED)])

    def accept(self, token: int) -> None:
        assert token % 3 == 0


def requests() -> Iterator[Request]:
    greedy = SamplingOptions(temperature=0.0, logprobs=3)
    hot = SamplingOptions(temperature=1.0, logprobs=3)
    penalized = SamplingOptions(temperature=0.0, logprobs=3, repeat_penalty=1.3)
    choices = [(greedy, False), (hot, False), (penalized, False), (greedy, True), (hot, True)]
    # Prompts are restored from the prefix cache, too: all begin alike.
    chance = random.Random(0)
    counts = [READ, 30, READ, 290, *(chance.randint(1, 290) for _ in range(196))]
    for seed, (count, (sampling, constrained)) in enumerate(itertools.product(counts, choices)):
        yield Request(
            prompt=Prompt(tuple(TEXT[:count])),
            max_tokens=40,
            sampling=sampling,
            seed=seed,
            constraint=EveryThird() if constrained else None,
        )


def answers(runtime: IreeRuntime, costs: dict[int, Free] | None) -> tuple[list[object], int]:
    """The tokens of requests with their log-probabilities, and how many drafts were accepted.

    Every fourth request is served together with the next one.
    """
    cache = PrefixCache(limit_bytes=1 << 24)
    engine = Engine(runtime, eos=(), queue_limit=9, cache=cache, costs=costs)
    engine.start()

    async def answer(request: Request) -> tuple[list[object], int]:
        with engine.submit(request) as generation:
            tokens = [event async for event in generation.events() if isinstance(event, Token)]
        return [(token.id, token.logprobs) for token in tokens], tokens[-1].accepted

    async def every() -> list[tuple[list[object], int]]:
        found: list[tuple[list[object], int]] = []
        pending = list(requests())
        while pending:
            size = 1 + (len(found) % 4 == 3)
            together, pending = pending[:size], pending[size:]
            found += await asyncio.gather(*map(answer, together))
        return found

    try:
        received = asyncio.run(every())
    finally:
        engine.close()
    return [tokens for tokens, _ in received], sum(accepted for _, accepted in received)


def test_answers_have_the_bits_of_a_bundle_without_the_layer(
    drafting: IreeRuntime, plain: IreeRuntime
) -> None:
    assert drafting.has_drafter
    assert not plain.has_drafter
    expected, _ = answers(plain, None)
    assert answers(drafting, None) == (expected, 0)
    found, accepted = answers(drafting, free_costs(drafting))
    assert found == expected
    _, from_lookup = answers(plain, free_costs(plain))
    assert accepted > from_lookup + 20


def read(runtime: IreeRuntime, slot: int = 0) -> None:
    """Read the prompt."""
    for start in range(0, READ, 128):
        runtime.prefill(slot, TEXT[start : min(start + 128, READ)], start)


def drafted(runtime: IreeRuntime, slot: int, position: int) -> list[tuple[int, float]]:
    drafts = runtime.draft(slot, TEXT[position], position)
    return list(itertools.islice(drafts, 4))


def after(runtime: IreeRuntime, slot: int = 0) -> list[list[tuple[int, float]]]:
    """The drafts after each of some decodes."""
    found = []
    for at in range(READ, READ + 6):
        runtime.decode([slot], [TEXT[at]], [at])
        found.append(drafted(runtime, slot, at + 1))
    return found


def test_drafts_are_those_of_the_model(drafting: IreeRuntime) -> None:
    read(drafting)
    token, taken, count = TEXT[READ], 0, 30
    latest = -1
    for at in range(READ, READ + count):
        (logits,) = drafting.decode([0], [token], [at])
        token = int(logits.argmax())
        taken += token == latest
        latest, _ = next(drafting.draft(0, token, at + 1))
    assert taken > count // 2


def test_drafts_depend_neither_on_rejected_ones_nor_on_a_restored_prompt(
    drafting: IreeRuntime,
) -> None:
    read(drafting)
    expected = after(drafting)
    read(drafting)
    found = []
    for at in range(READ, READ + 6, 2):
        list(drafting.verify(0, [*TEXT[at : at + 2], 5, 6], at))  # the last two are rejected
        found += [drafted(drafting, 0, at + 1), drafted(drafting, 0, at + 2)]
    assert found == expected
    read(drafting)
    rows, states = drafting.save(0, 0, 128), None
    drafting.prefill(0, TEXT[:128], 0)
    states = drafting.save_states(0, 128)
    drafting.prefill(1, TEXT[100:200], 0)
    drafting.restore(1, 0, [rows], states)
    assert drafted(drafting, 1, READ) == []
    drafting.prefill(1, TEXT[128:READ], 128)
    assert after(drafting, 1) == expected
    mates = after_together(drafting)
    assert mates == expected


def after_together(runtime: IreeRuntime) -> Sequence[object]:
    """As `after`, in batches of two whose second sequence is at another position."""
    read(runtime)
    runtime.prefill(1, TEXT[:70], 0)
    found = []
    for step in range(6):
        at, other = READ + step, 70 + step
        runtime.decode([0, 1], [TEXT[at], TEXT[other]], [at, other])
        found.append(drafted(runtime, 0, at + 1))
        drafted(runtime, 1, other + 1)
    return found
