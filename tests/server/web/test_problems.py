"""What the chat page says when a server refuses, starts, or has models without a template."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from selenium.webdriver.common.keys import Keys

from hearthd.server.app import Guards
from tests.server import fakes, templates
from tests.server.fake_models import FakeModel, pool
from tests.server.openai_servers import LIBRARY
from tests.server.web.conftest import noise
from tests.server.web.doorman import CHAT, Doorman, Refusal

if TYPE_CHECKING:
    from tests.server.web.browser import Page


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


@pytest.mark.nightly
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


@pytest.mark.nightly
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


@pytest.mark.nightly
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


@pytest.mark.nightly
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


@pytest.mark.nightly
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


@pytest.mark.nightly
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


@pytest.mark.nightly
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


@pytest.mark.nightly
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


@pytest.mark.nightly
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


@pytest.mark.nightly
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


def test_models_are_loaded_and_unloaded_in_the_settings(page: Page) -> None:
    models = FakeModel(name="chats", fields={"template": templates.GEMMA}), FakeModel(name="base")
    with fakes.running(pool(*models)) as client:
        page.open(str(client.base_url))
        page.click("#open-settings")
        page.shows("#model-list li:first-child", "loaded")
        assert "not loaded" in page.find("#model-list li:last-child").text
        page.click("#model-list li:last-child .plain")
        page.shows("#model-list li:last-child .plain", "Unload")
        assert len(models[1].opened) == 1
        page.click("#model-list li:last-child .plain")
        page.shows("#model-list li:last-child", "not loaded")
        page.press(Keys.ESCAPE)
        choose(page, "base")
        page.ask("the dog")
        assert page.find(".figures span").text == "base"


@pytest.mark.nightly
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


@pytest.mark.nightly
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
