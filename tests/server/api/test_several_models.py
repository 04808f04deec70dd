"""Every route of a server with several models answers with the model that a request names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hearthd.server.services.deployment import Deployment
from hearthd.server.services.model_pool import ModelPool
from tests.server import fakes, functions, templates
from tests.server.fake_models import FakeModel, pool, statuses
from tests.server.generate_client import LIBRARY

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

MESSAGES = [{"role": "user", "content": "the dog"}]
GENERATED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": MESSAGES, "max_tokens": 2},
    "/chat/completions": {"messages": MESSAGES, "max_tokens": 2},
    "/v1/completions": {"prompt": "the", "max_tokens": 2},
    "/v1/responses": {"input": "the dog", "max_output_tokens": 2},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 2},
    "/v1/embeddings": {"input": "the dog"},
    "/completion": {"prompt": "the", "n_predict": 2},
    "/v1/fim/completions": {"prompt": "the", "max_tokens": 2},
}
# Routes whose answer does not name the model. The models have different vocabularies.
OTHERS: dict[str, dict[str, Any]] = {
    "/generate": {"prompt": "the dog", "max_tokens": 4, "temperature": 0, "seed": 1},
    "/embedding": {"content": "the dog"},
    "/tokenize": {"content": "the dog"},
    "/detokenize": {"tokens": [270, 271, 272]},
    "/apply-template": {"messages": MESSAGES},
    "/v1/messages/count_tokens": {"messages": [{"role": "user", "content": "\u00e9" * 9}]},
}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    one = FakeModel(name="one", tokenizer=LIBRARY, fields={"template": templates.CHATML})
    two = FakeModel(name="two", tokenizer=fakes.byte_level(), fields={"template": templates.GEMMA})
    with fakes.running(pool(one, two)) as client:
        yield client


def answers(client: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, httpx.Response]:
    """The answer of each model, and of the server by default."""
    named = {name: client.post(path, json={"model": name, **body}) for name in ("one", "two")}
    return {**named, "": client.post(path, json=body)}


@pytest.mark.parametrize("path", GENERATED)
def test_an_answer_comes_from_the_named_model(client: httpx.Client, path: str) -> None:
    got = answers(client, path, GENERATED[path])
    assert all(response.status_code == 200 for response in got.values())
    assert not any("Warning" in response.headers for response in got.values())
    models = {name: response.json()["model"] for name, response in got.items()}
    assert models == {"one": "one", "two": "two", "": "one"}


@pytest.mark.parametrize("path", [*GENERATED, "/api/embed"])
def test_the_tag_latest_names_the_model_itself(client: httpx.Client, path: str) -> None:
    body = GENERATED.get(path, {"input": "the dog"})
    answer = client.post(path, json={"model": "two:latest", **body})
    assert answer.status_code == 200, answer.text
    assert answer.json()["model"].removesuffix(":latest") == "two"


def test_the_tag_latest_finds_a_model(client: httpx.Client) -> None:
    assert client.get("/v1/models/two:latest").json()["id"] == "two"
    assert client.get("/props?model=two:latest").json() == client.get("/props?model=two").json()
    for name in ("three:latest", "two:lates", "two:latest:latest"):
        body = {"model": name, **GENERATED["/v1/completions"]}
        assert client.post("/v1/completions", json=body).status_code in (400, 404), name


@pytest.mark.parametrize("path", OTHERS)
def test_other_routes_use_the_named_model(client: httpx.Client, path: str) -> None:
    got = answers(client, path, OTHERS[path])
    assert all(response.status_code == 200 for response in got.values())
    assert not any("Warning" in response.headers for response in got.values())
    content = {name: without_times(response.json()) for name, response in got.items()}
    assert content["one"] == content[""] != content["two"]


def without_times(answer: Any) -> Any:
    return {**answer, "timings": None} if isinstance(answer, dict) else answer


@pytest.mark.parametrize("path", ["/props", "/v1/bundle", "/health", "/health/ready"])
def test_a_state_is_that_of_the_named_model(client: httpx.Client, path: str) -> None:
    one, two, default = (
        client.get(path + query).json() for query in ("?model=one", "?model=two", "")
    )
    assert one == default != two
    assert client.get(f"{path}?model=three").status_code == 404


def test_slots_are_those_of_the_named_model(client: httpx.Client) -> None:
    assert client.post("/models/load", json={"model": "two"}).status_code == 200
    assert len(client.get("/slots?model=two").json()) == 4
    assert client.get("/slots?model=three").status_code == 404


@pytest.mark.parametrize("path", [*GENERATED, *OTHERS, "/infill", "/models/load"])
def test_an_unknown_model_is_404(client: httpx.Client, path: str) -> None:
    body = {**GENERATED, **OTHERS}.get(path, {})
    refused = client.post(path, json={"model": "three", **body})
    assert refused.status_code == 404
    error = refused.json()["error"]
    assert error["message"] == (
        'model: got "three", expected one of one, two: the model does not exist'
    )
    if path.startswith("/v1/messages"):
        assert error["type"] == "not_found_error"
    else:
        assert (error["code"], error["param"]) == ("model_not_found", "model")


@pytest.mark.parametrize("body", [{"max_tokens": 0}, {"lora": [{"id": -1}]}, {"prompt": 1}])
def test_an_invalid_request_loads_no_model(body: dict[str, Any]) -> None:
    models = [FakeModel(name=name, tokenizer=LIBRARY) for name in ("one", "two")]
    with fakes.running(pool(*models, room=1)) as client:
        refused = client.post("/generate", json={"model": "two", "prompt": "the", **body})
        assert refused.status_code == 400
        assert statuses(client) == {"one": "loaded", "two": "unloaded"}


def test_a_name_that_is_not_a_string_is_an_invalid_field(client: httpx.Client) -> None:
    for wrong in (3, ["one"], {"a": 1}):
        refused = client.post("/tokenize", json={"model": wrong, "content": ""})
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == "model"
    assert client.post("/tokenize", json={"model": None, "content": ""}).status_code == 200


def test_the_list_has_every_model(client: httpx.Client) -> None:
    listed = client.get("/v1/models").json()["data"]
    assert [model["id"] for model in listed] == ["one", "two"]
    assert [model["meta"]["n_vocab"] for model in listed] == [
        LIBRARY.get_vocab_size(),
        fakes.byte_level().get_vocab_size(),
    ]
    assert listed[0]["capabilities"] == ["completion", "chat", "embedding"]
    one = client.get("/v1/models/one").json()
    assert {**one, "status": None} == {**listed[0], "status": None}
    assert client.get("/models").json()["data"][0]["id"] == "one"
    missing = client.get("/v1/models/three")
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "model_not_found"


def test_metrics_are_labeled_with_the_model(client: httpx.Client) -> None:
    for name, count in (("one", 3), ("two", 2)):
        for _ in range(count):
            body = {"model": name, "prompt": "the", "max_tokens": 1}
            assert client.post("/completion", json=body).status_code == 200
    lines = client.get("/metrics").text.splitlines()
    for name in ("one", "two"):
        assert f'hearth_slots{{model="{name}"}} 4.0' in lines
        assert f'hearth_model_loaded{{model="{name}"}} 1.0' in lines
        assert f'hearth_self_test_passed{{model="{name}"}} 1.0' in lines
        assert any(line.startswith("hearth_info{") and f'model="{name}"' in line for line in lines)
    assert lines.count("# TYPE hearth_completions_total counter") == 1
    assert sum(line.startswith("process_resident_memory_bytes ") for line in lines) == 1


def test_a_server_of_one_model_answers_to_any_name() -> None:
    with fakes.running(fakes.fake_service(LIBRARY)) as client:
        for name in ("fake-model", "another", ""):
            answer = client.post("/v1/completions", json={"model": name, "prompt": "the"})
            assert answer.json()["model"] == "fake-model"
            assert client.get(f"/props?model={name}").json()["model_alias"] == "fake-model"


def test_language_models_and_array_functions_share_a_server() -> None:
    arrays = functions.service()
    program = Deployment("program", lambda _: arrays, manifest=arrays.manifest)
    text = FakeModel(name="text").deployment()
    with fakes.running(ModelPool([program, text])) as client:
        inputs = {"x": [[1, 2, 3], [4, 5, 6]]}
        body = {"function": "step", "inputs": inputs}
        for query in ("", "?model=program"):
            assert client.post(f"/run{query}", json=body).status_code == 200
        assert client.post("/tokenize", json={"content": "the"}).status_code == 200
        wrong = client.post("/run?model=text", json=body)
        assert wrong.json()["error"]["message"] == 'model: got "text", expected array functions'
        wrong = client.post("/tokenize", json={"model": "program", "content": "the"})
        assert wrong.json()["error"]["message"] == 'model: got "program", expected a language model'
        listed = client.get("/v1/models").json()["data"]
        assert {model["id"]: model["capabilities"] for model in listed} == {
            "program": ["arrays"],
            "text": ["completion", "embedding"],
        }


@pytest.mark.parametrize("template", [None, templates.CHATML])
def test_a_model_that_is_not_loaded_is_listed_with_its_capabilities(template: str | None) -> None:
    first, second = (FakeModel(name=name, fields={"template": template}) for name in ("a", "b"))
    with fakes.running(pool(first, second)) as client:
        listed = client.get("/v1/models").json()["data"]
        assert [model["status"]["value"] for model in listed] == ["loaded", "unloaded"]
        assert listed[0]["capabilities"] == listed[1]["capabilities"]
        assert ("chat" in listed[1]["capabilities"]) == bool(template)
    deployment = first.deployment()
    assert deployment.has_chat_template == bool(template)
    deployment.manifest, deployment.template = None, True
    assert deployment.has_chat_template
