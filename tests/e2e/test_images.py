"""A small SmolVLM with random weights, baked and served: the answer is that of transformers.

`python -m tests.golden.record_image_answer` records it.
"""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path

import pytest
from PIL import Image

from hearthd.baker.pipeline.bake import bake
from hearthd.bundle import LanguageManifest, read_manifest_of
from hearthd.server.services.engine_options import EngineOptions
from hearthd.server.services.language_service import open_language_service
from tests.baker.small_smolvlm import CONFIG, SIDE, pixels, small_smolvlm
from tests.conftest import Silent, few_entry_points, options_for
from tests.server.fakes import running

pytestmark = pytest.mark.slow

SIZES = ((100, 60), (20, 50))
TEXTS = ("What is this?", "And this?")
LENGTH = 8
FILE = Path(__file__).parents[1] / "golden" / "image_answer.json"


def part(size: tuple[int, int]) -> dict[str, object]:
    file = io.BytesIO()
    Image.fromarray(pixels(*size)).save(file, "PNG")
    data = base64.b64encode(file.getvalue()).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    options = options_for(
        folder / "bundle",
        model="smolvlm",
        weights=small_smolvlm(folder / "weights"),
        context=1024,
        slots=2,
    )
    with few_entry_points():
        return bake(options, Silent())


def test_the_tower_was_compared_with_numpy(bundle: Path) -> None:
    image = read_manifest_of(bundle, LanguageManifest).golden_image
    assert image is not None
    assert (image.side, len(image.values)) == (SIDE, CONFIG.hidden)


def test_the_answer_about_images_is_that_of_transformers(bundle: Path) -> None:
    """Also with the prompt from the prefix cache."""
    expected = json.loads(FILE.read_text(encoding="utf-8"))
    content: list[dict[str, object]] = []
    for size, text in zip(SIZES, TEXTS, strict=True):
        content += [part(size), {"type": "text", "text": text}]
    body = {
        "messages": [{"role": "user", "content": content}],
        "max_tokens": LENGTH,
        "temperature": 0,
        "logprobs": True,
    }
    service = open_language_service(bundle, threads=1, options=EngineOptions(cache_ram=2**26))
    with running(service) as client:
        for cached in (0, expected["prompt_tokens"] - 1):
            answer = client.post("/v1/chat/completions", json=body).json()
            tokens = answer["choices"][0]["logprobs"]["content"]
            assert [token["bytes"] for token in tokens] == [[id_] for id_ in expected["answer"]]
            assert answer["usage"]["prompt_tokens"] == expected["prompt_tokens"]
            assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == cached
