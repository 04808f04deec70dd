"""The chat page in a real browser, by real clicks and keys, on a real server with a fake model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from selenium.webdriver.common.keys import Keys

from tests.server import fakes
from tests.server.certificates import tls
from tests.server.openai_servers import LIBRARY, scripted
from tests.server.web.conftest import noise

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hearthd.server.services.language_service import LanguageService
    from tests.server.web.browser import Page
    from tests.server.web.doorman import Doorman

DOUBTS = (
    "return [...document.querySelectorAll('.token')].map(t => t.style.getPropertyValue('--doubt'))"
)
XSS = (
    "Look: <img src=x onerror='document.title=1'> & <b>bold</b> `<script>document.title=2</script>`"
)


@pytest.fixture
def slow(request: pytest.FixtureRequest) -> Iterator[tuple[LanguageService, str]]:
    """A model whose answers take minutes, and its address, which may have the parameter https."""
    service = noise(context=8192, delay=0.02)
    security = tls() if getattr(request, "param", "http") == "https" else None
    with fakes.running(service, tls=security) as client:
        yield service, str(client.base_url)


def free(service: LanguageService) -> bool:
    return not any(slot.busy for slot in service.state().slots)


def test_an_answer_has_its_text_and_its_figures(page: Page) -> None:
    with fakes.running(scripted("the **quick** fox")) as client:
        page.open(str(client.base_url))
        page.shows("#model", "fake-model")
        assert page.ask("the dog") == "the quick fox"
        assert page.questions() == ["the dog"]
        assert page.find(".assistant strong").text == "quick"
        figures = page.find(".figures").text
        prompt = "<|im_start|>user\nthe dog<|im_end|>\n<|im_start|>assistant\n"
        assert f"{len(LIBRARY.encode('the **quick** fox').ids)} tokens" in figures
        assert f"{len(LIBRARY.encode(prompt).ids) + 1} prompt tokens" in figures  # <bos>
        assert "tokens/s" in figures
        assert "first token 0." in figures
        assert page.find("#input").get_attribute("value") == ""
        assert (
            page.run("return document.getElementById('spoken').textContent") == "the **quick** fox"
        )


@pytest.mark.parametrize("slow", ["http", "https"], indirect=True)
def test_the_answer_is_streamed_and_stop_keeps_its_text(
    page: Page, slow: tuple[LanguageService, str]
) -> None:
    service, url = slow
    page.open(url)
    page.type("the dog")
    page.click("#send")
    first = page.until(lambda: page.find(".live .body").text, "the first of the answer")
    page.until(lambda: len(page.find(".live .body").text) > len(first), "more of the answer")
    assert not free(service)
    page.click("#stop")
    page.shows(".figures", "stopped")
    assert page.find(".assistant .body").text.startswith(first[:3])
    page.until(lambda: free(service), "a free slot")
    assert page.find("#send")


@pytest.mark.nightly
def test_escape_stops_the_answer(page: Page, slow: tuple[LanguageService, str]) -> None:
    service, url = slow
    page.open(url)
    page.type("the dog", Keys.ENTER)
    page.until(lambda: page.find(".live .body").text, "the first of the answer")
    page.press(Keys.ESCAPE)
    page.shows(".figures", "stopped")
    page.until(lambda: free(service), "a free slot")


def test_an_answer_continues_while_another_conversation_is_shown(
    page: Page, slow: tuple[LanguageService, str]
) -> None:
    service, url = slow
    page.open(url)
    page.type("the dog", Keys.ENTER)
    first = page.until(lambda: page.find(".live .body").text, "the first of the answer")
    page.click("#new")
    page.shows("#greeting", "How can I help you?")
    assert page.all(".message") == []
    assert not free(service)
    page.click(".conversation.running .title")
    page.until(lambda: len(page.find(".live .body").text) > len(first), "more of the answer")
    page.act("the dog", "Delete")
    page.shows("#greeting", "How can I help you?")
    page.until(lambda: free(service), "a free slot")
    page.click("#undo")
    page.shows(".user .body", "the dog")
    assert page.find(".assistant .body").text.startswith(first[:3])


@pytest.mark.nightly
def test_regenerate_gives_another_answer_to_the_same_message(chat: Page, doorman: Doorman) -> None:
    before = chat.ask("the dog")
    chat.click("[aria-label='Regenerate']")
    chat.until(lambda: chat.find(".assistant .body").text not in ("", before), "another answer")
    chat.find(".figures")
    assert chat.questions() == ["the dog"]
    assert [body["messages"] for body in doorman.bodies] == [
        [{"role": "user", "content": "the dog"}]
    ] * 2


@pytest.mark.nightly
def test_a_preset_sets_the_numbers(chat: Page, doorman: Doorman) -> None:
    def choose(preset: str) -> None:
        chat.run(
            """const select = document.getElementById("preset");
            select.value = arguments[0];
            for (const name of ["input", "change"])
                select.dispatchEvent(new Event(name, { bubbles: true }));""",
            preset,
        )

    chat.click("#open-settings")
    chat.type("5", into="[name=seed]")
    choose("creative")
    assert chat.find("[name=temperature]").get_attribute("value") == "1.2"
    chat.type(Keys.BACKSPACE * 3, "0", into="[name=temperature]")
    assert chat.find("#preset").get_attribute("value") == "custom"
    choose("exact")
    chat.press(Keys.ESCAPE)
    chat.ask("the dog")
    body = doorman.bodies[-1]
    assert {"temperature": 0, "seed": 5}.items() <= body.items()
    assert "min_p" not in body


@pytest.mark.nightly
def test_a_seed_repeats_an_answer(chat: Page) -> None:
    chat.click("#open-settings")
    chat.type("5", into="[name=seed]")
    chat.click("#as-default")
    chat.press(Keys.ESCAPE)
    first = chat.ask("the dog")
    chat.click("#new")
    chat.shows("#greeting", "How")
    assert chat.ask("the dog") == first


@pytest.mark.nightly
def test_the_last_message_can_be_edited_and_sent_again(page: Page, doorman: Doorman) -> None:
    with fakes.running(scripted("the lazy dog"), before=doorman.before) as client:
        page.open(str(client.base_url))
        page.ask("the dog")
        page.ask("the fox")
        page.type(Keys.ARROW_UP)
        page.press("never sent", Keys.ESCAPE)
        assert page.questions() == ["the dog", "the fox"]
        page.all("[aria-label='Edit and send again']")[-1].click()
        page.press(Keys.CONTROL, "a")
        page.press("the brown fox", Keys.ENTER)
        page.until(lambda: page.questions() == ["the dog", "the brown fox"], "the question")
        page.until(lambda: len(page.all(".figures")) == 2, "its answer")
        assert doorman.bodies[-1]["messages"] == [
            {"role": "user", "content": "the dog"},
            {"role": "assistant", "content": "the lazy dog"},
            {"role": "user", "content": "the brown fox"},
        ]


def test_settings_are_sent_and_stored(chat: Page, doorman: Doorman) -> None:
    expected = {
        "temperature": 0.25, "top_k": 7, "top_p": 0.5, "min_p": 0.1,
        "repeat_penalty": 1.25, "max_tokens": 3, "seed": 11,
    }  # fmt: skip
    chat.click("#open-settings")
    for name, value in expected.items():
        chat.type(str(value), into=f"[name={name}]")
    chat.type("Be short.", into="[name=system]")
    chat.click("#settings [aria-label='Close']")
    for _ in range(2):
        chat.ask("the dog")
        body = doorman.bodies[-1]
        assert {name: body.get(name) for name in expected} == expected
        assert body["messages"][0] == {"role": "system", "content": "Be short."}
        assert "logprobs" not in body  # an answer is slower with them
        assert "token limit" in chat.all(".figures")[-1].text
        chat.driver.refresh()
        chat.shows("#status", "Ready")
    chat.click("#open-settings")
    chat.click("#reset")
    chat.press(Keys.ESCAPE)
    chat.ask("the dog")
    assert not set(expected) & set(doorman.bodies[-1])


@pytest.mark.nightly
def test_a_setting_out_of_range_is_shown_and_not_sent(chat: Page, doorman: Doorman) -> None:
    chat.click("#open-settings")
    chat.type("1.5", into="[name=top_p]")
    assert chat.run("return document.querySelector('[name=top_p]').matches(':invalid')")
    chat.click("#settings [aria-label='Close']")
    assert chat.find("#settings").is_displayed()
    chat.press(Keys.ESCAPE)
    chat.ask("the dog")
    assert "top_p" not in doorman.bodies[-1]


@pytest.mark.nightly
def test_probabilities_are_shown_if_requested(chat: Page, doorman: Doorman) -> None:
    chat.ask("the dog")
    assert chat.all("[aria-label='Token probabilities']") == []
    chat.click("#new")
    chat.request_probabilities()
    text = chat.ask("the dog")
    assert (doorman.bodies[-1]["logprobs"], doorman.bodies[-1]["top_logprobs"]) == (True, 5)
    chat.click("[aria-label='Token probabilities']")
    doubts = {float(doubt) for doubt in chat.run(DOUBTS)}
    assert min(doubts) >= 0
    assert max(doubts) <= 1
    assert len(doubts) > 5
    chat.click(".token:first-child")
    shares = [e.text for e in chat.all(".alternative .share")]
    assert 5 <= len(shares) <= 6
    assert all(share.endswith("%") for share in shares)
    assert len(chat.all(".alternative.chosen")) == 1
    chat.press(Keys.ARROW_RIGHT)
    second = chat.run("return document.querySelectorAll('.token')[1]")
    assert chat.driver.switch_to.active_element == second
    label = second.get_attribute("aria-label")
    assert chat.find(".alternative.chosen .share").text == (label or "").rsplit(", ", 1)[1]
    chat.click("[aria-label='Token probabilities']")
    assert chat.find(".assistant .body").text == text
    assert chat.all("#alternatives") == []


@pytest.mark.nightly
def test_model_output_is_never_interpreted_as_html(page: Page) -> None:
    with fakes.running(scripted(XSS)) as client:
        page.open(str(client.base_url))
        page.request_probabilities()
        shown = page.ask(XSS)
        assert shown == XSS.replace("`", "")
        assert page.questions() == [XSS]
        assert (
            page.run("return document.querySelectorAll('.message :is(img, script, b)').length") == 0
        )
        page.click("[aria-label='Token probabilities']")
        assert page.find(".tokens").text == XSS
        page.driver.refresh()
        page.shows(".assistant .body", "<img src=x onerror='document.title=1'>")
        assert page.driver.title not in ("1", "2")


@pytest.mark.nightly
def test_a_reload_keeps_the_conversation(chat: Page) -> None:
    chat.request_probabilities()
    answer = chat.ask("the dog")
    figures = chat.find(".figures").text
    chat.driver.refresh()
    chat.until(lambda: chat.questions() == ["the dog"], "the conversation")
    assert chat.find(".assistant .body").text == answer
    assert chat.find(".figures").text == figures
    chat.click("[aria-label='Token probabilities']")
    assert chat.find(".tokens")


def test_all_stored_data_can_be_deleted(chat: Page) -> None:
    chat.ask("the dog")
    chat.shows(".conversation", "the dog")
    chat.click("#theme")
    chat.click("#open-settings")
    chat.type("1", into="[name=top_k]")
    chat.click("#delete")
    chat.shows("#greeting", "How can I help you?")
    chat.shows("#conversations", "No conversations yet.")
    assert chat.run("return [localStorage.length, sessionStorage.length]") == [0, 0]


def test_the_keyboard_is_enough(chat: Page, doorman: Doorman) -> None:
    assert chat.driver.switch_to.active_element == chat.find("#input")
    chat.press("the dog", Keys.SHIFT, Keys.ENTER, Keys.NULL, "the fox")
    assert chat.find("#input").get_attribute("value") == "the dog\nthe fox"
    chat.press(Keys.ENTER)
    chat.find(".figures")
    assert doorman.bodies[-1]["messages"][0]["content"] == "the dog\nthe fox"
    chat.press(Keys.TAB)
    assert chat.driver.switch_to.active_element != chat.find("#input")
    chat.press("/")
    assert chat.driver.switch_to.active_element == chat.find("#input")
    assert chat.find("#input").get_attribute("value") == ""
    chat.run("document.activeElement.blur()")
    chat.press("?")
    assert chat.find(".shortcuts").is_displayed()
    chat.press(Keys.ESCAPE)
    chat.until(lambda: not chat.all("#settings"), "closed settings")
