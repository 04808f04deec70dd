"""POST /generate and GET /health over HTTP, on a real server with a fake runtime."""

from __future__ import annotations

import json
import math
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from runtime.interface import read_prompt
from server.services.language_service import LanguageService
from server.text.tokenizer import Tokenizer
from tests.fake_runtime import FakeRuntime
from tests.server import fakes

if TYPE_CHECKING:
    from collections.abc import Iterator

LIBRARY = fakes.gemma_like()
VOCAB = LIBRARY.get_vocab_size()
POISON = 300  # a token id that the fake runtime fails on


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with fakes.running(fakes.fake_service(LIBRARY)) as client:
        yield client


def answer(client: httpx.Client, **body: Any) -> dict[str, Any]:
    response = client.post("/generate", json={"prompt": "the dog", **body})
    assert response.status_code == 200, response.text
    data: dict[str, Any] = response.json()
    return data


def stream(client: httpx.Client, **body: Any) -> list[tuple[str, dict[str, Any]]]:
    """The events of a stream as (name, data)."""
    with client.stream(
        "POST", "/generate", json={"prompt": "the dog", "stream": True, **body}
    ) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        found = []
        for block in response.read().decode().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines())
            if fields:
                found.append((fields.get("event", "message"), json.loads(fields["data"])))
        return found


def test_an_answer_has_every_field(client: httpx.Client) -> None:
    data = answer(client, max_tokens=7, seed=5)
    assert set(data) == {"text", "token_ids", "finish_reason", "usage", "timings", "seed"}
    assert data["text"] == LIBRARY.decode(data["token_ids"])
    assert data["finish_reason"] == "length"
    prompt = len(LIBRARY.encode("the dog").ids) + 1
    assert data["usage"] == {
        "prompt_tokens": prompt,
        "completion_tokens": 7,
        "total_tokens": prompt + 7,
    }
    assert data["seed"] == 5
    timings = data["timings"]
    names = {"queue_ms", "prefill_ms", "decode_ms", "tokens_per_second"}
    assert set(timings) == names | {"draft_n", "draft_n_accepted"}
    assert timings["tokens_per_second"] == pytest.approx(6e3 / timings["decode_ms"])


def test_greedy_takes_the_most_likely_tokens(client: httpx.Client) -> None:
    runtime = FakeRuntime(vocab_size=VOCAB, context=64, chunk=64)
    ids = [fakes.BOS, *LIBRARY.encode("the dog").ids]
    expected: list[int] = []
    while len(expected) < 6:
        expected.append(int(read_prompt(runtime, ids + expected).argmax()))
    assert answer(client, max_tokens=6, temperature=0)["token_ids"] == expected


@pytest.mark.parametrize("fields", [{}, {"temperature": 0}, {"stop": ["o", "ab"], "logprobs": 3}])
@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_a_stream_joins_to_the_answer(
    client: httpx.Client, seed: int, fields: dict[str, Any]
) -> None:
    whole = answer(client, seed=seed, max_tokens=20, **fields)
    events = stream(client, seed=seed, max_tokens=20, **fields)
    assert {name for name, _ in events} == {"message"}
    *pieces, last = [data for _, data in events]
    assert "".join(piece["text"] for piece in pieces) == whole["text"]
    assert [id_ for piece in pieces for id_ in piece["token_ids"]] == whole["token_ids"]
    assert all("finish_reason" not in piece for piece in pieces)
    assert (last["text"], last["token_ids"]) == ("", [])
    for field in ("finish_reason", "usage", "seed"):
        assert last[field] == whole[field]
    assert set(last["timings"]) == set(whole["timings"])
    if "logprobs" in fields:
        found = [entry for piece in pieces for entry in piece["logprobs"]]
        assert found == whole["logprobs"]
    else:
        assert all("logprobs" not in data for data in (whole, last, *pieces))


def test_the_same_seed_gives_the_same_answer_and_another_one_does_not(
    client: httpx.Client,
) -> None:
    texts = {answer(client, seed=11, max_tokens=12)["text"] for _ in range(4)}
    assert len(texts) == 1
    assert answer(client, seed=12, max_tokens=12)["text"] not in texts


def test_a_random_seed_is_reported_and_repeats_the_answer(client: httpx.Client) -> None:
    first, second = (answer(client, max_tokens=12) for _ in range(2))
    assert first["seed"] != second["seed"]
    again = answer(client, max_tokens=12, seed=first["seed"])
    assert again["token_ids"] == first["token_ids"]


