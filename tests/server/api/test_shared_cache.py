"""Requests share the prefix cache if they have the same API key and the same `cache_salt`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hearthd.server.api.middleware.api_keys import sent_key
from hearthd.server.app import Guards
from hearthd.server.completions.completer import _with_images
from hearthd.text.text_request import ImageSquare
from tests.server import fakes
from tests.server.openai_servers import chatty

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

    from hearthd.server.services.language_service import LanguageService

KEYS = ("the key of a client", "the key of another")
LONG = "the dog " * 12
TALK = [{"role": "user", "content": LONG}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": TALK, "max_tokens": 1},
    "/v1/responses": {"input": TALK, "max_output_tokens": 16},
    "/v1/completions": {"prompt": LONG, "max_tokens": 1},
    "/v1/messages": {"model": "m", "messages": TALK, "max_tokens": 1},
    "/v1/fim/completions": {"prompt": LONG, "max_tokens": 1},
    "/completion": {"prompt": LONG, "n_predict": 1},
    "/generate": {"prompt": LONG, "max_tokens": 1},
    "/v1beta/models/m:generateContent": {
        "contents": [{"parts": [{"text": LONG}]}],
        "generationConfig": {"maxOutputTokens": 1},
    },
    "/api/chat": {"model": "m", "messages": TALK, "stream": False, "options": {"num_predict": 1}},
    "/api/generate": {"model": "m", "prompt": LONG, "stream": False, "options": {"num_predict": 1}},
}
CHAT = "/v1/chat/completions"


class Server:
    """A server with two API keys, and what its prefix cache finds."""

    def __init__(self, client: httpx.Client, service: LanguageService) -> None:
        self._client, self._service = client, service

    def hits(self, path: str, key: str, **fields: Any) -> int:
        """How many blocks a request finds."""
        before = self._service.state().cache.hits
        body = BODIES[path] | fields
        response = self._client.post(path, json=body, headers={"X-Api-Key": key})
        assert response.status_code == 200, response.text
        return self._service.state().cache.hits - before


@pytest.fixture
def server() -> Iterator[Server]:
    service = chatty()
    with fakes.running(service, guards=Guards(api_keys=KEYS)) as client:
        yield Server(client, service)


@pytest.mark.parametrize("path", BODIES)
def test_a_key_does_not_find_the_prompt_of_another(path: str, server: Server) -> None:
    mine, other = KEYS
    assert server.hits(path, mine) == 0
    assert server.hits(path, other) == 0
    assert server.hits(path, mine) > 0
    assert server.hits(path, other) > 0


def test_an_operator_lets_keys_share_the_cache() -> None:
    service = chatty()
    with fakes.running(service, guards=Guards(api_keys=KEYS, share_cache=True)) as client:
        server = Server(client, service)
        assert [server.hits(CHAT, key) > 0 for key in KEYS] == [False, True]


def test_clients_of_a_server_without_keys_share_the_cache() -> None:
    service = chatty()
    with fakes.running(service) as client:
        server = Server(client, service)
        assert [server.hits(CHAT, key) > 0 for key in KEYS] == [False, True]


def test_a_salt_divides_the_cache_of_a_key(server: Server) -> None:
    mine, other = KEYS
    for salt in ("a", "b", None):
        assert server.hits(CHAT, mine, cache_salt=salt) == 0
        assert server.hits(CHAT, mine, cache_salt=salt) > 0
    assert server.hits(CHAT, other, cache_salt="a") == 0


def test_rows_of_images_have_the_salt_too() -> None:
    """They are kept by the digest, and a tower that does not run is an answer sooner."""
    square = ImageSquare(media=None, digest=bytes(32), rows=2)  # type: ignore[arg-type]
    digests = [
        image.digest
        for salt in (b"", b"a" * 32, b"b" * 32)
        for image in _with_images((1, -1, -1, 2), [square], salt).images
    ]
    assert digests[0] == bytes(32)
    assert len({*digests}) == 3


def test_a_request_of_a_batch_has_the_owner_of_its_batch() -> None:
    from starlette.datastructures import State
    from starlette.requests import Request

    from hearthd.server.api.middleware.api_keys import OWNER, owner_of

    class App:
        state = State({"has_keys": True})

    headers = {"headers": [(b"x-api-key", KEYS[0].encode())], "type": "http", "app": App}
    sent = Request(headers)
    assert owner_of(sent) == sent_key(sent.headers)
    assert owner_of(Request({**headers, "headers": [], "state": {OWNER: "ab"}})) == "ab"
