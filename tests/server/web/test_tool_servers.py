"""The chat page as a client of MCP servers: their tools, the user's decisions, and the policy."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.text.tokenizer import Tokenizer
from tests.baker.small_smolvlm import TEMPLATE
from tests.server import fakes, templates
from tests.server.images.image_service import LIBRARY, WIDE, image_service
from tests.server.openai_servers import scripted
from tests.server.web.tool_server import ToolServer, tool_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.server.web.browser import Page
    from tests.server.web.doorman import Doorman

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>'
ADDED = "2 + 3 = 5"
DENIED = "The user did not allow this call."


@pytest.fixture
def tools() -> Iterator[ToolServer]:
    with tool_server() as server:
        yield server


@contextmanager
def calling(page: Page, doorman: Doorman) -> Iterator[Page]:
    """The page of a model that calls the tool again after each result."""
    service = scripted(CALL, template=templates.THINKING)
    with fakes.running(service, before=doorman.before) as client:
        page.open(str(client.base_url))
        yield page


@pytest.fixture
def caller(page: Page, doorman: Doorman) -> Iterator[Page]:
    with calling(page, doorman) as opened:
        yield opened


def add(page: Page, url: str, headers: str = "") -> None:
    """Add a server, after which the page is loaded again with the settings open."""
    if not page.all("#settings"):
        page.click("#open-settings")
    page.run("document.getElementById('tool-server-headers').value = arguments[0]", headers)
    page.type(url, into="#tool-server-url")
    page.click("#add-tool-server")
    host = url.removeprefix("http://").partition("/")[0]
    page.shows("#tool-servers label", host)


def results(doorman: Doorman) -> list[Any]:
    """The results of calls in the latest request."""
    messages = doorman.bodies[-1]["messages"]
    return [message["content"] for message in messages if message["role"] == "tool"]


def test_the_user_decides_about_each_call(
    caller: Page, doorman: Doorman, tools: ToolServer
) -> None:
    add(caller, f"{tools.url}/mcp", "Authorization: Bearer abc")
    caller.shows("#tool-servers summary", "2 tools")
    assert tools.headers[0]["authorization"] == "Bearer abc"
    caller.press("\ue00c")  # Esc
    caller.type("the dog", "\ue007")
    caller.shows(".call legend", f"Call add on {tools.url.removeprefix('http://')}?")
    (offered, _) = doorman.bodies[-1]["tools"]
    assert offered["function"]["name"] == "add"
    assert set(offered["function"]["parameters"]["properties"]) == {"a", "b"}
    assert json.loads(caller.find(".call pre").text) == {"a": 2, "b": 3}
    asked = len(tools.headers)
    caller.run("document.querySelectorAll('.call button')[2].click()")
    caller.until(lambda: results(doorman) == [DENIED], "the answer to a call that is not allowed")
    caller.find(".call")
    assert len(tools.headers) == asked
    caller.run("document.querySelectorAll('.call button')[0].click()")
    caller.until(lambda: results(doorman) == [DENIED, ADDED], "the answer to a result")
    assert tools.headers[-1]["mcp-protocol-version"] == "2025-11-25"
    assert tools.headers[-1]["mcp-session-id"]
    caller.find(".call")
    caller.run("document.querySelectorAll('.call button')[1].click()")
    # After ten rounds the user is asked again.
    caller.until(lambda: len(results(doorman)) == 10, "the rounds without a question")
    caller.find(".call")
    assert len(results(doorman)) == 10
    assert set(results(doorman)[1:]) == {ADDED}
    stored = """const list = document.getElementById("tool-servers");
        return [localStorage.getItem("hearth.mcp"), list.children.length]"""
    (record,) = json.loads(caller.run(stored)[0])
    assert list(record["allowed"]) == ["add"]
    caller.run("document.getElementById('delete').click()")
    caller.until(lambda: caller.run(stored) == [None, 0], "the end of all data")


@pytest.mark.nightly
@pytest.mark.parametrize("reads", [True, False])
def test_images_of_tools_are_shown_and_read(
    page: Page, doorman: Doorman, tools: ToolServer, reads: bool
) -> None:
    tokenizer = Tokenizer(LIBRARY, bos=fakes.BOS)
    script = fakes.Script(
        cue=tokenizer.read("Assistant:"),
        answer=tokenizer.read('{"tool_calls": [{"name": "draw", "arguments": {}}]}'),
        end=tokenizer.read("<end_of_utterance>")[0],
    )
    fields: dict[str, Any] = {"context": 2048, "script": script}
    blind = fakes.fake_service(LIBRARY, template=TEMPLATE, **fields)
    service = image_service(**fields) if reads else blind
    with fakes.running(service, before=doorman.before) as client:
        page.open(str(client.base_url))
        add(page, f"{tools.url}/json")
        page.press("\ue00c")  # Esc
        page.type("the dog", "\ue007")
        page.shows(".call legend", "Call draw on ")
        page.run("document.querySelectorAll('.call button')[0].click()")
        page.until(lambda: results(doorman), "the request with the result")
        text = "drawn\n\nError: an image of the result cannot be read."
        image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{WIDE}"}}
        parts = [image, {"type": "text", "text": text}]
        assert results(doorman) == [parts if reads else f"{text}\n\n[image]"]
        page.shows(".call legend", "Call draw on ")
        shown = "return document.querySelector('.result .attachments img').naturalWidth"
        assert page.run(shown) == 60
        page.type("the fox", "\ue007")
        page.until(lambda: doorman.bodies[-1]["messages"][-1]["role"] == "user", "a question")


@pytest.mark.nightly
def test_the_page_requests_only_servers_that_the_user_added(
    caller: Page, tools: ToolServer
) -> None:
    reach = """return fetch(arguments[0]).then(() => "sent", error => error.message)"""
    assert caller.run(reach, f"{tools.url}/mcp") == "Failed to fetch"
    assert any("Content Security Policy" in line for line in caller.log())
    add(caller, f"{tools.url}/other")
    caller.shows("#tool-servers .bad", "does not admit this page: let its CORS settings allow")
    assert any("CORS policy" in line for line in caller.log())
    caller.click("[aria-label^='Remove 127']")
    assert caller.all("#tool-servers label") == []
    call = """const [url, given] = arguments;
        return import('/web/api/mcp.js').then(async ({ McpServer }) => {
            const server = new McpServer({ url, headers: {} });
            const tools = await server.tools();
            return [tools.map(({ name }) => name), await server.callTool("add", given)];
        })"""
    given: dict[str, Any] = {"a": 2, "b": 3}
    added = {"text": ADDED, "images": []}
    assert caller.run(call, f"{tools.url}/json", given) == [["add", "draw"], added]
    tools.forgets = True  # the first request in the session
    assert caller.run(call, f"{tools.url}/mcp", given) == [["add", "draw"], added]
    assert not tools.forgets
    (_, result) = caller.run(call, f"{tools.url}/mcp", {"a": "two"})
    assert result["text"].startswith("Error: ")
    assert "valid integer" in result["text"]
