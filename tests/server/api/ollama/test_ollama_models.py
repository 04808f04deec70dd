"""The lists of models, loading and unloading, and errors of Ollama's and LM Studio's routes."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.server.api.ollama.model_list import quantization
from hearthd.server.app import Guards
from tests.patience import wait_until
from tests.server import encoders, fakes, functions, templates
from tests.server.api.ollama.ask import HELLO, refusal, whole
from tests.server.fake_models import FakeModel, pool, statuses
from tests.server.openai_servers import LIBRARY, chatty

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

KEY = "a long enough key"
TEMPLATE = {"template": templates.CHATML, "context": 128}


def named(*names: str, **fields: Any) -> list[FakeModel]:
    return [
        FakeModel(name=name, tokenizer=LIBRARY, fields={**TEMPLATE, **fields}) for name in names
    ]


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    """A server of a loaded and an unloaded model."""
    with fakes.running(pool(*named("first", "second"))) as client:
        yield client


def listed(client: httpx.Client, path: str) -> list[str]:
    return [model["name"] for model in client.get(path).json()["models"]]


def test_models_have_tags(client: httpx.Client) -> None:
    assert listed(client, "/api/tags") == ["first:latest", "second:latest"]
    assert listed(client, "/api/ps") == ["first:latest"]
    for name in ("second", "second:latest"):
        answer = whole(client, "/api/chat", model=name, messages=HELLO, options={"num_predict": 1})
        assert answer["model"] == "second:latest"
        assert answer["load_duration"] > 0
    assert listed(client, "/api/ps") == ["first:latest", "second:latest"]
    versions = client.get("/api/version").json()
    assert versions["hearth"] == client.get("/health").json()["version"]
    assert [int(part) for part in versions["version"].split(".")] >= [0, 6, 4]


@pytest.mark.parametrize(
    ("precision", "file", "level"),
    [
        ("native", "gemma-3-270m-q4_k_m.gguf", "Q4_K_M"),
        ("native", "model.gguf", "native"),
        ("int8-g32", "gemma-3-270m-q4_k_m.gguf", "int8-g32"),
    ],
)
def test_the_bits_of_a_file_have_its_quantization(precision: str, file: str, level: str) -> None:
    sources = [SimpleNamespace(name=file)]
    manifest: Any = SimpleNamespace(
        precision=precision, provenance=SimpleNamespace(sources=sources)
    )
    assert quantization(manifest) == level


def test_a_model_is_shown() -> None:
    with fakes.running(chatty(template=templates.THINKING)) as client:
        shown = client.post("/api/show", json={"name": "fake-model:latest"}).json()
        (tag,) = client.get("/api/tags").json()["models"]
        status, reason = refusal(client, "/api/show", model="other")
        assert (status, "other" in reason) == (404, True)
        assert refusal(client, "/api/show")[0] == 400
    assert shown["template"] == templates.THINKING
    assert shown["capabilities"] == tag["capabilities"] == ["completion", "tools", "thinking"]
    assert shown["details"] == tag["details"]
    assert shown["model_info"]["general.architecture"] == "fake"
    assert shown["model_info"]["fake.context_length"] == 256
    assert len(tag["digest"]) == 64
    datetime.fromisoformat(tag["modified_at"])


def test_encoders_embed_and_arrays_are_not_listed() -> None:
    with fakes.running(encoders.service(scores=False)) as client:
        (model,) = client.get("/api/tags").json()["models"]
        assert model["capabilities"] == ["embedding"]
        (model,) = client.get("/api/v0/models").json()["data"]
        assert model["type"] == "embeddings"
    with fakes.running(functions.service()) as client:
        assert listed(client, "/api/tags") == []
        assert client.get("/api/v0/models").json()["data"] == []


def test_a_request_without_a_prompt_loads_and_unloads(client: httpx.Client) -> None:
    for path, prompt in (("/api/chat", "messages"), ("/api/generate", "prompt")):
        loaded = whole(client, path, model="second")
        assert (loaded["done"], loaded["done_reason"]) == (True, "load")
        assert statuses(client)["second"] == "loaded"
        unloaded = whole(client, path, model="second", keep_alive=0)
        assert (unloaded["model"], unloaded["done_reason"]) == ("second:latest", "unload")
        assert statuses(client)["second"] == "unloaded"
        assert refusal(client, path, model="third", **{prompt: HELLO[:0] or ""})[0] in (400, 404)
    assert whole(client, "/api/embed", model="second")["embeddings"] == []
    assert statuses(client)["second"] == "loaded"


def expiry(client: httpx.Client) -> float:
    """Seconds until the first model is unloaded."""
    text = client.get("/api/ps").json()["models"][0]["expires_at"]
    return (datetime.fromisoformat(text) - datetime.now(UTC)).total_seconds()


def test_keep_alive_sets_when_a_model_is_unloaded() -> None:
    models = pool(*named("first", "second"), pinned=["second"])
    with fakes.running(models) as client:
        assert expiry(client) > 10**9
        ask: dict[str, Any] = {"messages": HELLO, "options": {"num_predict": 1}}
        for sent, seconds in (("5m", 300), (90, 90), ("1h0.5m", 3630), ("1500ms", 1.5)):
            whole(client, "/api/chat", **ask, keep_alive=sent)
            assert seconds - 1 < expiry(client) <= seconds
        for forever in (-1, "-1s", -1.5):
            whole(client, "/api/chat", **ask, keep_alive=forever)
            assert expiry(client) > 10**9
        status, reason = refusal(client, "/api/chat", **ask, keep_alive=10**400)
        assert (status, "expected seconds" in reason) == (400, True)
        whole(client, "/api/chat", **ask)  # changes nothing
        assert expiry(client) > 10**9
        whole(client, "/api/chat", **ask, keep_alive="0s")
        wait_until(lambda: statuses(client)["first"] == "unloaded")
        whole(client, "/api/chat", **ask, model="second", keep_alive=0)
        status, reason = refusal(client, "/api/chat", model="second", keep_alive=0)
        assert (status, "not pinned" in reason) == (400, True)


def test_keys_and_unknown_routes() -> None:
    """Home Assistant checks a key with the list of models."""
    guards = Guards(api_keys=(KEY,))
    with fakes.running(chatty(), guards=guards) as client:
        for path in ("/api/tags", "/api/version", "/api/ps"):
            refused = client.get(path)
            assert refused.status_code == 401
            assert refused.json() == {
                "error": "API key: missing or unknown; send Authorization: Bearer KEY"
            }
            known = client.get(path, headers={"Authorization": f"Bearer {KEY}"})
            assert known.status_code == 200
        missing = client.post("/api/generated", headers={"Authorization": f"Bearer {KEY}"})
        assert missing.status_code == 404
        assert set(missing.json()) == {"error"}


def test_requests_are_counted_by_route(client: httpx.Client) -> None:
    client.get("/api/tags")
    whole(client, "/api/chat", messages=HELLO, options={"num_predict": 3})
    text = client.get("/metrics").text
    assert 'hearth_http_requests_total{route="/api/tags",status="200"} 1.0' in text
    assert 'hearth_http_requests_total{route="/api/chat",status="200"} 1.0' in text


def test_the_list_of_lm_studio(client: httpx.Client) -> None:
    first, second = client.get("/api/v0/models").json()["data"]
    assert (first["state"], second["state"]) == ("loaded", "not-loaded")
    assert (first["max_context_length"], first["loaded_context_length"]) == (128, 128)
    assert "loaded_context_length" not in second
    assert first["capabilities"] == ["tool_use"]
    assert client.get("/api/v0/models/first").json() == first
    missing = client.get("/api/v0/models/third")
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "model_not_found"
