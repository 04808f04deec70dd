"""A prompt that is too long: every route says so in the words that clients search for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.server import encoders, fakes
from tests.server.openai_servers import chatty

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

# From Claude Code, which shortens the conversation by the difference; LangChain and LiteLLM search
# for the first and the last words.
COUNTS = re.compile(r"prompt is too long[^0-9]*(\d+)\s*tokens?\s*>\s*(\d+)", re.IGNORECASE)
WORDS = ("prompt is too long", "exceeds the available context size")
CONTEXT = 256


def talk(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def bodies(text: str) -> dict[str, dict[str, Any]]:
    return {
        "/v1/chat/completions": {"messages": talk(text)},
        "/v1/completions": {"prompt": text},
        "/v1/responses": {"input": text},
        "/v1/messages": {"messages": talk(text), "max_tokens": 5},
        "/generate": {"prompt": text},
        "/completion": {"prompt": text},
        "/infill": {"input_prefix": text},
        "/v1/fim/completions": {"prompt": text},
        "/v1/embeddings": {"input": text},
        "/embedding": {"content": text},
    }


COUNTED: dict[str, dict[str, Any]] = {
    "/v1/messages/count_tokens": {"messages": talk("the dog " * 300)},
    "/v1/chat/completions/input_tokens": {"messages": talk("the dog " * 300)},
    "/v1/responses/input_tokens": {"input": "the dog " * 300},
}
FIM = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with fakes.running(chatty(context=CONTEXT)) as client:
        yield client


@pytest.fixture(scope="module")
def infilling() -> Iterator[httpx.Client]:
    service = fakes.fake_service(fakes.gemma_like(special=FIM), context=CONTEXT)
    with fakes.running(service) as client:
        yield client


@pytest.mark.parametrize("path", bodies(""))
def test_the_message_counts_the_tokens(
    client: httpx.Client, infilling: httpx.Client, path: str
) -> None:
    asked = infilling if path == "/infill" else client
    refused = asked.post(path, json=bodies("the dog " * 300)[path])
    assert refused.status_code == 400, refused.text
    message = refused.json()["error"]["message"]
    counts = COUNTS.match(message)
    assert counts is not None, message
    assert int(counts[1]) > int(counts[2]) == CONTEXT - 1
    assert all(words in message for words in WORDS)


@pytest.mark.parametrize("path", [*bodies(""), *COUNTED, "/tokenize"])
def test_a_text_that_is_not_tokenized_has_the_same_words(
    client: httpx.Client, infilling: httpx.Client, path: str
) -> None:
    text = "the dog " * 3000
    count = {name: {**body, "messages": talk(text)} for name, body in COUNTED.items()}
    count["/v1/responses/input_tokens"] = {"input": text}
    asked = infilling if path == "/infill" else client
    refused = asked.post(path, json={**bodies(text), **count, "/tokenize": {"content": text}}[path])
    assert refused.status_code == 400, refused.text
    message = refused.json()["error"]["message"]
    assert message.startswith("prompt is too long: 24000 bytes > 4096 maximum: "), message
    assert all(words in message for words in WORDS)


def test_many_short_messages_are_too_long_before_the_template_joins_them() -> None:
    slow = "{% for a in messages %}{% for b in messages %}{{ b.content }}{% endfor %}{% endfor %}"
    many = [*talk("the dog " * 30)] * 40
    with fakes.running(chatty(context=CONTEXT, template=slow)) as client:
        refused = client.post("/v1/chat/completions", json={"messages": many})
    assert refused.json()["error"]["message"].startswith("prompt is too long: 9600 bytes > 4096")


@pytest.mark.parametrize("path", COUNTED)
def test_a_prompt_that_is_too_long_can_be_counted(client: httpx.Client, path: str) -> None:
    answer = client.post(path, json=COUNTED[path])
    assert answer.status_code == 200, answer.text
    assert answer.json()["input_tokens"] > CONTEXT


@pytest.mark.parametrize(
    ("path", "scores", "body"),
    [
        ("/v1/embeddings", False, {"input": "dog " * 30}),
        ("/v1/rerank", True, {"query": "the dog", "documents": ["dog " * 30]}),
    ],
)
def test_encoders_have_the_same_words(path: str, scores: bool, body: dict[str, Any]) -> None:
    with fakes.running(encoders.service(scores=scores)) as client:
        refused = client.post(path, json=body)
        error = refused.json()["error"]
        assert refused.status_code == 400
        assert error["code"] == "context_length_exceeded"
        counts = COUNTS.match(error["message"])
        assert counts is not None, error
        assert int(counts[2]) == error["n_ctx"]


def test_tokens_in_place_of_a_text_are_counted(client: httpx.Client) -> None:
    refused = client.post("/v1/completions", json={"prompt": [5] * 300})
    message = refused.json()["error"]["message"]
    assert message.startswith("prompt is too long: 300 tokens > 255 maximum: ")
    assert refused.json()["error"]["param"] == "prompt"
