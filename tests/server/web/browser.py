"""Debian's Chromium with the chat page in it: what a person does there, and waits for."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING, Any

from selenium import webdriver
from selenium.common.exceptions import (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    StaleElementReferenceException,
)
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from selenium.webdriver.remote.webelement import WebElement

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync "
    "--use-fake-device-for-media-stream --use-fake-ui-for-media-stream "  # a microphone that beeps
    "--disable-dev-shm-usage --hide-scrollbars --ignore-certificate-errors"
)

# A page that is still being laid out replaces elements, moves them, and puts others over them.
UNSETTLED = (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    StaleElementReferenceException,
)


class Page:
    """The chat page in a tab. Elements are named by CSS selectors."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, url: str, *, state: str = "Ready", languages: str = "en-US") -> None:
        """Load the page as one who was never there and reads these languages.

        Wait until the page knows the server's state.
        """
        agent = {"userAgent": self.run("return navigator.userAgent"), "acceptLanguage": languages}
        self.driver.execute_cdp_cmd("Emulation.setUserAgentOverride", agent)
        self.driver.get(f"{url}/web/icon.svg")
        self.run(
            """localStorage.clear(); sessionStorage.clear();
            return new Promise(done => {
                indexedDB.deleteDatabase("hearth").onsuccess = () => done();
            })"""
        )
        self.driver.get(url)
        self.shows("#status", state)

    def screen(self, width: int, height: int, *, dark: bool = False) -> None:
        """Be a screen of this size, in pixels; below 500 a phone's."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        motion = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme, motion]})

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script returns; a promise is waited for."""
        return self.driver.execute_script(script, *arguments)

    def find(self, selector: str) -> WebElement:
        """The one element there is; waits until it can be seen."""
        element: WebElement = self.until(lambda: next(iter(self.all(selector)), None), selector)
        return element

    def all(self, selector: str) -> list[WebElement]:
        """The elements that can be seen now."""
        elements = self.driver.find_elements(By.CSS_SELECTOR, selector)
        return [element for element in elements if element.is_displayed()]

    def click(self, selector: str) -> None:
        """Click on it, once it can be."""

        def clicked() -> bool:
            self.find(selector).click()
            return True

        self.until(clicked, selector)

    def type(self, *keys: str, into: str = "#input") -> None:
        """Press keys there."""
        self.find(into).send_keys(*keys)

    def press(self, *keys: str) -> None:
        """Press keys wherever the focus is."""
        self.driver.switch_to.active_element.send_keys(*keys)

    def request_probabilities(self) -> None:
        """Let further answers have the probabilities of their tokens."""
        self.run("document.querySelector('[name=probabilities]').click()")

    def act(self, title: str, action: str) -> None:
        """Choose an action in the menu of the conversation with this title."""
        script = """const [title, action] = arguments;
            const more = document.querySelector(`[aria-label="Actions for ${title}"]`);
            more?.click();
            const entries = more ? [...document.getElementById("menu").children] : [];
            const entry = entries.find(({ textContent }) => textContent === action);
            entry?.click();
            return Boolean(entry);"""
        self.until(lambda: self.run(script, title, action), f"{action} of {title}")

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait until `condition()` is true and return its value; `what` names it in the error."""
        return WebDriverWait(
            self.driver,
            PATIENCE,
            poll_frequency=0.05,
            ignored_exceptions=UNSETTLED,
        ).until(lambda _: condition(), what)

    def shows(self, selector: str, text: str) -> None:
        """Wait until there is an element with this text in it."""
        self.until(lambda: any(text in e.text for e in self.all(selector)), f"{selector}: {text}")

    def ask(self, text: str) -> str:
        """Send a message and give the text of the answer, once that is complete."""
        answers = len(self.all(".figures"))
        self.type(text, "\ue007")
        self.until(lambda: len(self.all(".figures")) > answers, f"an answer to {text}")
        return self.all(".assistant .body")[-1].text

    def log(self) -> list[str]:
        """What the browser has written to its log since the last call."""
        entries = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [entry["message"] for entry in entries]

    def questions(self) -> list[str]:
        """What was asked."""
        return [element.text for element in self.all(".user .body")]


@contextlib.contextmanager
def chromium(folder: Path) -> Iterator[webdriver.Chrome]:
    """A browser that knows nothing and keeps what it learns in an empty folder."""
    options = webdriver.ChromeOptions()
    for flag in (*FLAGS.split(), f"--user-data-dir={folder}"):
        options.add_argument(flag)
    assert CHROMIUM is not None
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.set_script_timeout(PATIENCE)
    try:
        yield driver
    finally:
        driver.quit()
