"""/v1/models and errors of every route for Anthropic's clients."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.server.api.anthropic.error_bodies import AnthropicErrors
from hearthd.server.api.middleware.error_forms import converted_bytes
from tests.server import fake_models, fakes
from tests.server.api.anthropic.client_package import client_of, package
from tests.server.api.anthropic.test_anthropic_client import GUARDS, KEY
from tests.server.openai_servers import chatty

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

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
    """Such as that of /health, which says what the self-test found."""
    for body in (b'{"status": "self_test_failed"}', b"[]", b'{"error": "x"}'):
        assert converted_bytes(AnthropicErrors(), body, 503) == body
