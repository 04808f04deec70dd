"""One browser for all tests of the chat page, and a new visitor for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.server.web.browser import CHROMIUM, DRIVER, Page, chromium

if TYPE_CHECKING:
    from collections.abc import Iterator

    from selenium import webdriver


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
    # The browser logs an answer that is an error as well; those are for the tests.
    assert [line for line in page.log() if "Failed to load resource" not in line] == []
