"""Questions with images and sounds, as tests of this folder ask them."""

from __future__ import annotations

import base64
import io
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image
from tokenizers import Tokenizer

from hearthd.bundle import TOKENIZER
from hearthd.server.services.engine_options import EngineOptions
from hearthd.server.services.language_service import open_language_service
from tests.baker.small_gemma4_sound import samples, wav
from tests.baker.small_smolvlm import pixels
from tests.e2e.image_models import LENGTH, Item
from tests.server.fakes import running

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import httpx
    import numpy as np
    from numpy.typing import NDArray


def part(item: Item, seed: int = 0) -> dict[str, object]:
    """A part of a message: a text, a sound of some samples, or an image of a width and a height."""
    if isinstance(item, str):
        return {"type": "text", "text": item}
    if isinstance(item, int):
        sound = base64.b64encode(wav(samples(item, seed))).decode()
        return {"type": "input_audio", "input_audio": {"data": sound, "format": "wav"}}
    file = io.BytesIO()
    Image.fromarray(pixels(*item, seed)).save(file, "PNG")
    data = base64.b64encode(file.getvalue()).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def question(content: Sequence[Item], seed: int = 0, **fields: object) -> dict[str, Any]:
    """The body of a request; images and sounds of another seed differ in every value."""
    return {
        "messages": [{"role": "user", "content": [part(item, seed) for item in content]}],
        "max_tokens": LENGTH,
        "temperature": 0,
        "logprobs": True,
        **fields,
    }


def ask(client: httpx.Client, body: dict[str, Any]) -> dict[str, Any]:
    """The answer of a server."""
    response = client.post("/v1/chat/completions", json=body, timeout=120)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def tokens_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """The tokens of an answer with their log-probabilities."""
    tokens: list[dict[str, Any]] = answer["choices"][0]["logprobs"]["content"]
    return tokens


def answered_from_caches(bundle: Path, body: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Four answers: without a cache, from the prefix cache, from its files and beside others."""
    options = EngineOptions(cache_ram=2**26, cache_disk=2**26, cache_dir=folder)
    with running(open_language_service(bundle, threads=1, options=options)) as client:
        seen = [ask(client, body) for _ in range(2)]
    with (
        running(open_language_service(bundle, threads=1, options=options)) as client,
        ThreadPoolExecutor() as pool,
    ):
        seen.append(ask(client, body))
        texts = ("Who?", "And when?" * 9)
        others = [pool.submit(ask, client, question([text])) for text in texts]
        seen.append(ask(client, body))
        assert all(other.result()["choices"] for other in others)
    return seen


def answered(
    bundle: Path, bodies: Sequence[dict[str, Any]], options: EngineOptions
) -> list[tuple[list[dict[str, Any]], int]]:
    """The tokens of each answer of a server, and how often a tower ran for it."""
    service = open_language_service(bundle, threads=1, options=options)
    runtime, runs, answers = service._runtime, 0, []
    read_media = runtime.read_media

    def counted(media: NDArray[Any]) -> Iterator[NDArray[np.float32] | None]:
        nonlocal runs
        runs += 1
        return read_media(media)

    with pytest.MonkeyPatch.context() as patch, running(service) as client:
        patch.setattr(runtime, "read_media", counted)
        for body in bodies:
            runs = 0
            answers.append((tokens_of(ask(client, body)), runs))
    return answers


def require_best(
    client: httpx.Client, bundle: Path, content: Sequence[Item], name: str, best: Sequence[int]
) -> None:
    """Have each step of an answer generate the special token `name`; compare the best tokens."""
    tokenizer = Tokenizer.from_file(str(bundle / TOKENIZER))
    biases = {tokenizer.token_to_id(name): 100}
    body = question(content, max_tokens=len(best), logit_bias=biases, top_logprobs=1)
    tokens = tokens_of(ask(client, body))
    assert [token["token"] for token in tokens] == [name] * len(best)
    expected = [
        [id_] if id_ < 256 else list(tokenizer.decode([id_], skip_special_tokens=False).encode())
        for id_ in best
    ]
    assert [token["top_logprobs"][0]["bytes"] for token in tokens] == expected
