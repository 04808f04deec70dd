"""Conversations in the browser's storage: the list, branches, reloads, tabs, and full storage."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from selenium.webdriver.common.keys import Keys

from tests.server import fakes, templates
from tests.server.openai_servers import LIBRARY, scripted
from tests.server.web.doorman import Doorman

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.server.web.browser import Page

TITLES = "return [...document.querySelectorAll('.conversation .title')].map(e => e.textContent)"
ANSWER = "the quick fox"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with fakes.running(scripted(ANSWER)) as client:
        yield str(client.base_url)


@pytest.fixture
def chat(page: Page, url: str) -> Page:
    page.open(url)
    return page


def has_titles(page: Page, *titles: str) -> None:
    page.until(lambda: page.run(TITLES) == [*titles], f"conversations {titles}")


def two_conversations(page: Page) -> None:
    page.ask("the dog")
    page.click("#new")
    page.ask("stopped words")
    has_titles(page, "stopped words", "the dog")


@pytest.mark.nightly
def test_a_message_is_deleted_with_what_follows_it(chat: Page) -> None:
    chat.ask("the dog")
    chat.ask("stopped words")
    delete = "[aria-label='Delete from here on']"
    chat.click(f".assistant {delete}")
    chat.shows("#toast", "Deleted 3 messages.")
    chat.shows("#notice", "This message has no answer.")
    assert chat.questions() == ["the dog"]
    chat.click("#undo")
    chat.shows(".user .body", "stopped words")
    chat.driver.refresh()
    chat.shows(".user .body", "stopped words")
    chat.click("[aria-label='Regenerate']")
    chat.shows(".version", "2/2")
    chat.click(f".message:last-child {delete}")
    chat.until(lambda: not chat.all(".version"), "the version before")
    assert len(chat.all(".assistant")) == 2
    chat.click(f".user {delete}")
    chat.shows("#greeting", "How can I help you?")
    has_titles(chat)
    chat.ask("a fox")
    has_titles(chat, "a fox")


def test_conversations_are_listed_searched_and_renamed(chat: Page) -> None:
    two_conversations(chat)
    chat.type("DOG", into="#search")
    has_titles(chat, "the dog")
    chat.type(Keys.BACKSPACE * 3, "quick", into="#search")  # in both answers
    has_titles(chat, "stopped words", "the dog")
    chat.type(Keys.BACKSPACE * 5, "zebra", into="#search")
    chat.shows("#conversations", "No conversation matches.")
    chat.type(Keys.BACKSPACE * 5, into="#search")
    has_titles(chat, "stopped words", "the dog")
    chat.act("the dog", "Rename")
    chat.press("a fox", Keys.ENTER)
    has_titles(chat, "stopped words", "a fox")
    chat.click(".conversation:not(:has([aria-current])) .title")
    chat.until(lambda: chat.questions() == ["the dog"], "the renamed conversation")
    chat.driver.refresh()
    chat.until(lambda: chat.questions() == ["the dog"], "the same conversation")
    chat.driver.back()
    chat.until(lambda: chat.questions() == ["stopped words"], "the one before")


@pytest.mark.nightly
def test_delete_can_be_undone(chat: Page) -> None:
    two_conversations(chat)
    chat.act("the dog", "Delete")
    has_titles(chat, "stopped words")
    assert chat.questions() == ["stopped words"]
    chat.click("#undo")
    has_titles(chat, "stopped words", "the dog")
    assert chat.find(".assistant .body").text == ANSWER


def test_an_export_can_be_imported(chat: Page, tmp_path: Path) -> None:
    two_conversations(chat)
    behavior = {"behavior": "allow", "downloadPath": str(tmp_path)}
    chat.driver.execute_cdp_cmd("Browser.setDownloadBehavior", behavior)
    chat.click("#export")
    file = tmp_path / "hearth-conversations.json"
    chat.until(file.exists, "the exported file")
    exported = json.loads(file.read_text("utf-8"))
    assert [entry["title"] for entry in exported["conversations"]] == ["stopped words", "the dog"]
    roles = [[m["role"] for m in entry["messages"]] for entry in exported["conversations"]]
    assert [sorted(r) for r in roles] == [["assistant", "user"]] * 2
    assert "logprob" not in file.read_text("utf-8")
    for title in ("the dog", "stopped words"):
        chat.act(title, "Delete")
    has_titles(chat)
    chat.driver.find_element("id", "import-file").send_keys(str(file))
    has_titles(chat, "stopped words", "the dog")
    assert chat.find(".assistant .body").text == ANSWER


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "the file is not JSON"),
        ("[]", "the field format"),
        ('{"format": "hearth-conversations-1", "conversations": [{"id": 3}]}', "conversations[0]"),
    ],
)
def test_a_file_that_cannot_be_imported_is_reported(
    chat: Page, tmp_path: Path, text: str, reason: str
) -> None:
    file = tmp_path / "bad.json"
    file.write_text(text)
    chat.driver.find_element("id", "import-file").send_keys(str(file))
    chat.shows("#notice", f"bad.json cannot be imported: {reason}")
    has_titles(chat)


def test_edits_and_regenerated_answers_are_branches(chat: Page) -> None:
    chat.ask("the dog")
    chat.click("[aria-label='Edit and send again']")
    chat.press(Keys.CONTROL, "a")
    chat.press("the fox", Keys.ENTER)
    chat.shows(".version", "2/2")
    chat.find(".figures")
    chat.click("[aria-label='Regenerate']")
    chat.until(lambda: len(chat.all(".version")) == 2, "two versions of the answer")
    chat.find(".figures")
    chat.click("[aria-label='Edit the answer']")
    chat.press(Keys.CONTROL, "a")
    chat.press("own words", Keys.CONTROL, Keys.ENTER)
    chat.shows(".assistant .version", "3/3")
    assert chat.find(".assistant .body").text == "own words"
    chat.click(".user [aria-label='Previous version']")
    chat.until(lambda: chat.questions() == ["the dog"], "the first question")
    assert chat.find(".assistant .body").text == ANSWER
    chat.driver.refresh()
    chat.shows(".version", "1/2")
    chat.click("[aria-label='Next version']")
    chat.shows(".assistant .body", "own words")
    chat.click("[aria-label='Copy into a new chat']")
    has_titles(chat, "the dog", "the dog")
    assert chat.questions() == ["the fox"]
    assert chat.all(".version") == []


@pytest.mark.nightly
def test_settings_belong_to_a_conversation(chat: Page) -> None:
    chat.ask("the dog")
    chat.click("#open-settings")
    chat.type("Be short.", into="[name=system]")
    chat.press(Keys.ESCAPE)
    system = "return document.querySelector('[name=system]').value"
    chat.click("#new")
    assert chat.run(system) == ""
    chat.click(".conversation .title")
    chat.until(lambda: chat.run(system) == "Be short.", "the system prompt")
    chat.driver.refresh()
    chat.until(lambda: chat.run(system) == "Be short.", "the stored system prompt")


def test_an_answer_survives_a_reload_and_is_continued(page: Page) -> None:
    doorman = Doorman()
    service = fakes.fake_service(LIBRARY, template=templates.GEMMA, context=8192, delay=0.01)
    with fakes.running(service, before=doorman.before) as client:
        page.open(str(client.base_url))
        page.type("the dog", Keys.ENTER)
        page.until(lambda: len(page.find(".live .body").text) > 20, "some of the answer")
        page.run(
            "return new Promise(done => setTimeout(done, 1000))"
        )  # it is stored twice a second
        page.driver.refresh()
        page.shows("#notice", "The answer was interrupted.")
        before = page.find(".assistant .body").text
        assert len(before) > 20
        page.click("#retry")
        page.until(lambda: len(page.find(".live .body").text) > len(before), "more of the answer")
        page.press(Keys.ESCAPE)
        page.shows(".figures", "stopped")
        assert page.find(".assistant .body").text.startswith(before)
        assert [message["role"] for message in doorman.bodies[-1]["messages"]] == [
            "user",
            "assistant",
        ]
        assert page.find("[aria-label='Continue']")


@pytest.mark.nightly
def test_two_tabs_show_the_same_conversation(chat: Page) -> None:
    chat.ask("the dog")
    first = chat.driver.current_window_handle
    address = chat.driver.current_url
    chat.driver.switch_to.new_window("tab")
    try:
        chat.driver.get(address)
        chat.until(lambda: chat.questions() == ["the dog"], "the conversation in the second tab")
        chat.ask("the fox")
        chat.driver.switch_to.window(first)
        chat.until(lambda: chat.questions() == ["the dog", "the fox"], "both questions")
        chat.ask("a word")
        chat.act("the dog", "Delete")
        chat.driver.switch_to.window(chat.driver.window_handles[1])
        chat.shows("#greeting", "How can I help you?")
    finally:
        chat.driver.switch_to.window(chat.driver.window_handles[1])
        chat.driver.close()
        chat.driver.switch_to.window(first)


@pytest.mark.nightly
def test_full_storage_is_reported_and_the_conversation_goes_on(page: Page) -> None:
    def quota(origin: str, **size: int) -> None:
        page.driver.execute_cdp_cmd("Storage.overrideQuotaForOrigin", {"origin": origin, **size})

    # A new origin: the browser remembers for some seconds how much space was left in one.
    with fakes.running(scripted(ANSWER)) as client:
        page.open(str(client.base_url))
        quota(str(client.base_url), quotaSize=1)
        page.type("the dog " * 200, Keys.ENTER)
        page.shows("#notice", "The browser's storage is full.")
        page.shows(".assistant .body", ANSWER)
        quota(str(client.base_url))
        assert page.ask("the fox") == ANSWER
        page.driver.refresh()
        page.until(lambda: len(page.questions()) == 2, "the stored conversation")


GARBAGE: dict[str, str] = {
    "other stores": "indexedDB.open('hearth', 1).onupgradeneeded = e => "
    "e.target.result.createObjectStore('old')",
    "records of another form": """indexedDB.open('hearth', 1).onupgradeneeded = e => {
        const stores = ['conversations', 'messages'].map(
            name => e.target.result.createObjectStore(name, {keyPath: 'id'}));
        stores[1].createIndex('conversation', 'conversation');
        stores[0].put({id: 'a', title: 7});
        stores[0].put({id: 'b', title: 'kept', settings: {sampling: {top_k: 'x'}}, leaf: 'gone'});
        stores[1].put({id: 'm', conversation: 'b', parent: 'm', role: 'user', content: 'loop'});
        stores[1].put({id: 'n', conversation: 'b', role: 'assistant', content: 3});
    }""",
}


@pytest.mark.parametrize("script", GARBAGE.values(), ids=GARBAGE)
def test_damaged_storage_does_not_break_the_page(page: Page, url: str, script: str) -> None:
    page.open(url)
    page.driver.get(f"{url}/web/icon.svg")
    entries: dict[str, Any] = {
        "settings": "{",
        "model": "gone",
        "theme": "pink",
        "conversation": "[3]",
    }
    page.run(
        "for (const [k, v] of Object.entries(arguments[0])) localStorage['hearth.' + k] = v",
        entries,
    )
    page.run(
        """return new Promise(done => {
            indexedDB.deleteDatabase("hearth").onsuccess = () => done();
        })"""
    )
    page.run(f"{script}; return new Promise(done => setTimeout(done, 200))")
    page.driver.get(url)
    page.shows("#status", "Ready")
    assert page.ask("the dog") == ANSWER
    if "kept" in script:
        has_titles(page, "the dog", "kept")
        page.click("#conversations section:last-child .title")
        page.until(lambda: page.questions() == ["loop"], "the message that can be read")


@pytest.mark.nightly
def test_a_newer_database_is_left_alone(page: Page, url: str) -> None:
    page.open(url)
    page.driver.get(f"{url}/web/icon.svg")
    page.run(
        """return new Promise(done => {
            indexedDB.deleteDatabase("hearth").onsuccess = () => {
                indexedDB.open("hearth", 99).onsuccess = () => done();
            };
        })"""
    )
    page.driver.get(url)
    page.shows("#notice", "This browser does not store conversations.")
    assert page.ask("the dog") == ANSWER
    has_titles(page, "the dog")