def test_text_and_its_ids_are_the_same_prompt(client: httpx.Client) -> None:
    ids = [fakes.BOS, *LIBRARY.encode("the dog").ids]
    by_text, by_ids = answer(client, seed=1), answer(client, seed=1, prompt=ids)
    assert by_text["token_ids"] == by_ids["token_ids"]
    without_bos = answer(client, seed=1, prompt=ids[1:])
    assert without_bos["usage"]["prompt_tokens"] == len(ids) - 1


@pytest.mark.parametrize(
    "fields",
    [
        {"presence_penalty": 50},
        {"frequency_penalty": 50},
        {"typical_p": 0.1},
        {"xtc_probability": 1, "xtc_threshold": 0.01},
        {"dynatemp_range": 5},
        {"samplers": ["temperature"]},
        {"repeat_penalty": 9},
        {"temperature": 9},
        {"top_k": 1},
        {"top_p": 0.1},
        {"min_p": 0.9},
    ],
)
def test_every_sampling_field_has_an_effect(client: httpx.Client, fields: dict[str, Any]) -> None:
    plain = answer(client, seed=1, max_tokens=40)
    assert answer(client, seed=1, max_tokens=40, **fields)["token_ids"] != plain["token_ids"]


def test_null_is_the_default(client: httpx.Client) -> None:
    nulls = {"temperature": None, "top_k": None, "stop": None, "logprobs": None, "stream": None}
    assert answer(client, seed=1, **nulls)["text"] == answer(client, seed=1)["text"]


def test_a_stop_string_never_leaks(client: httpx.Client) -> None:
    free = answer(client, seed=4, max_tokens=30)
    middle = len(free["text"]) // 2
    stop = free["text"][middle : middle + 3]
    expected = free["text"][: free["text"].find(stop)]
    for form in (stop, [stop], ["never in it", stop]):
        data = answer(client, seed=4, max_tokens=30, stop=form)
        assert data["text"] == expected
        assert data["finish_reason"] == "stop"
        assert data["token_ids"] == free["token_ids"][: len(data["token_ids"])]
        assert data["usage"]["completion_tokens"] == len(data["token_ids"]) < 30
    pieces = [data["text"] for _, data in stream(client, seed=4, max_tokens=30, stop=stop)]
    assert "".join(pieces) == expected


def test_a_held_part_of_a_stop_string_is_sent_at_the_end(client: httpx.Client) -> None:
    free = answer(client, seed=4, max_tokens=30)
    stop = free["text"][-1] + "never"
    assert answer(client, seed=4, max_tokens=30, stop=stop)["text"] == free["text"]
    pieces = [data["text"] for _, data in stream(client, seed=4, max_tokens=30, stop=stop)]
    assert "".join(pieces) == free["text"]


def test_the_model_ends_an_answer() -> None:
    runtime = FakeRuntime(vocab_size=VOCAB, context=64)
    first, second = (
        int(read_prompt(runtime, ids).argmax())
        for ids in ([5], [5, int(read_prompt(runtime, [5]).argmax())])
    )
    for eos, tokens in ((first, []), (second, [first])):
        manifest = fakes.manifest_of(runtime, eos=(eos,))
        service = LanguageService(runtime, Tokenizer(LIBRARY, bos=None), manifest)
        with fakes.running(service) as client:
            data = answer(client, prompt=[5], temperature=0)
            assert data["finish_reason"] == "stop"
            assert data["token_ids"] == tokens
            assert data["usage"]["completion_tokens"] == len(tokens)
            assert (data["timings"]["tokens_per_second"] is None) == (len(tokens) < 2)


def test_log_probabilities_are_those_of_the_model(client: httpx.Client) -> None:
    data = answer(client, seed=2, max_tokens=8, logprobs=4)
    assert [entry["id"] for entry in data["logprobs"]] == data["token_ids"]
    for entry in data["logprobs"]:
        assert entry["text"] == LIBRARY.decode([entry["id"]], skip_special_tokens=False)
        ranked = [other["logprob"] for other in entry["top"]]
        assert len(ranked) == 4
        assert ranked == sorted(ranked, reverse=True)
        assert entry["logprob"] <= ranked[0] <= 0
    assert all(entry["top"] == [] for entry in answer(client, seed=2, logprobs=0)["logprobs"])
    everything = answer(client, seed=2, max_tokens=1, logprobs=20)["logprobs"][0]["top"]
    assert sum(math.exp(other["logprob"]) for other in everything) < 1


