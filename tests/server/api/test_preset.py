"""The settings that a bundle has beside the weights, as a Modelfile sets them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.bundle import Preset, PresetMessage
from hearthd.model import Model
from hearthd.server.services.engine_options import EngineOptions
from hearthd.server.services.language_service import LocalLanguageService
from hearthd.text.templates.chat_template import ChatTemplate
from hearthd.text.tokenizer import Tokenizer
from tests.fake_runtime import FakeRuntime
from tests.server import fakes
from tests.server.generate_client import LIBRARY
from tests.server.templates import CHATML

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

PRESET = Preset(
    sampling={"temperature": 0.0, "top_k": 7},
    stop=("fox",),
    seed=3,
    max_tokens=5,
    context=64,
    system="Be brief.",
    messages=(
        PresetMessage(role="user", content="the dog"),
        PresetMessage(role="assistant", content="jumps"),
    ),
    license="MIT",
)
HELLO = [{"role": "user", "content": "the dog"}]
EXAMPLE = "<|im_start|>user\nthe dog<|im_end|>\n<|im_start|>assistant\njumps<|im_end|>\n"
# A body for each surface, and the field that limits its answer.
BODIES: dict[str, tuple[dict[str, Any], str]] = {
    "/generate": ({"prompt": "the dog"}, "max_tokens"),
    "/completion": ({"prompt": "the dog"}, "n_predict"),
    "/v1/completions": ({"prompt": "the dog"}, "max_tokens"),
    "/v1/chat/completions": ({"messages": HELLO}, "max_tokens"),
    "/v1/responses": ({"input": "the dog"}, "max_output_tokens"),
    "/api/generate": ({"prompt": "the dog", "stream": False}, "num_predict"),
    "/v1beta/models/any:generateContent": (
        {"contents": [{"parts": [{"text": "the dog"}]}]},
        "maxOutputTokens",
    ),
}
# The object of a body that has the field; no row if the body itself has it.
OBJECTS = {
    "/api/generate": "options",
    "/v1beta/models/any:generateContent": "generationConfig",
}


def service(preset: Preset, sampling: dict[str, Any] | None = None) -> LocalLanguageService:
    runtime = FakeRuntime(vocab_size=LIBRARY.get_vocab_size(), context=512)
    tokenizer = Tokenizer(LIBRARY, bos=fakes.BOS)
    manifest = replace(fakes.manifest_of(runtime), sampling={"top_k": 9, "top_p": 0.5})
    return LocalLanguageService(
        runtime,
        tokenizer,
        replace(manifest, preset=preset),
        EngineOptions(sampling=sampling or {}),
        template=ChatTemplate(CHATML, tokenizer, eos=fakes.EOS),
    )


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with fakes.running(service(replace(PRESET, stop=()))) as running:
        yield running


def rendered(client: httpx.Client, *messages: tuple[str, str]) -> str:
    sent = [{"role": role, "content": content} for role, content in messages]
    prompt: str = client.post("/apply-template", json={"messages": sent}).json()["prompt"]
    return prompt.removeprefix("<bos>")


def tokens(answer: dict[str, Any]) -> int:
    """The number of tokens of an answer of any surface."""
    usage = answer.get("usage", answer.get("usageMetadata", answer))
    names = (
        "completion_tokens", "output_tokens", "eval_count", "tokens_predicted",
        "candidatesTokenCount",
    )  # fmt: skip
    return next(int(usage[name]) for name in names if name in usage)


def test_a_preset_comes_before_the_weights_and_after_the_server() -> None:
    own = service(PRESET, {"top_k": 3}).sampling
    assert own == {
        "temperature": 0.0, "top_k": 3, "top_p": 0.5, "seed": 3, "stop": ["fox"], "num_predict": 5,
        "num_ctx": 64,
    }  # fmt: skip


def test_the_system_message_is_there_unless_a_request_has_another(client: httpx.Client) -> None:
    end = "<|im_start|>user\nthe fox<|im_end|>\n<|im_start|>assistant\n"
    system = "<|im_start|>system\n{}<|im_end|>\n"
    assert rendered(client, ("user", "the fox")) == system.format("Be brief.") + EXAMPLE + end
    own = rendered(client, ("system", "Be kind."), ("user", "the fox"))
    assert own == system.format("Be kind.") + EXAMPLE + end


@pytest.mark.parametrize("route", BODIES)
def test_the_length_of_a_preset_is_below_a_request(client: httpx.Client, route: str) -> None:
    body, name = BODIES[route]
    other = {OBJECTS[route]: {name: 7}} if route in OBJECTS else {name: 7}
    answers = [client.post(route, json={**body, **more}).json() for more in ({}, other)]
    assert [tokens(answer) for answer in answers] == [5, 7]


def test_the_context_of_a_preset_limits_clients_of_ollama(client: httpx.Client) -> None:
    long = {"prompt": "the dog " * 60, "raw": True, "stream": False}
    assert client.post("/api/generate", json=long).json()["prompt_eval_count"] < 64
    wide = {**long, "options": {"num_ctx": 512}}
    assert client.post("/api/generate", json=wide).json()["prompt_eval_count"] > 64


def test_a_stop_string_of_a_preset_ends_answers() -> None:
    plain = replace(PRESET, stop=(), max_tokens=12)
    with Model(service(plain)) as model:
        text = model.generate("the dog")
        assert len(text) > 8
        assert model.generate("the dog", max_tokens=2) != text
    with Model(service(replace(plain, stop=(text[4:8],)))) as model:
        assert model.generate("the dog") == text[:4]
        assert model.generate("the dog", stop=[]) == text


def test_a_server_shows_the_preset(client: httpx.Client) -> None:
    props = client.get("/props").json()
    assert props["system_prompt"] == "Be brief."
    params = props["default_generation_settings"]["params"]
    assert (params["temperature"], params["seed"]) == (0, 3)
    shown = client.post("/api/show", json={"model": "fake"}).json()
    assert (shown["system"], shown["license"]) == ("Be brief.", "MIT")
    assert shown["messages"][1] == {"role": "assistant", "content": "jumps"}
    assert {*shown["parameters"].splitlines()} == {
        "temperature 0.0", "top_k 7", "top_p 0.5", "seed 3", "num_predict 5", "num_ctx 64"
    }  # fmt: skip
    assert 'SYSTEM "Be brief."\nMESSAGE user "the dog"\n' in shown["modelfile"]
