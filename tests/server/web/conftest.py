"""One browser for all tests of the chat page, a new visitor for each, and a model that talks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.server import fakes, templates
from tests.server.openai_servers import LIBRARY
from tests.server.web.browser import CHROMIUM, DRIVER, Page, chromium
from tests.server.web.doorman import Doorman

if TYPE_CHECKING:
    from collections.abc import Iterator

    from selenium import webdriver

    from hearthd.server.services.language_service import LanguageService


# What the browser logs of a page without a fault: an answer that is an error, which is for the
# tests, and an icon that it fetches in its own time, when the test and its server have ended.
_OF_NO_FAULT = ("Failed to load resource", "Error while trying to use the following icon")


@pytest.fixture(scope="package")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """The browser, or a skip with what is missing."""
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("needs Debian's chromium and chromium-driver")
    with chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture
def page(driver: webdriver.Chrome) -> Iterator[Page]:
    """A tab on a desktop's screen. What breaks the content policy, or raises, fails the test."""
    page = Page(driver)
    page.screen(1280, 800)
    page.log()
    yield page
    assert [line for line in page.log() if not any(words in line for words in _OF_NO_FAULT)] == []


def noise(
    *, context: int = 96, delay: float = 0.0, template: str | None = templates.GEMMA
) -> LanguageService:
    """A model of two slots that goes on to the end of its context, with other words each time."""
    return fakes.fake_service(
        LIBRARY, template=template, context=context, slots=2, batch=2, delay=delay
    )


@pytest.fixture
def doorman() -> Doorman:
    return Doorman()


@pytest.fixture
def chat(page: Page, doorman: Doorman) -> Iterator[Page]:
    """The page of a model that answers with noise."""
    with fakes.running(noise(), before=doorman.before) as client:
        page.open(str(client.base_url))
        yield page
