"""Values that other servers accept: another word for a default, or for no limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hearthd.sampling.sampler import random_state
from tests.server import encoders, fakes
from tests.server.openai_servers import chatty, client_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

TALK = [{"role": "user", "content": "the dog"}]
ROUTES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": TALK, "max_tokens": 4},
    "/v1/completions": {"prompt": "the dog", "max_tokens": 4},
    "/v1/responses": {"input": "the dog", "max_output_tokens": 4},
    "/v1/messages": {"messages": TALK, "max_tokens": 4},
    "/generate": {"prompt": "the dog", "max_tokens": 4},
    "/completion": {"prompt": "the dog", "n_predict": 4},
    "/v1/fim/completions": {"prompt": "the dog", "max_tokens": 4},
}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with fakes.running(chatty(context=64)) as client:
        yield client


def text(client: httpx.Client, path: str, /, **fields: Any) -> str:
    """The generated text of an answer, from any route."""
    answered = client.post(path, json={**ROUTES[path], **fields})
    assert answered.status_code == 200, answered.text
    answer = answered.json()
    match path:
        case "/v1/chat/completions" | "/v1/fim/completions":
            return str(answer["choices"][0]["message"]["content"])
        case "/v1/completions":
            return str(answer["choices"][0]["text"])
        case "/v1/responses":
            return str(answer["output"][0]["content"][0]["text"])
        case "/v1/messages":
            return str(answer["content"][0]["text"])
        case "/generate":
            return str(answer["text"])
    return str(answer["content"])


SAME: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"top_k": -1}, {"top_k": 0}),
    ({"seed": -3}, {"seed": 2**64 - 3}),
    ({"repeat_last_n": -1}, {}),
    ({"top_p": 1, "min_p": 0}, {"top_p": 1.0, "min_p": 0.0}),
    ({"logit_bias": {}}, {}),
    ({"logit_bias": None, "top_k": None}, {}),
]


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize(("given", "same"), SAME)
def test_two_words_for_the_same_give_the_same_answer(
    client: httpx.Client, path: str, given: dict[str, Any], same: dict[str, Any]
) -> None:
    assert text(client, path, **{"seed": 1, **given}) == text(client, path, **{"seed": 1, **same})


@pytest.mark.parametrize("path", ROUTES)
def test_empty_stop_strings_stop_nothing(client: httpx.Client, path: str) -> None:
    plain = text(client, path, seed=1)
    name = "stop_sequences" if path == "/v1/messages" else "stop"
    for stop in ([""], ["", "\0"], *([""] if name == "stop" else [])):
        assert text(client, path, seed=1, **{name: stop}) == plain


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("seed", [2**32, 2**53 + 1, 2**63, 2**64 - 2, -2, -(2**63)])
def test_seeds_have_64_bits(client: httpx.Client, path: str, seed: int) -> None:
    first = text(client, path, seed=seed, temperature=5)
    assert text(client, path, seed=seed, temperature=5) == first


def test_no_bit_of_a_seed_is_lost(client: httpx.Client) -> None:
    seeds = [1, *(1 + 2**bit for bit in range(1, 64))]
    assert len({float(random_state(seed).random()) for seed in seeds}) == len(seeds)
    reported = client.post("/generate", json={**ROUTES["/generate"], "seed": -5}).json()["seed"]
    assert reported == 2**64 - 5


UNLIMITED = [
    ("/v1/completions", "max_tokens"),
    ("/v1/chat/completions", "max_tokens"),
    ("/v1/chat/completions", "max_completion_tokens"),
    ("/v1/responses", "max_output_tokens"),
    ("/v1/messages", "max_tokens"),
    ("/generate", "max_tokens"),
    ("/completion", "n_predict"),
    ("/completion", "max_tokens"),
    ("/v1/fim/completions", "max_tokens"),
]


@pytest.mark.parametrize(("path", "name"), UNLIMITED)
@pytest.mark.parametrize("limit", [-1, -2])
def test_minus_one_continues_to_the_end_of_the_context(
    client: httpx.Client, path: str, name: str, limit: int
) -> None:
    fields = {**ROUTES[path], "seed": 1, name: limit, "ignore_eos": True}
    if name == "max_completion_tokens":
        del fields["max_tokens"]
    answered = client.post(path, json=fields)
    assert answered.status_code == 200, answered.text
    if path == "/completion":
        assert answered.json()["tokens_cached"] == 64
        return
    usage = answered.json()["usage"]
    counts = (
        ("input_tokens", "cache_read_input_tokens", "output_tokens")
        if path == "/v1/messages"
        else ("total_tokens",)
    )
    assert sum(usage[count] for count in counts) == 64


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_best_of_may_equal_n(client: httpx.Client, path: str) -> None:
    body = {**ROUTES[path], "n": 2, "seed": 1}
    same = client.post(path, json={**body, "best_of": 2})
    assert same.status_code == 200, same.text
    assert "warning" not in same.headers
    assert same.json()["choices"] == client.post(path, json=body).json()["choices"]
    refused = client.post(path, json={**body, "best_of": 3})
    assert refused.json()["error"]["param"] == "best_of"


def test_no_alternatives_need_no_logprobs(client: httpx.Client) -> None:
    chat = text(client, "/v1/chat/completions", seed=1)
    assert text(client, "/v1/chat/completions", seed=1, logprobs=False, top_logprobs=0) == chat
    assert text(client, "/v1/responses", seed=1, top_logprobs=0)
    (choice,) = client.post(
        "/v1/completions", json={**ROUTES["/v1/completions"], "logprobs": 0}
    ).json()["choices"]
    assert len(choice["logprobs"]["token_logprobs"]) == 4


def test_the_openai_client_can_send_such_values() -> None:
    with client_of(chatty(context=64)) as client:
        answers = [
            client.completions.create(
                model="any", prompt="the dog", n=2, best_of=2, seed=-(2**62), max_tokens=3, stop=""
            )
            for _ in range(2)
        ]
    assert answers[0].choices == answers[1].choices
    assert len(answers[0].choices) == 2


def test_documents_can_be_objects() -> None:
    """As Cohere's and Jina's clients send them."""
    texts = ["the fox sleeps", "the fast dog"]
    body: dict[str, Any] = {"query": "the fast dog", "return_documents": True}
    with fakes.running(encoders.service(scores=True)) as client:
        plain = client.post("/v1/rerank", json={**body, "documents": texts})
        objects = [{"text": texts[0]}, {"text": texts[1], "title": "t"}]
        answer = client.post(
            "/v1/rerank", json={**body, "query": {"text": body["query"]}, "documents": objects}
        )
        assert answer.status_code == 200, answer.text
        assert answer.json() == plain.json()
        assert answer.headers["warning"] == '299 hearth "ignored: documents[1].title"'
        scores = client.post("/rerank", json={"query": body["query"], "texts": objects}).json()
        assert [score["index"] for score in scores] == [1, 0]
        refused = client.post("/v1/rerank", json={**body, "documents": [{"image": "x"}]})
        assert refused.json()["error"]["param"].startswith("documents[0]")