def test_the_context_ends_an_answer(client: httpx.Client) -> None:
    data = answer(client, prompt=[5] * 60, seed=1)
    assert data["finish_reason"] == "length"
    assert data["usage"]["total_tokens"] == 64


# What is refused, and how.

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
    ({"prompt": "x", "top_k": -1}, "top_k", -1),
    ({"prompt": "x", "top_p": 1.5}, "top_p", 1.5),
    ({"prompt": "x", "min_p": -1}, "min_p", -1),
    ({"prompt": "x", "repeat_penalty": 0}, "repeat_penalty", 0),
    ({"prompt": "x", "seed": -2}, "seed", -2),
    ({"prompt": "x", "seed": 2**32}, "seed", 2**32),
    ({"prompt": "x", "stop": 5}, "stop", 5),
    ({"prompt": "x", "stop": ""}, "stop", ""),
    ({"prompt": "x", "stop": ["a", ""]}, "stop[1]", ""),
    ({"prompt": "x", "stop": ["a"] * 17}, "stop", str(["a"] * 17)),
    ({"prompt": "x", "stop": "\udfff"}, "stop", "\udfff"),
    ({"prompt": "x", "logprobs": 21}, "logprobs", 21),
    ({"prompt": "x", "logprobs": True}, "logprobs", True),
    ({"prompt": "x", "stream": 1}, "stream", 1),
    ({"prompt": "x", "penalty": 0.5}, "penalty", 0.5),
    ({"prompt": "x", "samplers": ["top_k", "magic"]}, "samplers[1]", "magic"),
    ({"prompt": "x", "typical_p": 2}, "typical_p", 2),
    ({"prompt": "x", "dry_base": 0.5}, "dry_base", 0.5),
    ({"prompt": "x", "a" * 300: "b" * 300}, "a" * 300, "b" * 200 + "..."),
    ([], "body", "[]"),
    ("x", "body", "x"),
]


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
    assert error["message"] == f"{field}: got {json.dumps(got)}, expected {error['wanted']}"


