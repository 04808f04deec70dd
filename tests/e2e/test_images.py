"""Small models with random weights, baked and served, answer as transformers does.

`python -m tests.golden.record_image_answer` records them.
"""

from __future__ import annotations

import base64
import io
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from PIL import Image

from benchmarks.memory_contract import resident
from hearthd.baker.pipeline.bake import bake
from hearthd.bundle import LanguageManifest, read_manifest_of
from hearthd.models.decoder import tower_entry_points
from hearthd.server.services.engine_options import EngineOptions
from hearthd.server.services.language_service import open_language_service
from tests.baker.small_gemma4_sound import samples, wav
from tests.baker.small_smolvlm import pixels
from tests.conftest import Silent, few_entry_points, options_for
from tests.e2e.image_models import LENGTH, MODELS, Item, answers
from tests.patience import PATIENCE
from tests.server.fakes import running

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

pytestmark = pytest.mark.slow

SIZE = (100, 60)
TEXTS = ("What is this?", "And this?")
CACHE = 2**22


def part(item: Item, seed: int = 0) -> dict[str, object]:
    if isinstance(item, str):
        return {"type": "text", "text": item}
    if isinstance(item, int):
        sound = base64.b64encode(wav(samples(item, seed))).decode()
        return {"type": "input_audio", "input_audio": {"data": sound, "format": "wav"}}
    file = io.BytesIO()
    Image.fromarray(pixels(*item, seed)).save(file, "PNG")
    data = base64.b64encode(file.getvalue()).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def ask(client: httpx.Client, content: Sequence[Item]) -> dict[str, Any]:
    body = {
        "messages": [{"role": "user", "content": [part(item) for item in content]}],
        "max_tokens": LENGTH,
        "temperature": 0,
        "logprobs": True,
    }
    response = client.post("/v1/chat/completions", json=body, timeout=120)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


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
    expected, question = answers()[model], MODELS[model].question
    options = EngineOptions(cache_ram=2**26, cache_disk=2**26, cache_dir=tmp_path)
    seen = []
    with running(open_language_service(bundle, threads=1, options=options)) as client:
        seen += [ask(client, question) for _ in range(2)]
    with (
        running(open_language_service(bundle, threads=1, options=options)) as client,
        ThreadPoolExecutor() as pool,
    ):
        seen.append(ask(client, question))
        others = [pool.submit(ask, client, [text]) for text in ("Who?", "And when?" * 9)]
        seen.append(ask(client, question))
        assert all(other.result()["choices"] for other in others)
    end = expected["prompt_tokens"] - 1
    for answer, cached in zip(seen, (0, end, MODELS[model].restored, end), strict=True):
        tokens = answer["choices"][0]["logprobs"]["content"]
        assert [token["bytes"] for token in tokens] == [[id_] for id_ in expected["answer"]]
        assert answer["usage"]["prompt_tokens"] == expected["prompt_tokens"]
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == cached
        assert tokens == seen[0]["choices"][0]["logprobs"]["content"]


def question(text: str, *images: dict[str, object]) -> dict[str, object]:
    content = [*images, {"type": "text", "text": text}]
    return {
        "messages": [{"role": "user", "content": content}],
        "max_tokens": LENGTH,
        "temperature": 0,
        "logprobs": True,
    }


def answered(
    bundle: Path, body: dict[str, object], options: EngineOptions
) -> tuple[list[tuple[list[int], float]], int]:
    """The tokens of an answer with their log-probabilities, and how often the tower ran."""
    service = open_language_service(bundle, threads=1, options=options)
    runtime, runs = service._runtime, 0
    read_media = runtime.read_media

    def counted(pixels: NDArray[np.uint8]) -> Iterator[NDArray[np.float32] | None]:
        nonlocal runs
        runs += 1
        return read_media(pixels)

    with pytest.MonkeyPatch.context() as patch, running(service) as client:
        patch.setattr(runtime, "read_media", counted)
        answer = client.post("/v1/chat/completions", json=body).json()
    tokens = answer["choices"][0]["logprobs"]["content"]
    return [(token["bytes"], token["logprob"]) for token in tokens], runs


def test_a_second_question_runs_no_tower_after_a_restart(bundle: Path, tmp_path: Path) -> None:
    """It has the bits of a server that reads everything."""
    kept = EngineOptions(cache_ram=2**26, cache_dir=tmp_path)
    image = part(SIZE)
    assert answered(bundle, question(TEXTS[0], image), kept)[1] > 0
    second = question(TEXTS[1], image)
    answer, runs = answered(bundle, second, kept)
    assert runs == 0
    expected, runs = answered(bundle, second, EngineOptions(cache_ram=0))
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
                rows = prompt_tokens(client, part(SIZE)) - prompt_tokens(client)
        finally:
            process.kill()
    assert max(memory) <= needed
    # Rows are kept. The pixels of a square are 3 KB.
    kept = 500 * rows * manifest.row_width * 4
    assert memory[-1] - memory[4] < kept + 3_000_000, memory


def prompt_tokens(client: httpx.Client, *images: dict[str, object]) -> int:
    """The tokens of a question with images."""
    answer = client.post("/v1/chat/completions", json=question(TEXTS[0], *images)).json()
    count: int = answer["usage"]["prompt_tokens"]
    return count


def memory_after(client: httpx.Client, pid: int, seeds: range) -> int:
    """The resident memory of a server after questions about different images."""
    for seed in seeds:
        body = {**question(TEXTS[0], part(SIZE, seed)), "max_tokens": 1}
        assert client.post("/v1/chat/completions", json=body).status_code == 200
    return resident(pid)[1]
