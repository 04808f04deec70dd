"""The chat page in a real browser, by real clicks and keys, on a real server with a fake model."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from selenium.webdriver.common.keys import Keys

from server.app import Guards
from tests.server import fakes, templates
from tests.server.certificates import tls
from tests.server.fake_models import FakeModel, pool
from tests.server.openai_servers import LIBRARY, scripted
from tests.server.web.doorman import Doorman, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from server.services.language_service import LanguageService
    from tests.server.web.browser import Page

CHAT = "/v1/chat/completions"
DOUBTS = (
    "return [...document.querySelectorAll('.token')].map(t => t.style.getPropertyValue('--doubt'))"
)
XSS = (
    "Look: <img src=x onerror='document.title=1'> & <b>bold</b> `<script>document.title=2</script>`"
)


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


def test_regenerate_gives_another_answer_to_the_same_message(chat: Page, doorman: Doorman) -> None:
    before = chat.ask("the dog")
    chat.click("[aria-label='Regenerate']")
    chat.until(lambda: chat.find(".assistant .body").text not in ("", before), "another answer")
    chat.find(".figures")
    assert chat.questions() == ["the dog"]
    assert [body["messages"] for body in doorman.bodies] == [
        [{"role": "user", "content": "the dog"}]
    ] * 2


def test_a_seed_repeats_an_answer(chat: Page) -> None:
    chat.click("#open-settings")
    chat.type("5", into="[name=seed]")
    chat.click("#as-default")
    chat.press(Keys.ESCAPE)
    first = chat.ask("the dog")
    chat.click("#new")
    chat.shows("#greeting", "How")
    assert chat.ask("the dog") == first


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


def test_a_setting_out_of_range_is_shown_and_not_sent(chat: Page, doorman: Doorman) -> None:
    chat.click("#open-settings")
    chat.type("1.5", into="[name=top_p]")
    assert chat.run("return document.querySelector('[name=top_p]').matches(':invalid')")
    chat.click("#settings [aria-label='Close']")
    assert chat.find("#settings").is_displayed()
    chat.press(Keys.ESCAPE)
    chat.ask("the dog")
    assert "top_p" not in doorman.bodies[-1]


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


def test_a_server_with_keys_asks_for_one(page: Page) -> None:
    with fakes.running(noise(), guards=Guards(api_keys=("secret",))) as client:
        page.open(str(client.base_url))
        page.type("wrong", Keys.ENTER, into="#key-input")
        page.shows("#key-hint", "rejected this key")
        page.type("secret", Keys.ENTER, into="#key-input")
        page.shows("#model", "fake-model")
        assert page.ask("the dog")
        page.driver.refresh()
        page.shows("#model", "fake-model")
        assert page.run("return sessionStorage['hearth.key']") == "secret"
        assert "secret" not in page.run("return JSON.stringify(localStorage)")


def test_a_busy_server_shows_when_to_retry(chat: Page, doorman: Doorman) -> None:
    full = Refusal(429, "4 requests wait, the most there may", {"Retry-After": "1"})
    doorman.refused[CHAT] = full
    chat.type("the dog", Keys.ENTER)
    chat.shows("#notice", "The server is busy. Try again in 1 second.")
    assert chat.questions() == ["the dog"]
    full.until.set()
    chat.until(lambda: chat.find("#retry").is_enabled(), "the end of the second")
    chat.click("#retry")
    chat.find(".figures")
    assert chat.all("#notice") == []


def test_the_page_waits_for_a_server_that_starts(page: Page, doorman: Doorman) -> None:
    ready = threading.Event()
    starting = Refusal(503, "the self-test is running", until=ready)
    doorman.refused |= {CHAT: starting, "/health/ready": starting, "/health": starting}
    with fakes.running(noise(), before=doorman.before) as client:
        page.open(str(client.base_url), state="Not ready")
        page.type("the dog", Keys.ENTER)
        page.shows("#notice", "Waiting for the server: the self-test is running")
        ready.set()
        page.find(".figures")
        page.shows("#status", "Ready")
        assert page.all("#notice") == []


def test_waiting_for_a_server_can_be_stopped(chat: Page, doorman: Doorman) -> None:
    starting = Refusal(503, "the self-test is running")
    doorman.refused |= {CHAT: starting, "/health/ready": starting, "/health": starting}
    chat.type("the dog", Keys.ENTER)
    chat.shows("#notice", "Waiting for the server")
    chat.press(Keys.ESCAPE)
    chat.shows("#notice", "Stopped before the first token.")
    assert chat.questions() == ["the dog"]
    doorman.refused.clear()
    chat.click("#retry")
    chat.find(".figures")
    assert chat.all("#notice") == []
    assert chat.questions() == ["the dog"]


def test_a_message_without_an_answer_can_be_sent_again_after_a_reload(
    chat: Page, doorman: Doorman
) -> None:
    doorman.refused[CHAT] = Refusal(429, "all slots are busy")
    chat.type("the dog", Keys.ENTER)
    chat.shows("#notice", "The server is busy")
    chat.driver.refresh()
    chat.shows("#notice", "This message has no answer.")
    doorman.refused.clear()
    chat.click("#retry")
    chat.find(".figures")
    assert chat.all("#notice") == []
    assert chat.questions() == ["the dog"]


def test_a_message_that_is_too_long_is_refused_with_the_number_of_tokens(
    chat: Page, doorman: Doorman
) -> None:
    words = "the dog jumps over the fox " * 30
    prompt = f"<start_of_turn>user\n{words.strip()}<end_of_turn>\n<start_of_turn>model\n"
    excess = len(LIBRARY.encode(prompt).ids) + 1 - 95  # <bos>; a token is for the answer
    sentence = f"Too long by {excess} tokens: shorten it, or start a new chat."
    send = """document.getElementById("input").value = arguments[0];
        document.getElementById("composer").requestSubmit()"""
    chat.run(send, words)  # before the page has counted
    chat.shows("#notice", sentence)
    assert chat.find("#retry").text == "Edit the message"
    chat.click("#retry")
    chat.press(Keys.CONTROL, "a")
    chat.press("the dog", Keys.ENTER)
    chat.find(".figures")
    assert chat.questions() == ["the dog"]
    chat.click("#new")
    requests = doorman.paths.count(CHAT)
    chat.type(words)
    chat.shows("#refusal", sentence)
    chat.type(Keys.ENTER)
    assert not chat.find("#send").is_enabled()
    assert doorman.paths.count(CHAT) == requests
    chat.type(Keys.CONTROL, "a")
    chat.press("the dog")
    chat.until(lambda: chat.find("#send").is_enabled(), "a message that is short enough")
    chat.until(lambda: not chat.all("#refusal"), "no refusal")


@pytest.mark.parametrize(("tokens", "warned"), [(30, False), (70, True)])
def test_a_notice_appears_when_little_of_the_context_is_left(
    chat: Page, tokens: int, warned: bool
) -> None:
    chat.click("#open-settings")
    chat.type(str(tokens), into="[name=max_tokens]")
    chat.press(Keys.ESCAPE)
    chat.ask("the dog")
    used = int(chat.find("#context-text").text.split()[0])
    assert (used > 0.8 * 96) == warned
    notice = chat.driver.find_element("id", "nearly-full")
    assert notice.get_attribute("role") == "status"
    expected = (
        f"{used} of 96 tokens used. The model reads no more than that: start a new chat soon."
    )
    assert notice.text == (expected if warned else "")
    chat.click("#new")
    chat.until(lambda: notice.text == "", "no notice")


def test_a_key_can_be_entered_after_it_was_refused(page: Page) -> None:
    with fakes.running(noise(), guards=Guards(api_keys=("secret",))) as client:
        page.open(str(client.base_url))
        page.click("#key-cancel")
        page.click("#input")
        page.type("the dog", Keys.ENTER)
        page.click("#key-cancel")
        page.shows("#notice", "This server answers only with an API key.")
        assert page.find("#retry").text == "Enter the key"
        page.click("#retry")
        page.type("secret", Keys.ENTER, into="#key-input")
        page.find(".figures")
        assert page.questions() == ["the dog"]


def test_a_model_that_is_gone_is_named(chat: Page, doorman: Doorman) -> None:
    models = [{"id": name, "meta": {"n_ctx": 96}} for name in ("first", "second")]
    doorman.answered["/v1/models"] = {"data": models}
    doorman.refused[CHAT] = Refusal(404, "model: got second")
    chat.run("localStorage['hearth.model'] = 'second'")
    chat.driver.refresh()
    chat.until(lambda: chat.run("return document.getElementById('models').value") == "second", "it")
    doorman.answered["/v1/models"] = {"data": models[:1]}
    chat.type("the dog", Keys.ENTER)
    chat.shows("#notice", "second is no longer on this server. Choose another model, or try again")
    doorman.refused.clear()
    chat.click("#retry")
    chat.find(".figures")


def test_a_model_that_cannot_be_loaded_is_reported(page: Page) -> None:
    broken = FakeModel(name="broken", error=OSError("a file is missing"))
    with fakes.running(pool(FakeModel(name="good"), broken)) as client:
        page.open(str(client.base_url))
        choose(page, "broken")
        page.type("the dog", Keys.ENTER)
        page.shows(
            "#notice", "broken: the model cannot be loaded: a file is missing. Choose another"
        )
        page.find("#retry")


def test_an_unreachable_server_is_reported(page: Page) -> None:
    with fakes.running(noise()) as client:
        page.open(str(client.base_url))
    page.type("the dog", Keys.ENTER)
    page.shows("#notice", "The server cannot be reached. Check that the server runs")
    page.shows("#status", "Not reachable")


def choose(page: Page, model: str) -> None:
    script = """const field = document.getElementById("models");
        if (![...field.options].some(({ value }) => value === arguments[0])) return false;
        field.value = arguments[0];
        field.dispatchEvent(new Event("change"));
        return true"""
    page.until(lambda: page.run(script, model), model)


def test_a_model_that_is_not_loaded_continues_the_text_if_it_has_no_template(
    page: Page, doorman: Doorman
) -> None:
    models = FakeModel(name="chats", fields={"template": templates.GEMMA}), FakeModel(name="base")
    with fakes.running(pool(*models), before=doorman.before) as client:
        page.open(str(client.base_url))
        page.shows("#greeting", "How can I help you?")
        choose(page, "base")
        page.shows("#greeting", "Start a text")
        assert models[1].opened == []
        assert page.ask("the dog")
        assert CHAT not in doorman.paths


def test_a_template_that_is_gone_after_a_load_is_noticed(page: Page, doorman: Doorman) -> None:
    listed = [{"id": "fake-model", "meta": {"n_ctx": 96}, "capabilities": ["completion", "chat"]}]
    doorman.answered["/v1/models"] = {"data": listed}
    with fakes.running(noise(template=None), before=doorman.before) as client:
        page.open(str(client.base_url))
        page.shows("#greeting", "How can I help you?")
        doorman.answered.clear()
        assert page.ask("the dog")
        assert CHAT in doorman.paths
        assert doorman.bodies[-1]["prompt"] == "the dog"


def test_a_model_without_a_template_continues_the_text(page: Page, doorman: Doorman) -> None:
    with fakes.running(noise(template=None), before=doorman.before) as client:
        page.open(str(client.base_url))
        page.shows("#greeting", "Start a text")
        page.request_probabilities()
        assert page.ask("the dog")
        assert doorman.bodies[-1]["prompt"] == "the dog"
        assert "tokens/s" in page.find(".figures").text
        page.click("[aria-label='Token probabilities']")
        assert page.find(".tokens")
        page.click("#open-settings")
        assert not page.find("[name=system]").is_enabled()
