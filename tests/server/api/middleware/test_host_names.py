"""A web page cannot use the server by a name of its own that leads to this machine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from hearthd.server.api.middleware.host_names import HostNames
from hearthd.server.app import Guards
from tests.server import fakes
from tests.server.generate_client import LIBRARY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx
    from starlette.types import Message, Receive, Scope, Send

LOCAL = [
    "localhost", "LOCALHOST:8080", "localhost.", "a.localhost", "127.0.0.1", "127.0.0.1:8080",
    "[::1]", "[::1]:8080", "0.0.0.0:1", "192.168.1.7:8080", "workstation", "workstation:8080",
    "workstation.local", "host.docker.internal:8080", "", "[fe80::1%25eth0]",
]  # fmt: skip
PUBLIC = [
    "page.example", "page.example:8080", "127.0.0.1.page.example", "localhost.page.example",
    "page.example.", "xn--bcher-kva.example", "[::1].page.example", "1.2.3", "page.example:http",
]  # fmt: skip


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    guards = Guards(cors_origins=("localhost",))
    with fakes.running(fakes.fake_service(LIBRARY), guards=guards) as client:
        yield client


@pytest.mark.parametrize("host", LOCAL)
def test_addresses_and_local_names_are_served(client: httpx.Client, host: str) -> None:
    assert client.get("/v1/models", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", PUBLIC)
def test_a_public_name_is_rejected(client: httpx.Client, host: str) -> None:
    for method, path in (("GET", "/v1/models"), ("GET", "/"), ("POST", "/generate")):
        response = client.request(method, path, headers={"Host": host})
        assert response.status_code == 403
        assert "access-control-allow-origin" not in response.headers
    error = response.json()["error"]
    assert error["type"] == "permission_error"
    assert error["message"].startswith(f"Host: got '{host}', expected localhost or an address")


def test_a_preflight_request_to_a_public_name_is_rejected(client: httpx.Client) -> None:
    asked = {"Origin": "http://localhost", "Access-Control-Request-Method": "POST"}
    assert client.options("/generate", headers=asked).status_code == 200
    refused = client.options("/generate", headers={**asked, "Host": "page.example"})
    assert refused.status_code == 403


def test_the_name_in_an_absolute_target_counts(client: httpx.Client) -> None:
    for host, status in (("localhost", 200), ("page.example", 403)):
        target = f"http://{host}/v1/models".encode()
        response = client.request("GET", "/", extensions={"target": target})
        assert response.status_code == status


def test_a_page_cannot_have_a_key() -> None:
    """So a server with keys, such as one behind a proxy, accepts every name."""
    guards = Guards(api_keys=("a-secret",))
    with fakes.running(fakes.fake_service(LIBRARY), guards=guards) as client:
        named = {"Host": "page.example"}
        assert client.get("/v1/models", headers=named).status_code == 200
        assert client.get("/metrics", headers=named).status_code == 401


def test_a_socket_in_files_accepts_every_name(tmp_path: Path) -> None:
    with fakes.running(fakes.fake_service(LIBRARY), host=f"unix:{tmp_path / 's'}") as client:
        assert client.get("/v1/models", headers={"Host": "page.example"}).status_code == 200


@pytest.mark.parametrize(
    ("server", "is_served"),
    [
        (("::1", 80), False),
        (("127.8.0.1", 80), False),
        (("::ffff:127.0.0.1", 80), False),
        (("10.0.0.9", 80), True),
        (("/run/hearth.sock", None), True),
        (None, True),
    ],
)
def test_a_public_name_is_of_an_address_of_a_network(
    server: tuple[str, int | None] | None, is_served: bool
) -> None:
    served, sent = [], []

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        served.append(scope)

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "server": server, "headers": [(b"host", b"page.example")]}
    asyncio.run(HostNames(app)(scope, receive, send))
    assert (bool(served), bool(sent)) == (is_served, not is_served)
