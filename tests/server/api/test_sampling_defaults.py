"""Defaults of sampling parameters: of a server, of a model, and how requests override them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.model import Model
from hearthd.server.services.engine_options import EngineOptions
from hearthd.server.services.language_service import LocalLanguageService
from hearthd.server.terminal.chat import Chat
from hearthd.text.templates.chat_template import ChatTemplate
from hearthd.text.tokenizer import Tokenizer
from tests.fake_runtime import FakeRuntime
from tests.server import fakes
from tests.server.generate_client import LIBRARY
from tests.server.templates import GEMMA

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import httpx

SEEDS = (1, 2)
MESSAGES = [{"role": "user", "content": "the dog"}]
# A body for each surface, without a seed.
BODIES: dict[str, dict[str, Any]] = {
    "/generate": {"prompt": "the dog", "max_tokens": 8},
    "/completion": {"prompt": "the dog", "n_predict": 8},
    "/v1/chat/completions": {"messages": MESSAGES, "max_tokens": 8},
    "/v1/responses": {"input": "the dog", "max_output_tokens": 8},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 8},
}


def service(recommended: Mapping[str, Any], sampling: Mapping[str, Any]) -> LocalLanguageService:
    """A service of weights that recommend parameters, with a server's own."""
    runtime = FakeRuntime(vocab_size=LIBRARY.get_vocab_size(), context=512)
    tokenizer = Tokenizer(LIBRARY, bos=fakes.BOS)
    return LocalLanguageService(
        runtime,
        tokenizer,
        replace(fakes.manifest_of(runtime), sampling=dict(recommended)),
        EngineOptions(sampling=sampling),
        template=ChatTemplate(GEMMA, tokenizer, eos=fakes.EOS),
    )


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with fakes.running(service({"temperature": 5.0, "top_k": 7}, {"temperature": 0.0})) as running:
        yield running


def texts(answer: Any) -> str:
    """The texts in an answer of any surface, without its identifiers and times."""
    if isinstance(answer, dict):
        names = ("content", "text", "response", "choices", "output", "message")
        return "".join(texts(answer[name]) for name in names if name in answer)
    return "".join(map(texts, answer)) if isinstance(answer, list) else str(answer)


def answers(client: httpx.Client, route: str, **fields: Any) -> set[str]:
    """The different answers to a request with several seeds."""
    given = [{**BODIES[route], **fields, "seed": seed} for seed in SEEDS]
    return {texts(client.post(route, json=body).raise_for_status().json()) for body in given}


@pytest.mark.parametrize("route", BODIES)
def test_a_server_sets_what_requests_do_not(client: httpx.Client, route: str) -> None:
    assert len(answers(client, route)) == 1
    assert len(answers(client, route, temperature=5, top_k=0, top_p=1, min_p=0)) > 1


def test_a_server_overrides_the_defaults_of_ollama(client: httpx.Client) -> None:
    def answered(**options: Any) -> str:
        body = {"prompt": "the dog", "stream": False, "options": {"num_predict": 8, **options}}
        answer: str = client.post("/api/generate", json=body).json()["response"]
        return answer

    assert len({answered(seed=seed) for seed in SEEDS}) == 1
    free = {"temperature": 5.0, "top_k": 0, "top_p": 1.0}
    assert len({answered(seed=seed, **free) for seed in SEEDS}) > 1


def test_what_an_answer_reports_is_what_was_used(client: httpx.Client) -> None:
    answer = client.post("/completion", json={**BODIES["/completion"], "top_p": 0.5}).json()
    settings = answer["generation_settings"]
    assert [settings[name] for name in ("temperature", "top_k", "top_p")] == [0, 7, 0.5]
    response = client.post("/v1/responses", json=BODIES["/v1/responses"]).json()
    assert (response["temperature"], response["top_p"]) == (0, 0.95)
    shown = client.post("/api/show", json={"model": "fake"}).json()["parameters"]
    assert shown == "temperature 0.0\ntop_k 7"
    defaults = client.get("/props").json()["default_generation_settings"]["params"]
    assert (defaults["temperature"], defaults["top_k"], defaults["min_p"]) == (0, 7, 0.05)


def test_a_program_uses_the_recommended_parameters() -> None:
    with Model(service({"temperature": 0}, {})) as model:
        assert len({model.generate("the dog", max_tokens=8, seed=seed) for seed in SEEDS}) == 1


def test_a_chat_shows_the_parameters_of_its_model(tmp_path: Path) -> None:
    with Chat(tmp_path, lambda _: service({"top_k": 7, "top_p": 0.5}, {}), {"top_k": "3"}) as chat:
        assert (chat.fields.top_k, chat.fields.top_p, chat.fields.min_p) == (3, 0.5, 0.05)
        chat.reset_field("top_k")
        assert chat.fields.top_k == 7
        chat._open = lambda _: service({}, {})
        chat.use(tmp_path)
        assert (chat.fields.top_k, chat.fields.top_p) == (40, 0.95)


@pytest.mark.parametrize("value", ["x", -1, 10**400, True, None, [1]])
def test_a_damaged_recommendation_is_ignored(value: Any) -> None:
    sampling = json.loads(json.dumps({"temperature": value, "unknown": 1, "top_k": 3}))
    assert service(sampling, {}).sampling == {"top_k": 3}
