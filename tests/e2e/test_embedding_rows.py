"""A prompt whose tokens are passed as their embeddings gives the bits that the tokens give.

The model is a Gemma 3 with random weights: its embeddings are scaled, one of its layers has a
window, and the prompts reach beyond the window and over the borders of chunks.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest

from hearthd.baker.pipeline.bake import resolve
from hearthd.baker.pipeline.kinds.bake_language_model import bake_language_model
from hearthd.baker.pipeline.language_plan import LanguagePlan
from hearthd.baker.reference.numpy_runtime import program_options, stored_parameters, traced
from hearthd.bundle import PARAMETERS
from hearthd.runtime.interface import NO_TOKEN
from hearthd.runtime.open_bundle import open_bundle
from hearthd.sampling.options import SamplingOptions
from hearthd.server.engine.generation import Request
from hearthd.server.engine.prefixes.prefix_cache import PrefixCache
from hearthd.server.engine.prefixes.prefix_store import PrefixStore
from hearthd.server.engine.prompt import EmbeddingRows, Prompt
from tests.baker.small_gemma import SMALL, small_gemma
from tests.conftest import Silent, few_entry_points, options_for
from tests.e2e.test_real_prefix_cache import serve
from tests.models.embedding_graph import embeddings
from tests.server.engine.test_engine_random import free_costs

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.runtime.language_model import IreeRuntime

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

CHUNK = 128
# The text ends as it begins, so tokens are drafted.
BEGINNING = tuple(range(60, 66))
TEXT = (*BEGINNING, *np.random.default_rng(3).integers(3, 60, 290).tolist(), *BEGINNING[:4])
LAST = len(TEXT) - 1
# Where the tokens are passed as rows.
AS_ROWS = {
    "all but the last": ((0, LAST),),
    "in the middle of a chunk": ((40, 60),),
    "over the borders of chunks": ((0, 2), (100, 140), (140, 150), (200, 290)),
    "before the last": ((LAST - 1, LAST),),
}


class Loaded(NamedTuple):
    """A runtime, and the rows of the embeddings of TEXT, f32 (len(TEXT), E)."""

    runtime: IreeRuntime
    rows: NDArray[np.float32]

    def request(self, spans: tuple[tuple[int, int], ...], source: bytes = b"") -> Request:
        """TEXT with some spans as rows, whose digests depend on `source`."""
        segments: list[tuple[int, ...] | EmbeddingRows] = []
        end = 0
        for start, stop in spans:
            rows = self.rows[start:stop]
            digest = hashlib.sha256(rows.tobytes() + source).digest()
            segments += [TEXT[end:start], EmbeddingRows(rows=rows, digest=digest)]
            end = stop
        prompt = Prompt(*segments, TEXT[end:])
        return Request(prompt=prompt, max_tokens=8, sampling=SamplingOptions(logprobs=7), seed=3)


@pytest.fixture(scope="module", params=[pytest.param("f32", marks=pytest.mark.nightly), "int8-g32"])
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    folder = tmp_path_factory.mktemp("rows")
    # The kernels take heads of this width. The root of the hidden width is no whole number.
    weights = small_gemma(folder / "weights", replace(SMALL, hidden=96))
    options = options_for(
        folder / "bundle", weights=weights, precision=request.param, context=1024, slots=2
    )
    with few_entry_points():
        plan = resolve(options)
    assert isinstance(plan, LanguagePlan)
    bundle = bake_language_model(
        replace(plan, program=replace(plan.program, reads_rows=True)), Silent()
    )
    manifest, runtime = open_bundle(bundle, threads=1)
    assert program_options(manifest).reads_rows
    assert len([name for name in runtime.variants() if "prefill_rows" in name]) == 1
    program = traced(manifest)
    parameters = stored_parameters(program.parameters, bundle / PARAMETERS)
    chunks = [TEXT[start : start + CHUNK] for start in range(0, len(TEXT), CHUNK)]
    rows = [embeddings(program, chunk, parameters) for chunk in chunks]
    return Loaded(runtime, np.concatenate(rows))


@pytest.fixture(scope="module")
def expected(loaded: Loaded) -> list[object]:
    """The answer to the tokens: alone, without a cache and without drafts."""
    ((cached, answer),) = serve(loaded.runtime, None, loaded.request(()))
    assert cached == 0
    assert len(answer) == 8
    return answer


@pytest.fixture(params=AS_ROWS)
def rows_request(request: pytest.FixtureRequest, loaded: Loaded) -> Request:
    return loaded.request(AS_ROWS[request.param])


@pytest.mark.nightly
def test_cached_rows_give_the_bits_of_tokens(
    loaded: Loaded, expected: list[object], rows_request: Request
) -> None:
    cache = PrefixCache(limit_bytes=2**28)
    assert serve(loaded.runtime, cache, rows_request) == [(0, expected)]
    assert serve(loaded.runtime, cache, rows_request) == [(LAST, expected)]


def test_rows_that_are_restored_from_disk_give_the_bits_of_tokens(
    loaded: Loaded, expected: list[object], rows_request: Request, tmp_path: Path
) -> None:
    for cached in (0, LAST // CHUNK * CHUNK):
        store = PrefixStore(tmp_path, bundle=bytes(32), limit_bytes=2**30)
        cache = PrefixCache(limit_bytes=2**28, store=store)
        assert serve(loaded.runtime, cache, rows_request) == [(cached, expected)]
        store.close()
    assert cache.state().disk_hits == LAST // CHUNK


def test_drafts_after_rows_give_the_bits_of_tokens(
    loaded: Loaded,
    expected: list[object],
    rows_request: Request,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    verified: list[int] = []
    verify = loaded.runtime.verify

    def counted(slot: int, tokens: tuple[int, ...], start: int, *, margin: int) -> object:
        verified.append(len(tokens))
        return verify(slot, tokens, start, margin=margin)

    monkeypatch.setattr(loaded.runtime, "verify", counted)
    costs = free_costs(loaded.runtime)
    assert serve(loaded.runtime, None, rows_request, costs=costs) == [(0, expected)]
    assert verified or rows_request.prompt[len(TEXT) - 2 :].row_segments


def test_rows_in_a_batch_give_the_bits_of_tokens(
    loaded: Loaded, expected: list[object], rows_request: Request
) -> None:
    other = replace(loaded.request(()), prompt=Prompt(TEXT[5:90]), max_tokens=20)
    both = serve(loaded.runtime, PrefixCache(limit_bytes=2**28), other, rows_request)
    assert both[1] == (0, expected)
    twice = serve(loaded.runtime, None, rows_request, loaded.request(()))
    assert [answer for _, answer in twice] == [expected, expected]


def test_blocks_are_shared_up_to_the_first_rows_of_another_digest(
    loaded: Loaded, expected: list[object]
) -> None:
    cache = PrefixCache(limit_bytes=2**28)
    spans = ((150, 170),)
    serve(loaded.runtime, cache, loaded.request(spans))
    assert serve(loaded.runtime, cache, loaded.request(spans, b"other")) == [(CHUNK, expected)]


@pytest.mark.parametrize("count", [None, 1])
def test_every_position_without_a_token_has_a_row(loaded: Loaded, count: int | None) -> None:
    rows = None if count is None else loaded.rows[:count]
    with pytest.raises(AssertionError, match=r"token -1|\(1, 96\) for 2"):
        loaded.runtime.prefill(0, [NO_TOKEN, NO_TOKEN], 0, rows)


def test_other_rows_give_another_answer(loaded: Loaded, expected: list[object]) -> None:
    other = Loaded(loaded.runtime, loaded.rows[::-1])
    ((_, answer),) = serve(loaded.runtime, None, other.request(((40, 60),)))
    assert answer != expected
