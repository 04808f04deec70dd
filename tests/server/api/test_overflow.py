"""--overflow truncate-middle: long prompts lose their middle, and the answer says so."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from hearthd.server.app import Guards
from hearthd.text.overflow import without_middle
from tests.server import fakes
from tests.server.api.test_long_prompts import FIM, bodies
from tests.server.openai_servers import chatty

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

CONTEXT = 256
EMBED = ("/v1/embeddings", "/embedding")
WARNING = re.compile(r'299 hearth "prompt: (\d+) tokens in the middle were dropped to fit the ')


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with fakes.running(chatty(context=CONTEXT, overflow="truncate-middle")) as client:
        yield client


@pytest.mark.parametrize("path", [path for path in bodies("") if path not in (*EMBED, "/infill")])
@pytest.mark.parametrize("stream", [False, True])
def test_every_answer_says_how_many_tokens_were_dropped(
    client: httpx.Client, path: str, stream: bool
) -> None:
    answer = client.post(path, json={**bodies("the dog " * 300)[path], "stream": stream})
    assert answer.status_code == 200, answer.text
    dropped = WARNING.match(answer.headers["Warning"])
    assert dropped is not None, answer.headers["Warning"]
    assert 300 < int(dropped[1]) < 600
    fitting = client.post(path, json=bodies("the dog")[path])
    assert "Warning" not in fitting.headers


def test_the_start_and_the_end_stay(client: httpx.Client) -> None:
    prompt = [fakes.BOS, *(5 + i % 200 for i in range(499))]
    asked = {"max_tokens": 6, "seed": 1}
    answer = client.post("/generate", json={"prompt": prompt, **asked}).json()
    kept = [*prompt[:62], *prompt[-188:]]
    assert answer["usage"]["prompt_tokens"] == len(kept) == CONTEXT - 6
    assert answer["timings"]["n_ctx"] == CONTEXT
    assert answer["text"] == client.post("/generate", json={"prompt": kept, **asked}).json()["text"]
    # Without a limit, a quarter of the context is left for the answer.
    for max_tokens in (None, 10**6):
        assert len(without_middle(prompt, context=CONTEXT, max_tokens=max_tokens)) == 192


def test_it_is_said_beside_ignored_fields(client: httpx.Client) -> None:
    body = {"prompt": "the dog " * 300, "max_tokens": 1, "top": 3}
    both = client.post("/generate", json=body).headers["Warning"]
    assert both.startswith('299 hearth "ignored: top", 299 hearth "prompt: ')


def test_a_strict_server_says_it_too() -> None:
    service = chatty(context=CONTEXT, overflow="truncate-middle")
    with fakes.running(service, guards=Guards(strict_fields=True)) as client:
        answer = client.post("/generate", json={"prompt": "the dog " * 300, "max_tokens": 1})
    assert WARNING.match(answer.headers["Warning"])


@pytest.mark.parametrize("path", EMBED)
def test_a_text_to_embed_loses_nothing(client: httpx.Client, path: str) -> None:
    assert client.post(path, json=bodies("the dog " * 300)[path]).status_code == 400


def test_a_text_to_score_loses_nothing(client: httpx.Client) -> None:
    scored = {"prompt": [5] * 300, "echo": True, "logprobs": 1, "max_tokens": 0}
    assert client.post("/v1/completions", json=scored).status_code == 400


def test_infill_says_it_too() -> None:
    tokenizer = fakes.gemma_like(special=FIM)
    service = fakes.fake_service(tokenizer, context=CONTEXT, overflow="truncate-middle")
    with fakes.running(service) as client:
        answer = client.post("/infill", json={"input_prefix": "the dog " * 300, "n_predict": 1})
    assert WARNING.match(answer.headers["Warning"])
