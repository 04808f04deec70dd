"""What messages show: code, math, reasoning, tool calls, files; and text that is meant to harm."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from selenium.webdriver.common.keys import Keys

from tests.server import fakes, templates
from tests.server.openai_servers import LIBRARY, scripted
from tests.server.web.doorman import Doorman, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.server.web.browser import Page

RICH = r"""Let $x^2$ be \(y\) and

$$\int_0^1 x\,dx$$

```python
def half(x): return x / 2  # <b>
```
"""
HOSTILE = {
    "nested lists": "- " * 1200 + "end",
    "open emphasis": "**a " * 20_000,
    "one line": "word " * 20_000,
    "one word": "x" * 100_000,
    "broken HTML": "<div><p <b>a</i></table><!-- <![CDATA[ <svg/onload=alert(1)>",
    "scripts": "<img src=x onerror='document.title=\"harm\"'><script>document.title='harm'</script>"
    "\n\n[a](javascript:document.title='harm') ![b](javascript:alert(1)) <javascript:alert(1)>"
    "\n\n[c](data:text/html,<script>alert(1)</script>) [d](JaVaScRiPt:alert(1))",
    "formulas": r"$\href{javascript:alert(1)}{a}$ $\htmlData{a=b}{c}$ $\url{javascript:alert(1)}$ "
    r"$$\def\a{\a\a}\a$$ $" + "{" * 4000 + "$",
    "code": '```html\n<script>document.title="harm"</script>\n<img src=x onerror=alert(1)>\n```\n'
    "```constructor\na\n```\n```__proto__\na\n```",
    "dollars": "$a " * 5000 + "\n\n" + "$$\n" * 2501 + "\\(" * 5000,
}
SETTLED = """return [".assistant", ".math:not(.plain-text, :has(.katex))"].map(
    selector => document.querySelectorAll(selector).length)"""
HARMFUL = """return document.querySelectorAll(
    '.message :is(img, script, iframe, object, embed, form, base, meta, style), '
    + '.message [onerror], .message [onload], .message [href^="javascript" i], '
    + '.message [href^="data" i]').length"""


@pytest.fixture
def doorman() -> Doorman:
    return Doorman()


@pytest.fixture
def chat(page: Page, doorman: Doorman) -> Iterator[Page]:
    with fakes.running(scripted(RICH), before=doorman.before) as client:
        page.open(str(client.base_url))
        yield page


def exported(path: Path, *contents: str) -> Path:
    """A file with one conversation, in which each content is an answer."""
    messages: list[dict[str, Any]] = []
    for at, content in enumerate(contents):
        for role, text in (("user", f"question {at}"), ("assistant", content)):
            parent = messages[-1]["id"] if messages else None
            id_ = f"m{len(messages)}"
            messages.append({"id": id_, "parent": parent, "created": len(messages)})
            messages[-1] |= {"role": role, "content": text, "finish": "stop"}
    entry = {"id": "c", "title": "imported", "leaf": messages[-1]["id"], "messages": messages}
    data = {"format": "hearth-conversations-1", "conversations": [entry]}
    path.write_text(json.dumps(data))
    return path


def load(page: Page, file: Path) -> None:
    page.driver.find_element("id", "import-file").send_keys(str(file))
    page.shows(".conversation", "imported")


def test_code_is_colored_and_math_is_typeset(chat: Page) -> None:
    chat.ask("the dog")
    chat.until(lambda: len(chat.all(".katex-html")) == 3, "three formulas")
    assert len(chat.all(".math.display .katex-html")) == 1
    annotation = "return document.querySelector('.katex annotation').textContent"
    assert chat.run(annotation) == "x^2"
    fonts = "return document.fonts.ready.then(() => document.fonts.check('16px KaTeX_Main'))"
    assert chat.run(fonts)
    keyword = chat.find(".code .hljs-keyword")
    assert keyword.text == "def"
    assert chat.find(".code code").text == "def half(x): return x / 2  # <b>"
    assert keyword.value_of_css_property("color") != chat.find(".code code").value_of_css_property(
        "color"
    )
    chat.run(
        "navigator.clipboard.writeText = async text => { document.body.dataset.copied = text; }"
    )
    chat.click("[aria-label='Copy the code']")
    chat.until(
        lambda: (
            chat.run("return document.body.dataset.copied") == "def half(x): return x / 2  # <b>"
        ),
        "the copied code",
    )


@pytest.mark.nightly
def test_no_file_is_requested_twice(chat: Page, doorman: Doorman) -> None:
    doorman.paths.clear()
    chat.driver.refresh()
    chat.shows("#status", "Ready")
    chat.request_probabilities()  # an event for each token
    chat.ask("the dog")
    chat.until(lambda: len(chat.all(".katex-html")) == 3, "three formulas")
    files = Counter(path for path in doorman.paths if path.startswith("/web/"))
    del files["/web/icon.svg"]  # also the icon of the tab, and of the manifest
    assert len(files) > 30
    assert [path for path, count in files.items() if count > 1] == []


@pytest.mark.nightly
def test_reasoning_is_folded(page: Page, doorman: Doorman) -> None:
    answer = "<think>\nthe fox\n</think>\n\nthe dog"
    service = scripted(answer, template=templates.THINKING)
    with fakes.running(service, before=doorman.before) as client:
        page.open(str(client.base_url))
        page.request_probabilities()  # an event for each token
        doorman.cut_after = 11  # in the reasoning, which cannot be continued
        doorman.refused["/v1/stream"] = Refusal(404, "gone")
        page.type("the dog", Keys.ENTER)
        page.shows("#notice", "The connection was lost.")
        page.find(".reasoning")
        doorman.cut_after = None
        assert page.find("#retry").text == "Try again"
        page.click("#retry")
        page.shows(".assistant .body", "the dog")
        page.shows(".assistant .version", "2/2")
        assert page.all(".reasoning pre") == []
        page.click(".reasoning summary")
        assert page.find(".reasoning pre").text == "the fox"


def test_tool_calls_are_folded_and_take_results(page: Page, doorman: Doorman) -> None:
    call = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    service = scripted(call, template=templates.THINKING)
    with fakes.running(service, before=doorman.before) as client:
        page.open(str(client.base_url))
        page.click("#open-settings")
        page.type("[", into="[name=tools]")
        assert page.run("return document.querySelector('[name=tools]').matches(':invalid')")
        page.type('{"name": "f", "parameters": {"type": "object"}}]', into="[name=tools]")
        page.press(Keys.ESCAPE)
        page.type("the dog", Keys.ENTER)
        page.shows(".calls summary", "Call of f")
        page.click(".calls summary")
        assert json.loads(page.find(".calls pre").text) == {"a": 1}
        page.type("fine", into=".results textarea")
        page.click(".results button")
        page.until(lambda: len(page.all(".calls summary")) == 2, "the next call")
        body = doorman.bodies[-1]
        assert body["tools"][0]["function"]["name"] == "f"
        assert [message["role"] for message in body["messages"]] == ["user", "assistant", "tool"]
        called = body["messages"][1]["tool_calls"][0]
        result = body["messages"][2]
        assert (result["tool_call_id"], result["content"]) == (called["id"], "fine")


@pytest.mark.nightly
def test_files_are_attached_with_their_number_of_tokens(
    chat: Page, doorman: Doorman, tmp_path: Path
) -> None:
    text = "the dog\n```\nthe fox\n"
    (tmp_path / "notes.md").write_text(text)
    (tmp_path / "data.bin").write_bytes(b"\x89PNG\0")
    field = chat.driver.find_element("id", "files")
    field.send_keys(str(tmp_path / "data.bin"))
    chat.shows(
        "#notice", "data.bin: the file is neither a text in UTF-8 nor a PDF or office document."
    )
    field.send_keys(str(tmp_path / "notes.md"))
    count = len(LIBRARY.encode(text).ids)
    chat.shows(".chip", f"notes.md · {count} tokens")
    chat.shows("#context-text", f"{count} of 2,048 tokens")
    paste = """const data = new DataTransfer();
        data.setData("text/plain", "long ".repeat(500));
        const event = new ClipboardEvent("paste", {clipboardData: data, cancelable: true});
        document.getElementById("input").dispatchEvent(event)"""
    chat.run(paste)
    chat.shows(".chip", "pasted-1.txt")
    chat.click("[aria-label='Remove pasted-1.txt']")
    chat.ask("the dog")
    content = doorman.bodies[-1]["messages"][0]["content"]
    assert content == f"notes.md\n````\n{text}````\n\nthe dog"
    assert chat.questions() == ["the dog"]
    chat.shows(".attachments summary", "notes.md")
    assert chat.all(".chip") == []


def test_a_model_can_be_chosen(chat: Page, doorman: Doorman) -> None:
    status = {"value": "unloaded"}
    models = [
        {"id": "first", "meta": {"n_ctx": 100}},
        {"id": "second", "meta": {"n_ctx": 500}, "status": status},
        {"id": "arrays", "meta": None, "status": status, "capabilities": ["arrays"]},
        {"id": "encoder", "meta": {"n_ctx": 9}, "status": status, "capabilities": ["embedding"]},
    ]
    doorman.answered["/v1/models"] = {"object": "list", "data": models}
    chat.driver.refresh()
    options = "return [...document.getElementById('models').options].map(o => o.textContent)"
    chat.until(lambda: chat.run(options) == ["first", "second (not loaded)"], "both models")
    chat.run(
        """const field = document.getElementById("models");
        field.value = "second";
        field.dispatchEvent(new Event("change"))"""
    )
    chat.ask("the dog")
    assert doorman.bodies[-1]["model"] == "second"
    chat.screen(360, 740)
    edges = """return ['models', 'new'].map(
        id => document.getElementById(id).getBoundingClientRect())"""
    models_box, next_box = chat.run(edges)
    assert models_box["right"] <= next_box["left"]
    chat.shows("#context-text", "of 500 tokens")
    chat.driver.refresh()
    chat.until(lambda: chat.run("return document.getElementById('models').value") == "second", "it")


def test_an_answer_whose_connection_was_lost_is_read_on(chat: Page, doorman: Doorman) -> None:
    doorman.cut_after = 12
    chat.type("the dog", Keys.ENTER)
    chat.until(lambda: chat.all(".figures"), "the answer")
    assert chat.all("#notice:not([hidden])") == []
    assert len(chat.all(".katex-html")) == 3
    assert doorman.paths.count("/v1/stream") == 1
    assert doorman.paths.count("/v1/chat/completions") == 1


@pytest.mark.nightly
def test_an_answer_that_is_stopped_ends_on_the_server(page: Page, doorman: Doorman) -> None:
    service = fakes.fake_service(LIBRARY, template=templates.GEMMA, context=256, delay=0.05)
    with fakes.running(service, before=doorman.before) as client:
        page.open(str(client.base_url))
        page.type("the dog", Keys.ENTER)
        page.until(lambda: page.all(".assistant .body"), "an answer")
        page.click("#stop")
        page.until(lambda: "/v1/stream" in doorman.paths, "the end of the stream")
        line = 'completions_total{model="fake-model",outcome="cancelled"} 1'
        page.until(lambda: line in client.get("/metrics").text, "the end of the completion")


@pytest.mark.nightly
def test_an_answer_that_was_cut_can_be_continued(chat: Page, doorman: Doorman) -> None:
    doorman.refused["/v1/stream"] = Refusal(404, "gone")
    doorman.cut_after = 12
    chat.type("the dog", Keys.ENTER)
    chat.shows("#notice", "The connection was lost.")
    part = chat.find(".assistant .body").text
    assert part
    chat.shows(".figures", "interrupted")
    doorman.cut_after = None
    assert chat.find("#retry").text == "Continue"
    chat.click("#retry")
    chat.until(lambda: not chat.all("#notice") and chat.all(".figures"), "the rest of the answer")
    last = doorman.bodies[-1]["messages"][-1]
    assert last["role"] == "assistant"
    assert RICH.startswith(last["content"])


def test_hostile_answers_do_no_harm_and_survive_a_reload(chat: Page, tmp_path: Path) -> None:
    load(chat, exported(tmp_path / "hostile.json", *HOSTILE.values()))
    for _ in range(2):
        chat.until(lambda: chat.run(SETTLED) == [len(HOSTILE), 0], "all messages, and no formula")
        assert chat.run(HARMFUL) == 0
        assert "harm" not in chat.driver.title
        assert chat.run("return Object.keys(globalThis).includes('harm')") is False
        chat.driver.refresh()
        chat.shows("#status", "Ready")
    assert "<script>" in chat.run("return document.querySelectorAll('.assistant')[5].textContent")
