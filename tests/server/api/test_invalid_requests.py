"""Invalid requests and failures: status, body and message of each error."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.server.services.language_service import LocalLanguageService
from hearthd.text.tokenizer import Tokenizer
from tests.fake_runtime import FakeRuntime
from tests.server import fakes
from tests.server.generate_client import LIBRARY, POISON, VOCAB, answer, stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with fakes.running(fakes.fake_service(LIBRARY)) as client:
        yield client


REFUSED_BY_SCHEMA = [
    ({}, "prompt", None),
    ({"prompt": None}, "prompt", None),
    ({"prompt": 5}, "prompt", 5),
    ({"prompt": [1, "a"]}, "prompt[1]", "a"),
    ({"prompt": [1, 2.0]}, "prompt[1]", 2.0),
    ({"prompt": [True]}, "prompt[0]", True),
    ({"prompt": "\ud800"}, "prompt", "\ud800"),
    ({"prompt": "x", "max_tokens": "5"}, "max_tokens", "5"),
    ({"prompt": "x", "max_tokens": 5.0}, "max_tokens", 5.0),
    ({"prompt": "x", "max_tokens": True}, "max_tokens", True),
    ({"prompt": "x", "max_tokens": 0}, "max_tokens", 0),
    ({"prompt": "x", "temperature": -0.1}, "temperature", -0.1),
    ({"prompt": "x", "temperature": math.nan}, "temperature", "nan"),
    ({"prompt": "x", "temperature": math.inf}, "temperature", "inf"),
    ({"prompt": "x", "temperature": True}, "temperature", True),
    ({"prompt": "x", "top_k": -2}, "top_k", -2),
    ({"prompt": "x", "top_p": 1.5}, "top_p", 1.5),
    ({"prompt": "x", "min_p": -1}, "min_p", -1),
    ({"prompt": "x", "repeat_penalty": 0}, "repeat_penalty", 0),
    ({"prompt": "x", "seed": -(2**63) - 1}, "seed", -(2**63) - 1),
    ({"prompt": "x", "seed": 2**64}, "seed", 2**64),
    ({"prompt": "x", "timeout_ms": 10**400}, "timeout_ms", 10**400),
    ({"prompt": "x", "stop": 5}, "stop", 5),
    ({"prompt": "x", "stop": ["a"] * 17}, "stop", "17 items"),
    ({"prompt": "x", "stop": "\udfff"}, "stop", "\udfff"),
    ({"prompt": "x", "logprobs": 21}, "logprobs", 21),
    ({"prompt": "x", "logprobs": True}, "logprobs", True),
    ({"prompt": "x", "stream": 1}, "stream", 1),
    ({"prompt": "x", "mirostat": 3}, "mirostat", 3),
    ({"prompt": "x", "samplers": ["top_k", "magic"]}, "samplers[1]", "magic"),
    ({"prompt": "x", "typical_p": 2}, "typical_p", 2),
    ({"prompt": "x", "dry_base": 0.5}, "dry_base", 0.5),
    ({"prompt": "x", "guided_regex": "b" * 300}, "guided_regex", "b" * 200 + "..."),
    ({"prompt": {"a": 1}}, "prompt", '{"a": 1}'),
    ({"prompt": "x", "stop": {"a": 1}}, "stop", '{"a": 1}'),
    ({"prompt": "x", "stop": [["é", None, True]]}, "stop[0]", '["é", null, true]'),
    ({"prompt": "x", "logit_bias": {"a": {}}}, "logit_bias.a", "{}"),
    ([], "body", "[]"),
    ("x", "body", "x"),
]


@pytest.mark.parametrize(
    ("body", "key", "count"),
    [
        ('{"prompt": "x", "max_tokens": 1, "max_tokens": 2}', "max_tokens", 2),
        ('{"prompt": "x", "logit_bias": {"5": 1, "5": 1, "5": 2}}', "5", 3),
        ('{"prompt": "x", "seed": 1, "\\u0073eed": 1}', "seed", 2),
    ],
)
def test_a_duplicate_key_is_rejected_by_name(
    client: httpx.Client, body: str, key: str, count: int
) -> None:
    refused = client.post("/generate", content=body, headers={"Content-Type": "application/json"})
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error["param"], error["got"]) == (key, f"{count} values")
    assert error["message"] == f'{key}: got "{count} values", expected one value'


def test_every_route_with_a_body_rejects_duplicate_keys(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    paths = [
        path
        for path, methods in document["paths"].items()
        if "requestBody" in methods.get("post", {})
    ]
    assert len(paths) >= 7
    for path in paths:
        refused = client.post(
            path, content='{"a": 1, "a": 2}', headers={"Content-Type": "application/json"}
        )
        assert refused.status_code == 400, path
        error = refused.json()["error"]  # of Ollama's routes, a text
        message = error if isinstance(error, str) else error["message"]
        assert message.startswith('a: got "2 values"'), path


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        (
            "/v1/responses",
            {"input": {"a": None}},
            r'input: got "{\"a\": null}", expected a valid string',
        ),
        (
            "/v1/completions",
            {"prompt": ["a"] * 64},
            'prompt: got "64 items", expected at most 16 items',
        ),
        (
            "/v1/completions",
            {"prompt": [[5]] * 15 + [["a"]]},
            'prompt[15][0]: got "a", expected a valid integer',
        ),
        (
            "/v1/completions",
            {"prompt": "x", "stop": ["a"] * 17},
            'stop: got "17 items", expected at most 16 items',
        ),
        (
            "/v1/completions",
            {"prompt": "x", "stop": "a" * 257},
            'stop: got "257 characters", expected at most 256 characters',
        ),
        (
            "/v1/chat/completions",
            {"messages": []},
            'messages: got "[]", expected at least 1 item',
        ),
        (
            "/v1/embeddings",
            {"input": ["a"] * 2049},
            'input: got "2049 inputs", expected at most 2048 inputs',
        ),
        (
            "/v1/responses",
            {"input": "x", "previous_response_id": "y"},
            'previous_response_id: got "y", expected the id of a stored response',
        ),
        (
            "/generate",
            {"prompt": "x", "json_schema": 1},
            "json_schema: got 1, expected a JSON object",
        ),
    ],
)
def test_a_message_says_nothing_of_python(
    client: httpx.Client, path: str, body: Any, message: str
) -> None:
    refused = client.post(path, json=body)
    assert refused.status_code == 400
    got = refused.json()["error"]["message"]
    assert got.startswith(message)
    assert "validation" not in got


def test_an_unknown_id_is_shortened() -> None:
    id_ = "a" * 100_000
    result = {"type": "tool_result", "tool_use_id": id_, "content": "x"}
    messages: dict[str, Any] = {
        "/v1/messages": {"role": "user", "content": [result]},
        "/v1/chat/completions": {"role": "tool", "tool_call_id": id_, "content": "x"},
        "/api/chat": {"role": "tool", "tool_name": id_, "content": "x"},
    }
    with fakes.running(fakes.fake_service(LIBRARY, template="{{ messages }}")) as client:
        for path, message in messages.items():
            refused = client.post(path, json={"messages": [message], "max_tokens": 1})
            assert refused.status_code == 400, refused.text[:1000]
            assert "a" * 200 + "..." in refused.text
            assert len(refused.text) < 1500


@pytest.mark.parametrize(("body", "field", "got"), REFUSED_BY_SCHEMA)
def test_an_invalid_field_is_rejected_by_name(
    client: httpx.Client, body: Any, field: str, got: object
) -> None:
    response = client.post(
        "/generate", content=json.dumps(body), headers={"content-type": "application/json"}
    )
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["code"] == 400
    assert error["type"] == "invalid_request_error"
    assert error["param"] == field
    assert error["got"] == got
    assert type(error["got"]) is type(got)
    assert error["message"] == f"{field}: got {json.dumps(got)}, expected {error['expected']}"


@pytest.mark.parametrize(
    ("body", "field", "got", "expected"),
    [
        ({"prompt": ""}, "prompt", "", "at least one token"),
        ({"prompt": []}, "prompt", "[]", "at least one token"),
        ({"prompt": [1, -1]}, "prompt[1]", -1, f"token ids from 0 to {VOCAB - 1}"),
        ({"prompt": [VOCAB]}, "prompt[0]", VOCAB, f"token ids from 0 to {VOCAB - 1}"),
        ({"prompt": [5] * 64}, "prompt", "64 tokens", "at most 63 tokens"),
        ({"prompt": "the" * 63}, "prompt", "64 tokens", "at most 63 tokens"),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
def test_an_invalid_prompt_is_rejected(
    client: httpx.Client,
    body: dict[str, Any],
    field: str,
    got: object,
    expected: str,
    streamed: bool,
) -> None:
    response = client.post("/generate", json={**body, "stream": streamed})
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["param"], error["got"], error["expected"]) == (field, got, expected)
    too_long = "exceeds the available context size" in error["message"]
    assert too_long == (got == "64 tokens")
    assert error["type"] == ("exceed_context_size_error" if too_long else "invalid_request_error")


def test_text_with_tokens_outside_the_vocabulary_is_rejected() -> None:
    runtime = FakeRuntime(vocab_size=200, context=64)
    service = LocalLanguageService(
        runtime, Tokenizer(LIBRARY, bos=fakes.BOS), fakes.manifest_of(runtime)
    )
    with fakes.running(service) as client:
        response = client.post("/generate", json={"prompt": "the"})
        assert response.status_code == 400
        assert response.json()["error"]["param"] == "prompt"


@pytest.mark.parametrize("body", ["{", '{"prompt": "x",}', "nonsense", '{"prompt": "x"} {}'])
def test_invalid_json_is_a_400(client: httpx.Client, body: str) -> None:
    response = client.post("/generate", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith("body: not JSON: ")


@pytest.mark.parametrize(
    "body", [b"\xff\xfe\xfd", b'{"a":' * 100_000, b'{"prompt":"x","top_k":' + b"9" * 9000 + b"}"]
)
def test_unreadable_json_is_a_400(client: httpx.Client, body: bytes) -> None:
    response = client.post("/generate", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert response.json()["error"]["code"] == 400


def test_a_missing_body_and_a_form_are_rejected(client: httpx.Client) -> None:
    error = client.post("/generate").json()["error"]
    assert error["message"] == "body: got null, expected a JSON object, sent as application/json"
    page = {"Origin": "https://a.example"}
    response = client.post("/generate", data={"prompt": "x"}, headers=page)
    assert response.status_code == 400
    assert response.json()["error"]["got"] == "prompt=x"
    assert response.json()["error"]["expected"] == "a JSON object, sent as application/json"


def test_an_invalid_parameter_of_the_query_is_rejected_by_name(client: httpx.Client) -> None:
    response = client.get("/models", params={"reload": "maybe"})
    assert response.status_code == 400
    assert response.json()["error"]["message"] == 'reload: got "maybe", expected a valid boolean'


def test_unknown_routes_and_methods_are_rejected(client: httpx.Client) -> None:
    response = client.get("/nope")
    assert response.status_code == 404
    assert response.json()["error"] == {
        "code": 404,
        "type": "not_found_error",
        "message": "/nope: no such route or model; /docs lists the routes",
        "param": None,
        "request_id": response.headers["x-request-id"],
    }
    response = client.get("/generate")
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"
    assert response.json()["error"]["message"] == "/generate: got GET, expected POST"


@pytest.mark.parametrize(
    ("path", "similar"),
    [
        ("/v1/v1/chat/completions", "did you mean /v1/chat/completions?"),
        ("/v1/chat/completion", "did you mean /v1/chat/completions?"),
        ("/api/tag", "did you mean /api/tags?"),
        ("/v1/moderations", "/docs lists the routes"),
    ],
)
def test_an_unknown_route_names_a_similar_one(
    path: str, similar: str, client: httpx.Client
) -> None:
    assert client.post(path).text.count(f"{path}: no such route or model; {similar}") == 1


def test_a_route_that_the_model_lacks_names_one_that_has_it(client: httpx.Client) -> None:
    path = "/v1/audio/transcriptions"
    response = client.post(path, files={"file": b"sound"})
    assert response.status_code == 404
    assert response.json()["error"]["message"] == (
        f"{path}: this server has no model for this route, which needs a model of speech, such as "
        "hf:openai/whisper-small; serve one"
    )


def test_a_page_of_another_origin_is_told_the_setting(client: httpx.Client) -> None:
    origin = "http://localhost:3000"
    response = client.options("/v1/models", headers={"Origin": origin})
    assert response.status_code == 405
    assert f"pages of {origin} are not allowed; set --cors-origins {origin}" in response.text


def test_a_failed_step_ends_only_its_own_request() -> None:
    with fakes.running(fakes.fake_service(LIBRARY, poison=POISON)) as client:
        response = client.post("/generate", json={"prompt": [POISON]})
        assert response.status_code == 500
        error = response.json()["error"]
        assert error["type"] == "server_error"
        assert "token 300 is poison" in error["message"]
        ((name, data),) = stream(client, prompt=[POISON])
        assert data["error"].pop("request_id") != error.pop("request_id")
        assert (name, data) == ("error", {"error": error})
        assert answer(client, max_tokens=1)["usage"]["completion_tokens"] == 1


def test_an_internal_error_hides_its_details(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> str:
        raise ZeroDivisionError("a secret")

    with fakes.running(fakes.fake_service(LIBRARY)) as client:
        monkeypatch.setattr("hearthd.text.detokenize.Detokenizer.push", broken)
        events = stream(client)
        assert [name for name, _ in events] == ["error"]
        assert "secret" not in str(events)
        response = client.post("/generate", json={"prompt": "x"})
        assert response.status_code == 500
        assert response.json()["error"]["type"] == "server_error"
        assert "secret" not in response.text
    assert caplog.text.count("a secret") >= 2
