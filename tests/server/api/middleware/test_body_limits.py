"""The queue's limit and deadlines over HTTP."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel, ValidationError

from hearthd.server.api.json_body import MAX_OBJECTS
from hearthd.server.api.native.generate import GenerateRequest
from hearthd.server.api.native.tokens import DetokenizeRequest
from hearthd.server.api.openai.chat import ChatRequest
from hearthd.server.api.openai.completions import CompletionsRequest
from hearthd.server.api.openai.embeddings import EmbeddingsRequest
from hearthd.server.api.openai.responses import ResponsesRequest
from hearthd.server.services.engine_options import EngineOptions
from hearthd.server.services.language_service import LocalLanguageService
from hearthd.text.tokenizer import Tokenizer
from tests.fake_runtime import FakeRuntime, open_gate
from tests.patience import wait_until
from tests.server import fakes, templates
from tests.server.engine.late_clock import LateClock
from tests.server.generate_client import LIBRARY, VOCAB, answer, stream

if TYPE_CHECKING:
    from pathlib import Path

LONG = "the dog " * 257  # 2056 characters, for a context of 64 tokens

TALK = [{"role": role, "content": LONG[:1000]} for role in ("user", "assistant", "user")]


def service_of(options: EngineOptions, **fields: Any) -> LocalLanguageService:
    runtime = FakeRuntime(**{"vocab_size": VOCAB, "context": 64, **fields})
    return LocalLanguageService(
        runtime, Tokenizer(LIBRARY, bos=fakes.BOS), fakes.manifest_of(runtime), options
    )


def test_a_full_queue_is_a_429_with_counts() -> None:
    gate = open_gate()
    service = service_of(EngineOptions(queue_limit=2), gate=gate)
    with fakes.running(service) as client, ThreadPoolExecutor(3) as pool:
        gate.clear()
        accepted = [pool.submit(answer, client, max_tokens=30) for _ in range(3)]
        wait_until(lambda: service.state().queued == 2)
        refused = client.post("/generate", json={"prompt": "x"})
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        error = refused.json()["error"]
        assert (error["type"], error["queued"], error["limit"]) == ("rate_limit_error", 2, 2)
        assert "2 waiting requests, expected at most 2" in error["message"]
        gate.set()
        for future in accepted:
            assert future.result()["usage"]["completion_tokens"] == 30
        answer(client, max_tokens=1)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"prompt": ["a", "b", "c", "d"]}, "prompt"),
        ({"prompt": ["a", "a", "a", "a"]}, "prompt"),
        ({"prompt": ["a", "b"], "n": 2}, "prompt"),
        ({"prompt": ["a", "a"], "n": 2}, "prompt"),
        ({"prompt": "a", "n": 4}, "n"),
    ],
)
def test_a_batch_that_can_never_fit_is_a_400(body: dict[str, Any], field: str) -> None:
    with fakes.running(service_of(EngineOptions(queue_limit=2))) as client:
        refused = client.post("/v1/completions", json=body)
        assert refused.status_code == 400
        assert "retry-after" not in refused.headers
        error = refused.json()["error"]
        assert (error["param"], error["got"]) == (field, "4 answers")
        assert "at most 3" in error["expected"]
        assert "--queue-limit" in error["expected"]
        most = client.post("/v1/completions", json={"prompt": ["a", "b", "c"], "max_tokens": 1})
        assert most.status_code == 200


def test_a_timeout_ends_an_answer_with_its_tokens_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    service = fakes.fake_service(LIBRARY)
    body = {"max_tokens": 50, "seed": 3, "timeout_ms": 60_000}
    with fakes.running(service) as client:
        whole = answer(client, **body)
        assert whole["finish_reason"] == "length"
        assert isinstance(service._runtime, FakeRuntime)
        clock = LateClock(service._runtime, monkeypatch)
        clock.go_ahead_after(20)
        cut = answer(client, **body)
        assert cut["finish_reason"] == "timeout"
        assert cut["usage"]["completion_tokens"] == 20
        assert cut["token_ids"] == whole["token_ids"][:20]
        clock.go_ahead_after(20)
        assert stream(client, **body)[-1][1]["finish_reason"] == "timeout"


def test_the_prefix_cache_survives_a_restart(tmp_path: Path) -> None:
    options = EngineOptions(cache_dir=tmp_path)
    answers = []
    for _ in range(2):
        service = service_of(options, chunk=4)
        with fakes.running(service) as client:
            answers.append(answer(client, prompt="the quick brown fox", seed=2)["token_ids"])
        cache = service.state().cache
    assert answers[0] == answers[1]
    assert cache.misses == 0
    assert cache.disk_hits == cache.hits > 0


def test_the_prefix_cache_can_be_off(tmp_path: Path) -> None:
    service = service_of(EngineOptions(cache_ram=0, cache_dir=tmp_path), chunk=4)
    with fakes.running(service) as client:
        first = answer(client, prompt="the quick brown fox", seed=2)["token_ids"]
        assert answer(client, prompt="the quick brown fox", seed=2)["token_ids"] == first
    state = service.state().cache
    assert (state.blocks, state.hits, state.misses, state.limit_bytes) == (0, 0, 0, 0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/generate", {"prompt": LONG}),
        ("/v1/completions", {"prompt": LONG}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": LONG}]}),
        ("/v1/chat/completions", {"messages": TALK}),
        ("/v1/responses", {"input": LONG}),
        ("/v1/embeddings", {"input": LONG}),
        ("/tokenize", {"content": LONG}),
    ],
)
def test_a_text_longer_than_any_context_is_rejected(path: str, body: dict[str, Any]) -> None:
    with fakes.running(fakes.fake_service(LIBRARY, template=templates.GEMMA)) as client:
        refused = client.post(path, json=body)
        assert refused.status_code == 400, refused.text
        error = refused.json()["error"]
        assert error["type"] == "exceed_context_size_error"
        limits = ("bytes > 1024 maximum", "tokens > 256 maximum")
        assert any(limit in error["message"] for limit in limits), error["message"]


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/chat/completions", "messages"),
        ("/v1/responses", "input"),
        ("/v1/messages", "messages"),
        ("/api/chat", "messages"),
        ("/apply-template", "messages"),
        ("/generate", "color"),
    ],
)
def test_a_body_has_a_limited_number_of_objects(path: str, field: str) -> None:
    """To check each takes 10 us of the event loop."""
    with fakes.running(fakes.fake_service(LIBRARY, template=templates.GEMMA)) as client:
        for count, status in ((MAX_OBJECTS - 1, (200, 400)), (MAX_OBJECTS, (413,))):
            response = client.post(path, json={field: [{}] * count})
            assert response.status_code in status
            assert ("too many objects" in response.text) == (status == (413,))


MANY = 10_000


@pytest.mark.parametrize(
    ("body", "data"),
    [
        (GenerateRequest, {"prompt": [[]] * MANY}),
        (GenerateRequest, {"prompt": "x", "stop": [1] * MANY}),
        (GenerateRequest, {"prompt": "x", "samplers": [1] * MANY}),
        (GenerateRequest, {"prompt": "x", "logit_bias": dict.fromkeys(map(str, range(MANY)), "x")}),
        (GenerateRequest, {"prompt": "x", "logit_bias": [1] * MANY}),
        (GenerateRequest, dict.fromkeys(map(str, range(MANY)), 1)),
        (CompletionsRequest, {"prompt": [[1.5] * MANY] * 9}),
        (ResponsesRequest, {"input": "x", "metadata": dict.fromkeys(map(str, range(MANY)), 1)}),
        (EmbeddingsRequest, {"input": [None] * MANY}),
        (ChatRequest, {"messages": [{}] * MANY}),
        (ChatRequest, {"messages": [{"role": "user", "content": [{}] * MANY}]}),
        (ChatRequest, {"messages": [{"role": "user", "content": "x"}], "tools": [1] * MANY}),
        (ResponsesRequest, {"input": [{}] * MANY}),
        (DetokenizeRequest, {"tokens": ["x"] * MANY}),
    ],
)
def test_few_errors_of_a_body_are_collected(body: type[BaseModel], data: dict[str, Any]) -> None:
    """An error takes more than a thousand bytes, for a wrong value of two bytes."""
    with pytest.raises(ValidationError) as error:
        body.model_validate(data)
    assert error.value.error_count() < 20
