"""/v1/models and errors of every route for Anthropic's clients."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.server.api.anthropic.error_bodies import AnthropicErrors
from hearthd.server.api.middleware.error_forms import converted_bytes
from tests.server import fake_models, fakes, templates
from tests.server.api.anthropic.client_package import client_of, package
from tests.server.api.anthropic.test_anthropic_client import GUARDS, KEY
from tests.server.openai_servers import TOKENIZER, chatty

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

HELLO = {"role": "user", "content": "hello"}
VERSION = {"anthropic-version": "2023-06-01", "X-Api-Key": KEY}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with fakes.running(chatty(), guards=GUARDS) as client:
        yield client


def test_the_client_lists_models() -> None:
    with client_of(chatty()) as client:
        page = client.models.list(limit=10)
        assert [model.id for model in page] == ["fake-model"]
        assert (page.has_more, page.first_id, page.last_id) == (False, "fake-model", "fake-model")
        model = client.models.retrieve("fake-model")
        assert (model.type, model.display_name) == ("model", "fake-model")
        assert isinstance(model.created_at, datetime)
        assert abs((datetime.now(model.created_at.tzinfo) - model.created_at).seconds) < 3600
        with pytest.raises(package().NotFoundError) as caught:
            client.models.retrieve("claude-9")
        assert caught.value.body["error"]["type"] == "not_found_error"
        assert "claude-9" in caught.value.body["error"]["message"]


@pytest.mark.parametrize(
    "template",
    [templates.CHATML, templates.THINKING, "{{ reasoning_effort }}"],
    ids=["plain", "reasons", "effort"],
)
def test_the_client_reads_what_a_model_can_do(template: str) -> None:
    with client_of(chatty(template=template)) as client:
        (listed,) = client.models.list()
        model = client.models.retrieve("fake-model")
        assert model.capabilities == listed.capabilities
        assert model.lifecycle == "active"
        assert (model.max_input_tokens, model.max_tokens) == (256, 256)
        able = model.capabilities
        # Every field of the package's types is there, with the type that it says.
        assert type(able).model_validate(able.model_dump(), strict=True) == able
        assert able.structured_outputs.supported
        assert able.thinking.types.disabled.supported
        assert able.thinking.supported is (template == templates.THINKING)
        assert able.thinking.types.adaptive.supported is (template == templates.THINKING)
        assert able.effort.high.supported is able.effort.supported is ("effort" in template)
        assert not able.image_input.supported
        body: Any = {"model": "any", "max_tokens": 2, "messages": [HELLO]}
        for kind in ("adaptive", "between_tools", "disabled"):
            assert client.messages.create(**body, thinking={"type": kind}).type == "message"


def test_other_clients_read_the_words_of_hearth(client: httpx.Client) -> None:
    listed = client.get("/v1/models").json()["data"][0]
    assert listed["capabilities"] == ["completion", "chat", "embedding"]


@pytest.mark.parametrize("effort", ["low", "max", None])
def test_the_effort_reaches_the_template(effort: str | None) -> None:
    template = "{{ reasoning_effort or 'none' }}{{ messages[-1].content }}"
    with client_of(chatty(template=template)) as client:
        counted = client.messages.count_tokens(
            model="any", messages=[HELLO], output_config={"effort": effort}
        )
        read = client.messages.create(
            model="any", max_tokens=1, messages=[HELLO], output_config={"effort": effort}
        )
        assert read.usage.input_tokens == counted.input_tokens
        text = f"{effort or 'none'}hello"
        assert read.usage.input_tokens == len(TOKENIZER.with_bos(TOKENIZER.read(text)))


def test_thinking_is_on_or_off_by_its_type() -> None:
    with client_of(chatty(template=templates.THINKING)) as client:

        def counted(**fields: Any) -> int:
            body: Any = {"model": "any", "messages": [HELLO], **fields}
            count: int = client.messages.count_tokens(**body).input_tokens
            return count

        for kind, thinks in (
            ("adaptive", True), ("enabled", True), ("between_tools", False), ("disabled", False),
        ):  # fmt: skip
            variables = {"chat_template_kwargs": {"enable_thinking": thinks}}
            assert counted(thinking={"type": kind}) == counted(extra_body=variables)
        assert counted(thinking={"type": "disabled"}) > counted(thinking={"type": "adaptive"})


def test_the_client_reads_all_pages() -> None:
    models = [fake_models.FakeModel(name=name) for name in "abc"]
    with fakes.running(fake_models.pool(*models)) as plain:
        address = str(plain.base_url)
        with package().Anthropic(base_url=address, api_key="x", max_retries=0) as client:
            names = ["a", "b", "c"]
            assert [model.id for model in client.models.list()] == names
            assert [model.id for model in client.models.list(limit=1)] == names
            assert [model.id for model in client.models.list(limit=2)] == names
            last = client.models.list(limit=1, before_id=names[2])
            assert ([model.id for model in last.data], last.has_more) == ([names[1]], True)
            with pytest.raises(package().BadRequestError, match="after_id"):
                client.models.list(after_id="d")


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "kind"),
    [
        ("GET", "/v1/nothing", None, VERSION, 404, "not_found_error"),
        ("GET", "/v1/models/nothing", None, VERSION, 404, "not_found_error"),
        ("PUT", "/v1/models", None, VERSION, 405, "invalid_request_error"),
        ("GET", "/v1/messages", None, VERSION, 405, "invalid_request_error"),
        ("POST", "/v1/complete", {}, VERSION, 404, "not_found_error"),
        ("POST", "/v1/messages", {}, VERSION, 400, "invalid_request_error"),
        ("GET", "/v1/models?limit=x", None, VERSION, 400, "invalid_request_error"),
        ("GET", "/props", None, {**VERSION, "X-Api-Key": "no"}, 401, "authentication_error"),
    ],
)
def test_errors_have_the_form_of_the_client(
    client: httpx.Client,
    method: str,
    path: str,
    body: Any,
    headers: dict[str, str],
    status: int,
    kind: str,
) -> None:
    refused = client.request(method, path, json=body, headers=headers)
    assert refused.status_code == status
    error = refused.json()
    assert set(error) == {"type", "error", "request_id"}
    assert (error["type"], error["error"]["type"]) == ("error", kind)
    assert error["error"]["message"]
    assert error["request_id"] == refused.headers["request-id"]


def test_other_clients_get_the_form_of_openai(client: httpx.Client) -> None:
    refused = client.get("/v1/models/nothing", headers={"Authorization": f"Bearer {KEY}"})
    assert refused.json()["error"]["code"] == "model_not_found"


def test_a_body_of_another_form_is_unchanged() -> None:
    """Such as the body of /health, which says what the self-test found."""
    for body in (b'{"status": "self_test_failed"}', b"[]", b'{"error": "x"}'):
        assert converted_bytes(AnthropicErrors(), body, 503) == body
