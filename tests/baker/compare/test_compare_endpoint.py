"""Servers as sides: a real Hearth server, and recorded answers in the forms of others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from hearthd.baker.compare.sides.endpoint import Endpoint, client_of
from hearthd.baker.compare.sides.prediction import FullPrediction
from hearthd.baker.compare.sides.side import SideError
from hearthd.baker.compare.sides.vocabulary import BundleVocabulary, ids_by_text
from hearthd.runtime.interface import read_prompt
from tests.fake_runtime import FakeRuntime
from tests.server import fakes
from tests.server.openai_servers import LIBRARY, TOKENIZER, chatty

if TYPE_CHECKING:
    from collections.abc import Callable

VOCABULARY = BundleVocabulary(
    TOKENIZER, fakes.manifest_of(FakeRuntime(vocab_size=LIBRARY.get_vocab_size(), context=64))
)
LLAMA_SERVER = {
    "choices": [
        {
            "logprobs": {
                "content": [
                    {
                        "id": 9,
                        "token": " a",
                        "logprob": -0.5,
                        "top_logprobs": [
                            {"id": 9, "token": " a", "bytes": [32, 97], "logprob": -0.5},
                            {"id": 4, "token": " b", "bytes": [32, 98], "logprob": -1.5},
                        ],
                    }
                ]
            }
        }
    ]
}


def endpoint(
    answer: Callable[[httpx.Request], httpx.Response], name: str = "http://h/v1#m"
) -> Endpoint:
    client = httpx.Client(base_url="http://h/v1/", transport=httpx.MockTransport(answer))
    return Endpoint(name, client, VOCABULARY, top=3)


def test_a_hearth_server_sends_the_top_tokens_of_its_model() -> None:
    service = chatty()
    size = LIBRARY.get_vocab_size()
    ids = TOKENIZER.encode("the quick brown fox jumps")
    with fakes.running(service) as plain:
        url = f"{plain.base_url}/v1"
        with client_of(url, None) as client:
            side = Endpoint(url, client, VOCABULARY, top=20)
            assert side.about.details == {"model": service.name}
            predictions = list(side.read(ids, 1))
    twin = FakeRuntime(vocab_size=size, context=256)
    compared = 0
    for place, top in enumerate(predictions, start=1):
        whole = FullPrediction(read_prompt(twin, ids[:place]))
        best = whole.best(20)
        for token, logprob in zip(top.token_ids, top.logprobs, strict=True):
            # The model is noise: as fond of a byte's token as of the letter's, of the same name.
            if token >= 0 and len(VOCABULARY.detokenize([token])) > 1:
                assert logprob == pytest.approx(whole.logprob(token), abs=1e-5)
                assert token in best
                compared += 1
    assert compared > 20


def test_a_request_asks_for_one_token_after_token_ids() -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json=LLAMA_SERVER)

    top = endpoint(answer).after([5, 6])
    assert (top.token_ids, top.logprobs) == ((9, 4), (-0.5, -1.5))
    (request,) = asked
    assert str(request.url) == "http://h/v1/completions"
    assert json.loads(request.content) == {
        "model": "m",
        "prompt": [5, 6],
        "max_tokens": 1,
        "temperature": 0,
        "logprobs": 3,
    }


def test_a_token_that_ends_within_a_character_has_log_probabilities() -> None:
    """llama-server of llama-cpp-python 0.3.36 answers with null, and with a grammar as here."""

    def answer(request: httpx.Request) -> httpx.Response:
        if json.loads(request.content).get("grammar") == "root ::= [a-z]":
            return httpx.Response(200, json=LLAMA_SERVER)
        return httpx.Response(200, json={"choices": [{"text": "\ufffd", "logprobs": None}]})

    assert endpoint(answer).after([5]).token_ids == (9, 4)


def test_answers_in_the_form_of_openai_are_read_by_token_texts() -> None:
    the = LIBRARY.token_to_id("the")
    entries = {"the": -1.25, "no single token": -0.5, "x": -2.0}
    body = {"choices": [{"logprobs": {"top_logprobs": [entries]}}]}
    top = endpoint(lambda _: httpx.Response(200, json=body)).after([5])
    assert top.logprobs == (-0.5, -1.25, -2.0)
    assert top.token_ids[0] < 0
    assert top.greedy < 0
    assert top.token_ids[1] == the


def test_an_api_key_is_sent_as_a_bearer_token() -> None:
    with client_of("http://h/v1/", "secret") as client:
        assert client.headers["Authorization"] == "Bearer secret"
        assert str(client.base_url) == "http://h/v1/"
    with client_of("http://h/v1", None) as client:
        assert "Authorization" not in client.headers


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (401, {"error": "no key"}, "POST completions returned status 401: .*no key"),
        (
            200,
            {"choices": [{"logprobs": None}]},
            "the answer has no log-probabilities in OpenAI's or",
        ),
        (200, {"choices": []}, "the answer has no log-prob"),
        (200, {"choices": [{"logprobs": {"top_logprobs": [{}]}}]}, "the answer has no log-prob"),
        (
            200,
            {"choices": [{"logprobs": {"top_logprobs": [{"a": "x"}]}}]},
            "the answer has no log-prob",
        ),
        (
            200,
            {"choices": [{"logprobs": {"top_logprobs": [{"a": 0.5}]}}]},
            "the answer has no log-prob",
        ),
    ],
)
def test_an_invalid_answer_is_an_error_that_names_the_server(
    status: int, body: Any, says: str
) -> None:
    side = endpoint(lambda _: httpx.Response(status, json=body))
    with pytest.raises(SideError, match=f"http://h/v1#m: {says}"):
        side.after([5])


def test_an_absent_server_and_an_answer_without_json_are_errors() -> None:
    def absent(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with pytest.raises(SideError, match="the request failed: refused"):
        endpoint(absent).after([5])
    with pytest.raises(SideError, match="is not valid JSON"):
        endpoint(lambda _: httpx.Response(200, text="hello")).after([5])
    with pytest.raises(SideError, match="lists no models; name one"):
        endpoint(lambda _: httpx.Response(200, json={"data": []}), "http://h/v1")


def test_token_texts_without_a_vocabulary_are_an_error() -> None:
    body = {"choices": [{"logprobs": {"top_logprobs": [{"the": -1.25}]}}]}
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json=body))
    side = Endpoint(
        "http://h/v1#m", httpx.Client(base_url="http://h", transport=transport), None, top=3
    )
    with pytest.raises(SideError, match="--tokenizer BUNDLE"):
        side.after([5])


def test_each_text_maps_to_the_token_that_the_tokenizer_uses() -> None:
    ids = ids_by_text(VOCABULARY)
    assert ids["the"] == LIBRARY.token_to_id("the")
    assert "" not in ids
    assert not [text for text in ids if "\ufffd" in text]
    for text, token in ids.items():
        assert VOCABULARY.detokenize([token]) == text
    # "!" is in no word that the tokenizer learned: its one token is the byte's.
    assert ids["!"] == LIBRARY.token_to_id("<0x21>")
    assert ids["q"] == LIBRARY.token_to_id("q")
