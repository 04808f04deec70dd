"""Small models that hear, baked and served, answer as their original code does.

`python -m tests.e2e.sound_questions` records it.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.baker.pipeline.bake import bake
from hearthd.bundle import LanguageManifest, read_manifest_of
from hearthd.models.decoder import tower_entry_points
from hearthd.server.services.engine_options import EngineOptions
from hearthd.server.services.language_service import open_language_service
from tests.baker.small_gemma4_sound import samples, wav
from tests.baker.small_hearing import config_of, small_hearing
from tests.conftest import Silent, few_entry_points, options_for
from tests.e2e.sound_questions import LENGTH, QUESTIONS, answers
from tests.server.fakes import running

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import httpx
    import numpy as np
    from numpy.typing import NDArray

pytestmark = pytest.mark.slow

KEPT = EngineOptions(cache_ram=2**26)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=[pytest.mark.nightly] * (name != "ultravox")) for name in QUESTIONS
    ],
)
def model(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def bundle(model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sounds")
    options = options_for(
        folder / "bundle",
        model=None,
        weights=small_hearing(folder / "weights", model),
        precision="f32",
        context=1024,
        slots=2,
    )
    with few_entry_points(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(tower_entry_points, "SLICE_WORK", 2**23)
        return bake(options, Silent())


def part(item: str | int, seed: int = 0) -> dict[str, object]:
    if isinstance(item, str):
        return {"type": "text", "text": item}
    data = base64.b64encode(wav(samples(item, seed))).decode()
    return {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}


def body(content: Sequence[str | int], seed: int = 0) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": [part(item, seed) for item in content]}],
        "max_tokens": LENGTH,
        "temperature": 0,
        "logprobs": True,
    }


def ask(client: httpx.Client, request: dict[str, Any]) -> tuple[list[list[int]], dict[str, Any]]:
    """The bytes of the tokens of an answer, and its usage."""
    response = client.post("/v1/chat/completions", json=request, timeout=120)
    assert response.status_code == 200, response.text
    tokens = response.json()["choices"][0]["logprobs"]["content"]
    return [token["bytes"] for token in tokens], response.json()["usage"]


def streamed(client: httpx.Client, request: dict[str, Any]) -> str:
    """The text of a streamed answer."""
    with client.stream("POST", "/v1/chat/completions", json=request | {"stream": True}) as response:
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert lines[-1] == "[DONE]"
    chunks = [json.loads(line) for line in lines[:-1]]
    choices = (choice for chunk in chunks for choice in chunk["choices"])
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def test_the_tower_was_compared_with_numpy_and_is_computed_in_slices(
    model: str, bundle: Path
) -> None:
    manifest = read_manifest_of(bundle, LanguageManifest)
    assert manifest.golden_sound is not None
    assert len(manifest.golden_sound.values) == config_of(model).hidden
    points = [point for point in manifest.entry_points if point.kind == "sound"]
    assert all(point.slices > 1 for point in points)
    sizes = {"voxtral": [25], "ultravox": [6, 25], "qwen2audio": [12, 50]}
    assert [point.tokens for point in points] == sizes[model]


def test_the_answer_about_sounds_is_that_of_the_original_code(model: str, bundle: Path) -> None:
    """Also with the prompt from the prefix cache; another sound is read, though equally long."""
    expected, question = answers()[model], QUESTIONS[model]
    with running(open_language_service(bundle, threads=1, options=KEPT)) as client:
        for cached in (0, expected["prompt_tokens"] - 1):
            tokens, usage = ask(client, body(question))
            assert usage["prompt_tokens"] == expected["prompt_tokens"]
            assert usage["prompt_tokens_details"]["cached_tokens"] == cached
            assert tokens == [
                [id_] if id_ < 256 else tokens[at] for at, id_ in enumerate(expected["answer"])
            ]
        _, usage = ask(client, body(question, seed=1))
        assert usage["prompt_tokens"] == expected["prompt_tokens"]
        assert usage["prompt_tokens_details"]["cached_tokens"] < expected["prompt_tokens"] // 4
        text = streamed(client, body(question))
        answer = client.post("/v1/chat/completions", json=body(question)).json()
    assert text == answer["choices"][0]["message"]["content"] != ""


def test_a_second_question_about_a_sound_runs_no_tower(bundle: Path) -> None:
    service = open_language_service(bundle, threads=1, options=KEPT)
    runtime, runs = service._runtime, 0
    read_media = runtime.read_media

    def counted(frames: NDArray[np.float32]) -> Iterator[NDArray[np.float32] | None]:
        nonlocal runs
        runs += 1
        return read_media(frames)

    with pytest.MonkeyPatch.context() as patch, running(service) as client:
        patch.setattr(runtime, "read_media", counted)
        ask(client, body((9_999, "What is this?")))
        assert runs == 1
        ask(client, body((9_999, "And why?")))
        assert runs == 1
        ask(client, body((9_999, "And why?"), seed=1))
        assert runs == 2
