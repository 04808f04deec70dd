"""num_ctx, num_keep, truncate and shift: prompts that do not fit, as Ollama 0.33 answers them.

Source: completionPromptForRequest and contextShiftPromptLimit in Ollama's llm/llama_server.go, and
chatPrompt in its server/prompt.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.server import fakes, templates
from tests.server.api.ollama.ask import HELLO, refusal, whole
from tests.server.openai_servers import TOKENIZER, chatty

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

LONG = "the dog " * 40
CHAT: tuple[str, dict[str, Any]] = ("/api/chat", {"messages": [{"role": "user", "content": LONG}]})
GENERATE: tuple[str, dict[str, Any]] = ("/api/generate", {"prompt": LONG})
RAW: tuple[str, dict[str, Any]] = ("/api/generate", {"prompt": LONG, "raw": True})
CONTINUED: tuple[str, dict[str, Any]] = ("/api/generate", {"prompt": "a", "context": [5] * 100})
KEPT = 5  # four tokens and the token that begins every text


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with fakes.running(chatty(template=templates.CHATML)) as client:
        yield client


@pytest.mark.parametrize(("path", "fields"), [CHAT, GENERATE, RAW, CONTINUED])
def test_a_prompt_that_is_too_long_loses_its_oldest_tokens(
    client: httpx.Client, path: str, fields: dict[str, Any]
) -> None:
    body = {**fields, "stream": False, "options": {"num_ctx": 40, "seed": 1}}
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    counts = answer.json()
    assert counts["prompt_eval_count"] == 40 - (40 - KEPT) // 2
    assert counts["prompt_eval_count"] + counts["eval_count"] <= 40
    assert "tokens in the middle were dropped" in answer.headers["Warning"]
    for refused in ({"truncate": False}, {"shift": False}):
        status, reason = refusal(client, path, **{**body, **refused})
        assert (status, "> 39 maximum" in reason) == (400, True)


def test_the_first_and_the_last_tokens_stay(client: httpx.Client) -> None:
    ids = TOKENIZER.encode(LONG)
    options: dict[str, Any] = {"num_ctx": 40, "seed": 1, "temperature": 1, "num_predict": 8}
    for num_keep, first, last in ((4, KEPT, 18), (0, 1, 20), (-1, 39, 0)):
        asked = {**options, "num_keep": num_keep}
        cut = whole(client, "/api/generate", prompt=LONG, raw=True, options=asked)
        kept = [*ids[:first], *ids[len(ids) - last :]]
        sent = {"prompt": kept, "max_tokens": min(8, 40 - len(kept)), "seed": 1, "top_p": 0.9}
        same = client.post("/generate", json={**sent, "temperature": 1, "top_k": 40, "min_p": 0})
        assert cut["prompt_eval_count"] == len(kept)
        assert cut["response"] == same.json()["text"]


def test_a_prompt_longer_than_the_servers_context_is_cut(client: httpx.Client) -> None:
    body = {"prompt": "the dog " * 300, "raw": True, "options": {"num_predict": 1}}
    assert whole(client, "/api/generate", **body)["prompt_eval_count"] == 256 - (256 - KEPT) // 2


def test_num_ctx_limits_the_answer(client: httpx.Client) -> None:
    answer = whole(client, "/api/chat", messages=HELLO, options={"num_ctx": 40})
    assert answer["prompt_eval_count"] + answer["eval_count"] == 40
    least = whole(client, "/api/generate", prompt=LONG, raw=True, options={"num_ctx": 1})
    assert least["prompt_eval_count"] + least["eval_count"] <= 4


def test_num_ctx_limits_texts_to_embed(client: httpx.Client) -> None:
    options = {"num_ctx": 9}
    cut = whole(client, "/api/embed", input=LONG, options=options)
    assert cut["prompt_eval_count"] == 9
    older = whole(client, "/api/embeddings", prompt=LONG, options=options)
    assert older["embedding"] == cut["embeddings"][0]
    status, reason = refusal(client, "/api/embed", input=LONG, options=options, truncate=False)
    assert (status, "too long for a num_ctx of 9" in reason) == (400, True)
    assert whole(client, "/api/embed", input="the dog", options=options, truncate=False)
