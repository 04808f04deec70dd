"""The chat page signs in to MCP servers with OAuth, against the servers of the `mcp` package."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from mcp.shared.auth import OAuthClientInformationFull
from pydantic import AnyUrl

from tests.server.web.sign_in_server import SCOPE, Issuer, sign_in_server
from tests.server.web.test_tool_servers import ADDED, add, calling, results

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.server.web.browser import Page
    from tests.server.web.doorman import Doorman

QUESTION = "the dog"
STORED = "return Object.keys(localStorage).filter(name => name.startsWith('hearth.mcp '))"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with sign_in_server() as server:
        yield server


@pytest.fixture
def caller(page: Page, doorman: Doorman) -> Iterator[Page]:
    """The page of a model that calls the tool again after each result, with a conversation."""
    with calling(page, doorman):
        page.type(QUESTION, "\ue007")
        page.find(".assistant")
        yield page


def go(page: Page, issuer: Issuer, choice: str = "#allow") -> None:
    """Add the server, and decide at the authorization server."""
    add(page, issuer.url)
    page.shows("#tool-servers .bad", "requires that you sign in")
    page.click(".sign-in")
    page.until(lambda: page.driver.current_url.startswith(issuer.issuer), "the issuer's page")
    page.click(choice)


def call(page: Page) -> str:
    """Call the tool, without the model."""
    script = """const modules = ["/web/session/sign_in.js", "/web/api/mcp.js"];
        return Promise.all(modules.map(path => import(path))).then(([{ token }, { McpServer }]) => {
            const [{ url, headers }] = JSON.parse(localStorage.getItem("hearth.mcp"));
            const server = new McpServer({ url, headers, token: old => token(url, old) });
            return server.callTool("add", { a: 2, b: 3 }).then(({ text }) => text);
        }).catch(error => error.message)"""
    text: str = page.run(script)
    return text


def test_signing_in_keeps_the_conversation_and_tokens_are_renewed(
    caller: Page, doorman: Doorman, issuer: Issuer
) -> None:
    before = caller.driver.current_url
    go(caller, issuer)
    caller.shows("#tool-servers summary", "1 tool")
    assert caller.driver.current_url == before
    assert caller.questions() == [QUESTION]
    (client,) = issuer.clients.values()
    assert client.client_name == "Hearth"
    assert [str(uri) for uri in client.redirect_uris or []] == [before.partition("#")[0]]
    (token,) = issuer.access.values()
    assert (token.resource, token.scopes) == (issuer.url, [SCOPE])
    caller.press("\ue00c")  # Esc
    caller.type("the fox", "\ue007")
    caller.shows(".call legend", "Call add on")
    caller.run("document.querySelectorAll('.call button')[0].click()")
    caller.until(lambda: results(doorman) == [ADDED], "the answer to a result")
    issuer.access.clear()  # as if it had expired there
    assert call(caller) == ADDED
    assert issuer.grants == 2
    age = """const name = "hearth.mcp " + arguments[0];
        const stored = JSON.parse(localStorage.getItem(name));
        stored.tokens.expires = Date.now() + 1000;
        localStorage.setItem(name, JSON.stringify(stored))"""
    caller.run(age, issuer.url)
    assert [call(caller) for _ in range(2)] == [ADDED, ADDED]
    assert issuer.grants == 3
    issuer.access.clear()
    issuer.refresh.clear()
    assert "requires authorization" in call(caller)
    caller.driver.refresh()
    caller.find(".message")
    caller.click("#open-settings")
    caller.find(".sign-in")
    assert caller.run(STORED) == [f"hearth.mcp {issuer.url}"]
    caller.click("[aria-label^='Remove 127']")
    assert caller.run(STORED) == []


@pytest.mark.nightly
def test_a_server_that_is_removed_has_its_tokens_revoked(caller: Page, issuer: Issuer) -> None:
    go(caller, issuer)
    caller.shows("#tool-servers summary", "1 tool")
    assert issuer.refresh
    caller.click("[aria-label^='Remove 127']")
    caller.until(lambda: not issuer.refresh, "the end of the refresh token")
    assert caller.run(STORED) == []


@pytest.mark.nightly
def test_a_page_requests_only_the_issuers_of_servers_that_it_signs_in_to(
    caller: Page, issuer: Issuer
) -> None:
    add(caller, issuer.url)
    caller.find(".sign-in")
    reach = """return fetch(arguments[0]).then(() => "sent", error => error.message)"""
    metadata = f"{issuer.issuer}/.well-known/oauth-authorization-server"
    assert caller.run(reach, metadata) == "Failed to fetch"
    assert any("Content Security Policy" in line for line in caller.log())
    go(caller, issuer, "#refuse")
    caller.shows("#tool-servers .bad", "The authorization server refused: access_denied")
    assert caller.run(reach, metadata) == "sent"
    assert issuer.grants == 0
    # Another site may send the user here with a code of its own.
    caller.click(".sign-in")
    caller.until(lambda: caller.driver.current_url.startswith(issuer.issuer), "the issuer's page")
    link = caller.find("#allow").get_attribute("href") or ""
    caller.driver.get(link[:-1] + ("x" if link[-1] != "x" else "y"))
    caller.shows("#tool-servers .bad", "requires that you sign in")
    assert issuer.grants == 0
    assert "code" not in caller.driver.current_url


@pytest.mark.nightly
def test_an_issuer_that_registers_no_clients_asks_for_an_id(caller: Page) -> None:
    with sign_in_server(registers=False) as issuer:
        add(caller, issuer.url)
        caller.click(".sign-in")
        redirect = caller.driver.current_url.partition("#")[0]
        caller.shows("#tool-servers .bad", f"redirect address {redirect}")
        issuer.clients["mine"] = OAuthClientInformationFull(
            client_id="mine",
            redirect_uris=[AnyUrl(redirect)],
            token_endpoint_auth_method="none",
            scope=SCOPE,
        )
        caller.type("mine", into="#tool-servers label.wide input")
        caller.click(".sign-in")
        caller.click("#allow")
        caller.shows("#tool-servers summary", "1 tool")
        assert issuer.grants == 1


METADATA: dict[str, Any] = {
    "issuer": "https://a.example",
    "authorization_endpoint": "https://a.example/authorize",
    "token_endpoint": "https://a.example/token",
    "code_challenge_methods_supported": ["S256"],
}


@pytest.mark.nightly
def test_an_issuer_must_be_safe(chat: Page) -> None:
    script = """const [metadata] = arguments;
        const fetched = window.fetch;
        window.fetch = async () => new Response(metadata);
        return import("/web/api/oauth.js").then(({ metadataOf }) => metadataOf("https://a.example"))
            .then(() => "", error => error.message).finally(() => (window.fetch = fetched))"""
    for changes, problem in (
        ({}, ""),
        ({"issuer": "https://b.example"}, "does not describe itself"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "cannot be used"),
        ({"token_endpoint": "http://a.example/token"}, "cannot be used"),
        ({"code_challenge_methods_supported": ["plain"]}, "cannot be used"),
    ):
        told = chat.run(script, json.dumps({**METADATA, **changes}))
        assert problem in told
        assert bool(problem) == bool(told)
