"""HEAD on every route that has GET, by httpx and curl."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.server import fakes, openai_servers

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with fakes.running(openai_servers.chatty()) as client:
        yield client


def test_head_is_answered_as_get_without_its_body(client: httpx.Client) -> None:
    """Monitors, `wget --spider` and `curl -I` send it; it was a 405 on most routes."""
    paths = [
        re.sub(r"\{.*?\}", "fake-model", path)
        for path, methods in client.get("/openapi.json").json()["paths"].items()
        if "get" in methods
    ]
    assert {"/health", "/metrics", "/v1/models", "/v1/models/fake-model", "/api/tags"} < {*paths}
    for path in (*paths, "/models", "/nope", "/v1/chat/completions"):
        expected, answer = client.get(path), client.head(path)
        assert answer.status_code == expected.status_code, path
        assert answer.headers["content-type"] == expected.headers["content-type"], path
        assert int(answer.headers["content-length"]) > 0, path
        assert answer.content == b"", path


def test_the_methods_of_a_route_have_head(client: httpx.Client) -> None:
    assert client.post("/metrics").headers["allow"] == "GET, HEAD"


def test_curl_reads_the_next_answer_on_the_connection(client: httpx.Client) -> None:
    models = f"{client.base_url}/v1/models"
    command = ["curl", "-s", "--head", models, "--next", "-s", models, "-w", "%{num_connects}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("HTTP/1.1 200")
    assert '"object":"list"' in done.stdout
    assert done.stdout.endswith("}0")
