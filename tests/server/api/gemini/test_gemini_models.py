"""The list of models, embeddings, keys, other names of the routes, and errors of other layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.server.app import Guards
from tests.server import encoders, fakes, functions, templates
from tests.server.api.gemini.ask import HELLO, MODEL, answer, refusal
from tests.server.fake_models import FakeModel, pool, statuses
from tests.server.openai_servers import LIBRARY, chatty

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

KEY = "a long enough key"
MODELS = "/v1beta/models"
TEXT = {"parts": [{"text": "the"}, {"text": "dog"}]}


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    """A server of a loaded and an unloaded model."""
    models = [
        FakeModel(name=name, tokenizer=LIBRARY, fields={"template": templates.THINKING})
        for name in ("first", "second")
    ]
    with fakes.running(pool(*models)) as client:
        yield client


def test_models_are_listed_in_pages(client: httpx.Client) -> None:
    listed = client.get(MODELS).json()
    assert set(listed) == {"models"}
    first, second = listed["models"]
    assert (first["name"], second["name"]) == ("models/first", "models/second")
    assert first["inputTokenLimit"] == first["outputTokenLimit"] > 0
    assert first["thinking"]
    assert (first["temperature"], first["topP"], first["topK"]) == (0.8, 0.95, 40)
    assert {"generateContent", "countTokens", "embedContent"} < {
        *first["supportedGenerationMethods"]
    }
    page = client.get(MODELS, params={"pageSize": 1}).json()
    assert page == {"models": [first], "nextPageToken": "models/second"}
    rest = client.get(MODELS, params={"pageSize": 1, "pageToken": page["nextPageToken"]}).json()
    assert rest == {"models": [second]}
    assert client.get(MODELS, params={"pageToken": "models/third"}).status_code == 400
    for name in ("second", "second:latest"):
        assert client.get(f"{MODELS}/{name}").json() == second
    missing = client.get(f"{MODELS}/third")
    assert (missing.status_code, missing.json()["error"]["status"]) == (404, "NOT_FOUND")


def test_the_path_chooses_the_model(client: httpx.Client) -> None:
    body = {"contents": HELLO, "generationConfig": {"maxOutputTokens": 1}, "model": "models/first"}
    for name in ("second", "models%2Fsecond", "second:latest"):
        read = client.post(f"{MODELS}/{name}:generateContent", json=body).json()
        assert read["modelVersion"] == "second"
    assert statuses(client)["second"] == "loaded"
    missing = client.post(f"{MODELS}/third:generateContent", json=body)
    assert (missing.status_code, missing.json()["error"]["status"]) == (404, "NOT_FOUND")


def test_the_older_version_is_another_name(client: httpx.Client) -> None:
    body = {"contents": HELLO, "generationConfig": {"maxOutputTokens": 1, "seed": 1}}
    for method in ("generateContent", "countTokens"):
        sent = body if method == "generateContent" else {"contents": HELLO}
        older = client.post(f"/v1/models/second:{method}", json=sent)
        assert older.status_code == 200, older.text
        assert (
            older.json().keys() == client.post(f"{MODELS}/second:{method}", json=sent).json().keys()
        )
    header = {"x-goog-api-key": "none"}
    for path in ("", "/second", "/a%20b"):
        assert "object" not in client.get(f"/v1/models{path}", headers=header).json()
    assert client.get("/v1/models/second", headers=header).json()["name"] == "models/second"
    assert client.get("/v1/models/second").json()["object"] == "model"
    assert client.get("/v1/models").json()["object"] == "list"
    assert "param" in client.post("/v1/models/second").json()["error"]
    assert 'route="/v1beta/models/{model:path}:generateContent"' in client.get("/metrics").text
    wrong = client.get("/v1/nothing", headers=header).json()["error"]
    assert (wrong["code"], wrong["status"]) == (404, "NOT_FOUND")


def test_texts_are_embedded() -> None:
    with fakes.running(chatty(template=templates.CHATML)) as client:
        one = client.post(f"{MODEL}:embedContent", json={"content": TEXT}).json()
        same = client.post("/v1/embeddings", json={"input": "the\ndog"}).json()
        assert one["embedding"]["values"] == same["data"][0]["embedding"]
        assert one["usageMetadata"]["promptTokenCount"] == same["usage"]["prompt_tokens"]
        requests = [
            {"model": "models/x", "content": {"parts": [{"text": "the fox"}]}},
            {"content": TEXT, "output_dimensionality": 4.0},
        ]
        many = client.post(f"{MODEL}:batchEmbedContents", json={"requests": requests}).json()
        whole, cut = (np.array(vector["values"]) for vector in many["embeddings"])
        assert (len(whole), len(cut)) == (len(one["embedding"]["values"]), 4)
        np.testing.assert_allclose(np.linalg.norm(cut), 1, atol=1e-6)
        start = np.array(one["embedding"]["values"][:4])
        np.testing.assert_allclose(cut, start / np.linalg.norm(start), atol=1e-6)
        image = {"inlineData": {"mimeType": "image/png", "data": "aa"}}
        for content, problem in (
            ({"parts": [{"text": "x"}, image]}, "requests[1].content.parts[1]: "),
            ({"parts": [{"functionCall": {"name": "f"}}]}, "requests[1].content.parts[0]: "),
        ):
            sent = [*requests[:1], {"content": content}]
            assert refusal(client, "batchEmbedContents", requests=sent).startswith(problem)
        wide = refusal(client, "embedContent", content=TEXT, outputDimensionality=10**6)
        assert wide.startswith("outputDimensionality: got 1000000")
        ignored = client.post(
            f"{MODEL}:embedContent", json={"content": TEXT, "task_type": "RETRIEVAL_QUERY"}
        )
        assert ignored.headers["warning"] == '299 hearth "ignored: task_type"'


def test_models_have_the_methods_that_they_answer() -> None:
    with fakes.running(encoders.service(scores=False)) as client:
        (model,) = client.get(MODELS).json()["models"]
        assert model["supportedGenerationMethods"] == ["embedContent", "batchEmbedContents"]
        assert "temperature" not in model
        embedded = client.post(f"{MODEL}:embedContent", json={"content": TEXT})
        assert embedded.status_code == 200
        missing = client.post(f"{MODEL}:generateContent", json={"contents": HELLO})
        assert "needs a language model" in missing.json()["error"]["message"]
        assert missing.json()["error"]["status"] == "NOT_FOUND"
    with fakes.running(encoders.service(scores=True)) as client:
        (model,) = client.get(MODELS).json()["models"]
        assert model["supportedGenerationMethods"] == []
    with fakes.running(functions.service()) as client:
        assert client.get(MODELS).json() == {"models": []}


def test_keys_of_google_and_azure_are_accepted() -> None:
    guards = Guards(api_keys=(KEY,))
    body: dict[str, Any] = {"contents": HELLO, "generationConfig": {"maxOutputTokens": 1}}
    with fakes.running(chatty(template=templates.CHATML), guards=guards) as client:
        path = f"{MODEL}:generateContent"
        for name in ("X-Goog-Api-Key", "Api-Key", "X-Api-Key"):
            assert client.post(path, json=body, headers={name: KEY}).status_code == 200
            refused = client.post(path, json=body, headers={name: "another key"})
            assert refused.json()["error"]["code"] == 401
            assert refused.json()["error"]["status"] == "UNAUTHENTICATED"
            chat = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
            for path_ in ("/v1/chat/completions",):
                assert client.post(path_, json=chat, headers={name: KEY}).status_code == 200
        assert client.get("/v1/models").status_code == 200
        assert client.get(MODELS).status_code == 401
        assert client.get("/v1/models", headers={"X-Goog-Api-Key": "x"}).status_code == 401
        in_query = client.post(path, params={"key": KEY}, json=body)
        assert in_query.status_code == 401
        assert "not accepted in the query" in in_query.json()["error"]["message"]
        assert KEY not in in_query.text


def test_errors_of_other_layers_have_googles_form() -> None:
    models = fakes.pool(chatty(template=templates.CHATML), max_body_bytes=1000)
    with fakes.running(models) as client:
        path = f"{MODEL}:generateContent"
        for content, status in (("x" * 2000, 413), ("{", 400)):
            error = client.post(path, content=content).json()["error"]
            assert (error["code"], error["status"]) == (status, "INVALID_ARGUMENT")
        assert client.get(f"{MODELS}/a/b").json()["error"]["status"] == "NOT_FOUND"
        assert client.put(path).json()["error"]["status"] == "UNIMPLEMENTED"
        alt = client.post(
            f"{MODEL}:streamGenerateContent", params={"alt": "proto"}, json={"contents": HELLO}
        )
        assert alt.json()["error"]["message"].startswith('alt: got "proto"')
        assert answer(client, maxOutputTokens=1)["modelVersion"] == "fake-model"