@pytest.mark.parametrize(
    ("body", "field", "got", "wanted"),
    [
        ({"prompt": ""}, "prompt", "", "at least one token"),
        ({"prompt": []}, "prompt", "[]", "at least one token"),
        ({"prompt": [1, -1]}, "prompt[1]", -1, f"token ids from 0 to {VOCAB - 1}"),
        ({"prompt": [VOCAB]}, "prompt[0]", VOCAB, f"token ids from 0 to {VOCAB - 1}"),
        (
            {"prompt": [5] * 64},
            "prompt",
            "64 tokens",
            "at most 63 tokens, one less than the model's context",
        ),
        (
            {"prompt": "the" * 63},
            "prompt",
            "64 tokens",
            "at most 63 tokens, one less than the model's context",
        ),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
def test_an_invalid_prompt_is_rejected(
    client: httpx.Client, body: dict[str, Any], field: str, got: object, wanted: str, streamed: bool
) -> None:
    response = client.post("/generate", json={**body, "stream": streamed})
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["param"], error["got"], error["wanted"]) == (field, got, wanted)
    assert error["type"] == "invalid_request_error"


def test_text_with_tokens_outside_the_vocabulary_is_rejected() -> None:
    runtime = FakeRuntime(vocab_size=200, context=64)
    service = LanguageService(
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
    assert client.post("/generate").json()["error"]["param"] == "body"
    response = client.post("/generate", data={"prompt": "x"})
    assert response.status_code == 400
    assert response.json()["error"]["got"] == "prompt=x"
    assert response.json()["error"]["wanted"] == "a JSON object, sent as application/json"


def test_unknown_routes_and_methods_are_rejected(client: httpx.Client) -> None:
    response = client.get("/nope")
    assert response.status_code == 404
    assert response.json()["error"] == {
        "code": 404,
        "type": "not_found_error",
        "message": "/nope: no such route or model",
        "param": None,
        "request_id": response.headers["x-request-id"],
    }
    response = client.get("/generate")
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"
    assert response.json()["error"]["message"] == "/generate: got GET, expected POST"


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
        monkeypatch.setattr("server.text.detokenize.Detokenizer.push", broken)
        events = stream(client)
        assert [name for name, _ in events] == ["error"]
        assert "secret" not in str(events)
        response = client.post("/generate", json={"prompt": "x"})
        assert response.status_code == 500
        assert response.json()["error"]["type"] == "server_error"
        assert "secret" not in response.text
    assert caplog.text.count("a secret") >= 2


# States of the server.


def test_health_is_ok_after_the_self_test(client: httpx.Client) -> None:
    response = client.get("/health")
    assert response.status_code == 200
    data = response.json()
    assert data["status"] == "ok"
    assert data["self_test"]["passed"] is True
    assert data["self_test"]["steps"] == 3
    assert data["model"] == {
        "architecture": "fake",
        "precision": "f32",
        "vocab_size": VOCAB,
        "context": 64,
        "target": "host",
    }
    assert data["version"]


def refused(client: httpx.Client) -> tuple[str, str]:
    """The status word and the message of a server that takes no requests."""
    response = client.post("/generate", json={"prompt": "x"})
    assert response.status_code == 503
    assert response.json()["error"]["type"] == "unavailable_error"
    assert client.get("/health").status_code == 200
    health = client.get("/health/ready")
    assert health.status_code == 503
    assert response.json()["error"]["message"] == health.json()["message"]
    return health.json()["status"], health.json()["message"]


def test_requests_are_rejected_until_the_self_test_has_passed() -> None:
    service = fakes.fake_service(LIBRARY, delay=0.3)
    with fakes.running(service, wait=False) as client:
        assert refused(client)[0] == "starting"
        assert client.get("/health").json()["self_test"] is None
        deadline = time.monotonic() + 5
        while client.get("/health/ready").status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert answer(client, max_tokens=1)["usage"]["completion_tokens"] == 1


@pytest.mark.parametrize("spread", [2.0, math.nan])
def test_requests_are_rejected_after_a_failed_self_test(spread: float) -> None:
    good = FakeRuntime(vocab_size=VOCAB, context=64)
    wrong = FakeRuntime(vocab_size=VOCAB, context=64, spread=spread)
    manifest = fakes.manifest_of(good)
    with fakes.running(
        LanguageService(wrong, Tokenizer(LIBRARY, bos=fakes.BOS), manifest)
    ) as client:
        status, message = refused(client)
        assert status == "self_test_failed"
        assert "the self-test failed: a value differs by" in message
        found = client.get("/health").json()["self_test"]
        assert found["passed"] is False
        assert (found["largest_difference"] is None) == math.isnan(spread)


def test_while_draining_accepted_requests_are_answered() -> None:
    service = fakes.fake_service(LIBRARY, delay=0.02)
    with fakes.running(service) as client, ThreadPoolExecutor(3) as pool:
        accepted = [pool.submit(answer, client, max_tokens=30, seed=n) for n in range(3)]
        wait_until(lambda: accepted_by(service) == 3)
        service.drain()
        assert refused(client)[0] == "draining"
        assert [f.result()["usage"]["completion_tokens"] for f in accepted] == [30] * 3


@pytest.mark.parametrize("streamed", [False, True])
def test_a_disconnect_frees_the_slot(streamed: bool) -> None:
    service = fakes.fake_service(LIBRARY, delay=0.02, context=5000)
    body = {"prompt": "the dog", "max_tokens": 4000, "stream": streamed}
    with fakes.running(service) as client:
        if streamed:
            with client.stream("POST", "/generate", json=body) as response:
                lines = response.iter_lines()  # kept: httpx disconnects when it is collected
                next(lines)
                assert not service.idle
        else:
            with pytest.raises(httpx.ReadTimeout):
                client.post("/generate", json=body, timeout=0.3)
        wait_until(lambda: service.idle)
        began = time.monotonic()
        answer(client, max_tokens=2)
        assert time.monotonic() - began < 2


def test_the_server_answers_after_many_disconnects() -> None:
    service = fakes.fake_service(LIBRARY, delay=0.01, context=5000)
    with fakes.running(service) as client, ThreadPoolExecutor(10) as pool:

        def impatient(_: int) -> None:
            with pytest.raises(httpx.ReadTimeout):
                client.post("/generate", json={"prompt": "x", "max_tokens": 4000}, timeout=0.2)

        list(pool.map(impatient, range(40)))
        began = time.monotonic()
        answer(client, max_tokens=2)
        assert time.monotonic() - began < 5


def accepted_by(service: LanguageService) -> int:
    state = service.state()
    return state.queued + sum(slot.busy for slot in state.slots)


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
