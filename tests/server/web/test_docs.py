"""The description of the API at /docs: complete, without another server, and behind a prefix."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from hearthd.server.app import Guards
from tests.by_day import first_by_day
from tests.server import fakes, functions
from tests.server.openai_servers import LIBRARY

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Receive, Scope, Send

    from hearthd.server.services.service import Service
    from tests.server.web.browser import Page

SERVICES: dict[str, Callable[[], Service]] = {
    "language": lambda: fakes.fake_service(LIBRARY),
    "arrays": functions.service,
}
HOSTS = "return performance.getEntriesByType('resource').map(({ name }) => name)"
SHOWN = "return document.querySelectorAll('.opblock').length"


def behind(prefix: str) -> Callable[[ASGIApp], ASGIApp]:
    """A proxy that removes a prefix, and has nothing at other paths."""

    def wrap(app: ASGIApp) -> ASGIApp:
        async def strip(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                path = scope["path"]
                found = path.startswith(f"{prefix}/")
                scope["path"] = path.removeprefix(prefix) if found else "/nothing-here"
            await app(scope, receive, send)

        return strip

    return wrap


def open_form(page: Page) -> None:
    """Press "Try it out". The page can replace the form that it opens while it still starts."""

    def opened() -> bool:
        for button in page.all(".opblock.is-open .try-out button:not(.cancel)"):
            button.click()
        return bool(page.all(".opblock.is-open button.execute"))

    page.until(opened, "the form of a request")


@pytest.mark.parametrize(
    ("kind", "prefix"),
    # The page of a language model has many more operations, and takes four times as long.
    first_by_day(
        [
            ("arrays", "/some/prefix"),
            ("language", ""),
            ("language", "/some/prefix"),
            ("arrays", ""),
        ]
    ),
)
def test_operations_are_shown_and_sent(page: Page, kind: str, prefix: str) -> None:
    # Without the chat page, too.
    with fakes.running(SERVICES[kind](), before=behind(prefix), webui=False) as client:
        document = client.get(f"{prefix}/openapi.json").json()
        count = sum(len(methods) for methods in document["paths"].values())
        page.driver.get(f"{client.base_url}{prefix}/docs#/Server/health")
        page.until(lambda: page.run(SHOWN) == count, "all operations")
        open_form(page)
        page.click(".opblock.is-open button.execute")
        page.shows(".opblock.is-open .request-url", f"{prefix}/health")
        page.shows(".opblock.is-open .live-responses-table .response-col_status", "200")
        sent = {urlsplit(address) for address in page.run(HOSTS)}
        hosts = {address.netloc for address in sent if address.scheme != "data"}
        assert hosts == {client.base_url.netloc.decode()}
        assert f"{prefix}/health" in {address.path for address in sent}


@pytest.mark.nightly
def test_a_server_with_keys_describes_itself_and_takes_a_key(page: Page) -> None:
    with fakes.running(fakes.fake_service(LIBRARY), guards=Guards(api_keys=("secret",))) as client:
        page.driver.get(f"{client.base_url}/docs")
        page.click(".authorize")
        page.find("[aria-label='auth-bearer-value']")
        assert client.get("/redoc").status_code == 401
    with fakes.running(fakes.fake_service(LIBRARY)) as client:
        assert client.get("/redoc").status_code == 404
