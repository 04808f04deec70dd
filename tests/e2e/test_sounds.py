"""Small models that hear, baked and served, answer as their original code does.

`python -m tests.e2e.sound_questions` records it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.baker.pipeline.bake import bake
from hearthd.bundle import LanguageManifest, read_manifest_of
from hearthd.models.decoder import tower_entry_points
from hearthd.server.services.engine_options import EngineOptions
from hearthd.server.services.language_service import open_language_service
from tests.baker.small_hearing import config_of, small_hearing
from tests.conftest import Silent, few_entry_points, options_for
from tests.e2e.media_chat import (
    answered,
    answered_from_caches,
    ask,
    question,
    require_best,
    tokens_of,
)
from tests.e2e.sound_questions import QUESTIONS, answers
from tests.server.fakes import running

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

pytestmark = pytest.mark.slow

CHUNK = 128  # tokens of `few_entry_points`
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


def test_the_answer_about_sounds_is_that_of_the_original_code(
    model: str, bundle: Path, tmp_path: Path
) -> None:
    """Also with the prompt from the prefix cache, from disk, and in a batch: with the same bits."""
    expected, body = answers()[model], question(QUESTIONS[model])
    length = expected["prompt_tokens"]
    chunks = (length - 1) // CHUNK * CHUNK
    seen = answered_from_caches(bundle, body, tmp_path)
    for answer, cached in zip(seen, (0, length - 1, chunks, length - 1), strict=True):
        tokens = tokens_of(answer)
        assert [token["bytes"] for token in tokens] == [[id_] for id_ in expected["answer"]]
        assert answer["usage"]["prompt_tokens"] == length
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == cached
        assert tokens == tokens_of(seen[0])


def test_another_sound_is_read_though_equally_long(model: str, bundle: Path) -> None:
    body, other = (question(QUESTIONS[model], seed) for seed in (0, 1))
    with running(open_language_service(bundle, threads=1, options=KEPT)) as client:
        text, answer = streamed(client, body), ask(client, body)
        assert text == answer["choices"][0]["message"]["content"] != ""
        found, expected = ask(client, other), ask(client, {**other, "cache_prompt": False})
    length = found["usage"]["prompt_tokens"]
    assert length == answer["usage"]["prompt_tokens"]
    assert found["usage"]["prompt_tokens_details"]["cached_tokens"] < length // 4
    assert tokens_of(found) == tokens_of(expected)


def test_a_generated_placeholder_is_read_as_its_token(model: str, bundle: Path) -> None:
    sound = read_manifest_of(bundle, LanguageManifest).sound
    assert sound is not None
    best = answers()[model]["after_placeholders"]
    with running(open_language_service(bundle, threads=1)) as client:
        require_best(client, bundle, QUESTIONS[model], sound.placeholder, best)


def test_a_second_question_about_a_sound_runs_no_tower(bundle: Path) -> None:
    first, second = (question((9_999, text)) for text in ("What is this?", "And why?"))
    other = question((9_999, "And why?"), seed=1)
    assert [runs for _, runs in answered(bundle, [first, second, other], KEPT)] == [1, 0, 1]
