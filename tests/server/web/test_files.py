"""The files of the chat page over HTTP: headers, caching, and that nothing else can be had."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from hearthd.server import web
from tests.server import fakes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

SOURCES = [
    path for path in web.FILES.values() if path.suffix == ".js" and "vendor" not in path.parts
]
# Names of XML, and comments in the libraries.
ADDRESSES = {
    "http://www.w3.org/1998/Math/MathML",
    "http://www.w3.org/2000/svg",
    "https://github.com/highlightjs/highlight.js/issues/2277",
    "https://github.com/highlightjs/highlight.js/wiki/security",
    "https://github.com/markdown-it/markdown-it",
}
# Libraries with many addresses in comments and names. test_docs.py reads what Swagger UI requests,
# and the policy forbids others all requests.
WITH_ADDRESSES = {"fflate", "pdfjs", "swagger-ui"}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with fakes.running(fakes.fake_service(fakes.gemma_like())) as client:
        yield client


@pytest.mark.parametrize("address", web.FILES)
def test_every_file_is_served_unchanged(client: httpx.Client, address: str) -> None:
    response = client.get(address)
    path = web.FILES[address]
    assert response.content == path.read_bytes()
    assert response.headers["content-type"].split(";")[0] == web.MEDIA_TYPES[path.suffix]
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["content-security-policy"].startswith("default-src 'self'; ")
    assert "unsafe" not in response.headers["content-security-policy"]
    head = client.head(address)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(response.content))


def test_a_known_file_is_not_sent_again(client: httpx.Client) -> None:
    etag = client.get("/web/styles/page.css").headers["etag"]
    for known in (etag, f'"other", W/{etag}', "*"):
        response = client.get("/web/styles/page.css", headers={"If-None-Match": known})
        assert (response.status_code, response.content) == (304, b"")
        assert response.headers["etag"] == etag
        assert response.headers["cache-control"] == "no-cache"
    assert (
        client.get("/web/styles/page.css", headers={"If-None-Match": '"other"'}).status_code == 200
    )


@pytest.mark.parametrize(
    "path",
    ["/web", "/web/", "/web/__init__.py", "/web/../app.py", "/web/%2e%2e/app.py", "/index.html"],
)
def test_no_other_file_is_served(client: httpx.Client, path: str) -> None:
    assert client.get(path).status_code == 404


def test_libraries_have_their_licenses() -> None:
    for path in web.FILES.values():
        if "vendor" in path.parts:
            licenses = [*path.parent.glob("*LICENSE"), *path.parent.parent.glob("LICENSE")]
            assert licenses, path.name


def test_the_page_is_not_in_the_openapi_document(client: httpx.Client) -> None:
    assert not set(web.FILES) & set(client.get("/openapi.json").json()["paths"])


def test_the_page_loads_nothing_from_other_servers() -> None:
    for path in web.FILES.values():
        if path.suffix != ".woff2" and path.parent.name not in WITH_ADDRESSES:
            text = path.read_text("utf-8")
            addresses = re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"'`)]*", text)
            assert set(addresses) <= ADDRESSES, path.name


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_modules_are_short_and_never_set_html(path: Path) -> None:
    source = path.read_text("utf-8")
    assert source.startswith("// ")
    assert len(source.splitlines()) <= 400
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", source)
