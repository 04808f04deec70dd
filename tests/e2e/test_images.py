"""Small models with random weights, baked and served, answer as transformers does.

`python -m tests.golden.record_image_answer` records them.
"""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from benchmarks.memory_contract import resident
from hearthd.baker.pipeline.bake import bake
from hearthd.bundle import LanguageManifest, read_manifest_of
from hearthd.models.decoder import tower_entry_points
from hearthd.server.services.engine_options import EngineOptions
from hearthd.server.services.language_service import open_language_service
from tests.conftest import Silent, few_entry_points, options_for
from tests.e2e.image_models import MODELS, answers
from tests.e2e.media_chat import (
    answered,
    answered_from_caches,
    ask,
    question,
    require_best,
    tokens_of,
)
from tests.patience import PATIENCE
from tests.server.fakes import running

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.image_models import Item

pytestmark = pytest.mark.slow

SIZE = (100, 60)
READ_BOTH = ("gemma4-sound", "gemma4-unified", "qwen2.5-omni")
TEXTS = ("What is this?", "And this?")
CACHE = 2**22


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=[pytest.mark.nightly] * model.nightly)
        for name, model in MODELS.items()
    ],
)
def model(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def bundle(model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    options = options_for(
        folder / "bundle",
        model=None,
        weights=MODELS[model].write(folder / "weights"),
        precision=MODELS[model].precision,
        context=1024,
        slots=3,
    )
    with few_entry_points(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(tower_entry_points, "SLICE_WORK", 2**18)
        return bake(options, Silent())


@pytest.mark.nightly
def test_the_tower_is_computed_in_slices(bundle: Path) -> None:
    manifest = read_manifest_of(bundle, LanguageManifest)
    points = [point for point in manifest.entry_points if point.kind == "image"]
    assert points
    for point in points:
        assert point.slices > 2, point.name
        assert point.kept > 0, point.name


def test_the_tower_was_compared_with_numpy(model: str, bundle: Path) -> None:
    image = read_manifest_of(bundle, LanguageManifest).golden_image
    assert image is not None
    assert (image.side, len(image.values)) == (MODELS[model].side, MODELS[model].row_width)


def test_the_answer_about_images_is_that_of_transformers(
    model: str, bundle: Path, tmp_path: Path
) -> None:
    """Also with the prompt from the prefix cache, from disk, and in a batch: with the same bits."""
    expected, body = answers()[model], question(MODELS[model].question)
    seen = answered_from_caches(bundle, body, tmp_path)
    end = expected["prompt_tokens"] - 1
    for answer, cached in zip(seen, (0, end, MODELS[model].restored, end), strict=True):
        tokens = tokens_of(answer)
        assert [token["bytes"] for token in tokens] == [[id_] for id_ in expected["answer"]]
        assert answer["usage"]["prompt_tokens"] == expected["prompt_tokens"]
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == cached
        assert tokens == tokens_of(seen[0])


@pytest.mark.nightly
@pytest.mark.parametrize("model", READ_BOTH, indirect=True)
def test_no_question_gets_the_rows_of_another(bundle: Path) -> None:
    """Of images and sounds of the same sizes, in either order and in one batch."""
    orders = ((16_000, "And", SIZE), (SIZE, "And", 16_000), (SIZE, 16_000), (16_000, SIZE))
    bodies = [question((*order, "?"), seed) for seed in (0, 1) for order in orders]
    alone = [tokens for tokens, _ in answered(bundle, bodies, EngineOptions(cache_ram=0))]
    assert len({str(tokens) for tokens in alone}) == len(bodies)
    options = EngineOptions(cache_ram=2**26)
    with (
        running(open_language_service(bundle, threads=1, options=options)) as client,
        ThreadPoolExecutor(3) as pool,
    ):
        for _ in range(2):
            seen = pool.map(functools.partial(ask, client), bodies)
            assert list(map(tokens_of, seen)) == alone


@pytest.mark.nightly
def test_a_generated_placeholder_is_read_as_its_token(model: str, bundle: Path) -> None:
    manifest = read_manifest_of(bundle, LanguageManifest)
    settings: dict[str, Any] = {"image": manifest.image_settings, "audio": manifest.sound}
    with running(open_language_service(bundle, threads=1)) as client:
        for kind, best in answers()[model]["after_placeholders"].items():
            name = settings[kind].placeholder
            require_best(client, bundle, MODELS[model].question, name, best)


def test_a_second_question_runs_no_tower_after_a_restart(bundle: Path, tmp_path: Path) -> None:
    """It has the bits of a server that reads everything."""
    kept = EngineOptions(cache_ram=2**26, cache_dir=tmp_path)
    [(_, runs)] = answered(bundle, [question((SIZE, TEXTS[0]))], kept)
    assert runs > 0
    second = [question((SIZE, TEXTS[1]))]
    [(answer, runs)] = answered(bundle, second, kept)
    assert runs == 0
    [(expected, runs)] = answered(bundle, second, EngineOptions(cache_ram=0))
    assert runs > 0
    assert answer == expected


@pytest.mark.nightly
def test_a_thousand_images_stay_in_the_memory_of_the_contract(bundle: Path) -> None:
    manifest = read_manifest_of(bundle, LanguageManifest)
    needed = manifest.memory.needed(2, CACHE)
    command = (sys.executable, "-m", "hearthd", "serve", str(bundle), "--port", "0")
    limits = ("--max-memory", str(needed), "--cache-ram", str(CACHE), "--threads", "1")
    with subprocess.Popen((*command, *limits), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = re.search(r"http://\S+", process.stdout.readline())
            assert address
            with httpx.Client(base_url=address.group(), timeout=PATIENCE) as client:
                memory = [
                    memory_after(client, process.pid, range(start, start + 100))
                    for start in range(0, 1000, 100)
                ]
                rows = prompt_tokens(client, SIZE) - prompt_tokens(client)
        finally:
            process.kill()
    assert max(memory) <= needed
    # Rows are kept. The pixels of a square are 3 KB.
    kept = 500 * rows * manifest.row_width * 4
    assert memory[-1] - memory[4] < kept + 3_000_000, memory


def prompt_tokens(client: httpx.Client, *images: Item) -> int:
    """The tokens of a question with images."""
    answer = ask(client, question((*images, TEXTS[0])))
    count: int = answer["usage"]["prompt_tokens"]
    return count


def memory_after(client: httpx.Client, pid: int, seeds: range) -> int:
    """The resident memory of a server after questions about different images."""
    for seed in seeds:
        ask(client, question((SIZE, TEXTS[0]), seed, max_tokens=1))
    return resident(pid)[1]
