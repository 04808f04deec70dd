"""A path with a slash at its end leads to its route, on whatever host and below whatever prefix."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.server import fakes
from tests.server.generate_client import LIBRARY

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

PREFIX = "/hearth"


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with fakes.running(fakes.fake_service(LIBRARY), prefix=PREFIX) as client:
        client.follow_redirects = True
        yield client


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/health/", "/health"),
        ("/docs/?a=b%20c&d", "/docs?a=b%20c&d"),
        ("/v1/conversations/a%20b/items/", "/v1/conversations/a%20b/items"),
    ],
)
def test_a_slash_at_the_end_leads_to_the_route(client: httpx.Client, path: str, route: str) -> None:
    response = client.get(PREFIX + path)
    (redirect,) = response.history
    assert redirect.status_code == 307
    assert redirect.headers["location"].startswith("../")
    assert response.url.raw_path.decode() == PREFIX + route


def test_a_body_is_sent_to_the_route(client: httpx.Client) -> None:
    answer = client.post(f"{PREFIX}/generate/", json={"prompt": "the dog", "max_tokens": 1})
    assert answer.status_code == 200


@pytest.mark.parametrize("path", ["/nope/", "/health%2F", "//", "/v1/", "//health/", "/health//"])
def test_other_paths_are_not_found(client: httpx.Client, path: str) -> None:
    response = client.get(PREFIX + path)
    assert response.status_code == 404
    assert not response.history
