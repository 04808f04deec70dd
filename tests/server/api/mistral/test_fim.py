"""/v1/fim/completions: a gap as of /infill, in the form of a chat's answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.server import fakes
from tests.server.openai_servers import chatty

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

FIM = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
GAP = {"prompt": "the dog", "suffix": "the fox", "max_tokens": 6, "temperature": 0}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with fakes.running(fakes.fake_service(fakes.gemma_like(special=FIM), context=256)) as client:
        yield client


def ask(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    response = client.post("/v1/fim/completions", json={**GAP, **fields})
    assert response.status_code == 200, response.text
    assert "Warning" not in response.headers
    answer: dict[str, Any] = response.json()
    return answer


def text(answer: dict[str, Any]) -> str:
    (choice,) = answer["choices"]
    assert choice["message"]["role"] == "assistant"
    return str(choice["message"]["content"])


def events(client: httpx.Client) -> list[dict[str, Any]]:
    response = client.post("/v1/fim/completions", json={**GAP, "stream": True})
    *lines, done = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
    assert done == "[DONE]"
    return [json.loads(line) for line in lines]


def test_an_answer_is_that_of_infill(client: httpx.Client) -> None:
    answer = ask(client)
    sent = {"input_prefix": "the dog", "input_suffix": "the fox", "n_predict": 6, "temperature": 0}
    same = client.post("/infill", json=sent).json()
    assert text(answer) == same["content"]
    assert answer["usage"]["prompt_tokens"] == same["tokens_evaluated"]
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["finish_reason"] == "length"


def test_every_event_has_a_text(client: httpx.Client) -> None:
    """Continue joins `choices[0].delta.content` of all events without a check."""
    streamed = events(client)
    joined = "".join(event["choices"][0]["delta"]["content"] for event in streamed)
    assert joined == text(ask(client))
    assert {event["object"] for event in streamed} == {"chat.completion.chunk"}
    reasons = [event["choices"][0]["finish_reason"] for event in streamed]
    assert reasons == [None] * (len(reasons) - 1) + ["length"]


def test_without_a_suffix_the_prompt_is_continued(client: httpx.Client) -> None:
    same = client.post("/v1/completions", json={**GAP, "suffix": ""}).json()
    assert text(ask(client, suffix=None)) == same["choices"][0]["text"]


def test_the_seed_has_mistrals_name(client: httpx.Client) -> None:
    warm: dict[str, Any] = {"temperature": 2, "max_tokens": 20}
    first, second, third = (text(ask(client, random_seed=seed, **warm)) for seed in (5, 5, 6))
    assert first == second == text(ask(client, seed=5, **warm))
    assert third != first


def test_a_chat_takes_the_seed_by_mistrals_name() -> None:
    with fakes.running(chatty()) as client:
        body = {"messages": [{"role": "user", "content": "the dog"}], "max_tokens": 8}
        answers = [
            client.post("/v1/chat/completions", json={**body, name: 5}).json()["choices"]
            for name in ("seed", "random_seed")
        ]
        assert answers[0] == answers[1]


def test_a_vocabulary_without_the_tokens_fills_no_gap() -> None:
    with fakes.running(fakes.fake_service(fakes.gemma_like(), context=256)) as client:
        refused = client.post("/v1/fim/completions", json=GAP)
        assert refused.status_code == 501
        assert "no tokens to fill in the middle" in refused.json()["error"]["message"]
        text(ask(client, suffix=""))
