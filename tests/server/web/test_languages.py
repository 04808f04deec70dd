"""The language of the chat page: which it is, and that every text on the page is in it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from selenium.webdriver.common.keys import Keys

from hearthd.server import web
from tests.server import fakes, templates
from tests.server.openai_servers import scripted

if TYPE_CHECKING:
    from pathlib import Path

    from tests.server.web.browser import Page
    from tests.server.web.doorman import Doorman

TEXTS = {
    path.stem: json.loads(path.read_text("utf-8"))
    for path in (web.FOLDER / "strings").glob("*.json")
}
# Digits, so that every letter on the page is the page's.
ANSWER = "<think>\n1\n</think>\n\n2\n\n```\n3\n```\n\n|4|\n|-|\n|5|\n\n- [x] 6\n- [ ] 7\n"
# The letters on the page that stand outside of ⟦⟧, also in what is hidden now.
FOREIGN = r"""const found = [];
    const nodes = document.createTreeWalker(document.body, NodeFilter.SHOW_ALL);
    while (nodes.nextNode()) {
        const { currentNode: node } = nodes;
        const element = node.nodeType === Node.TEXT_NODE ? node.parentElement : node;
        if (node.nodeType === Node.COMMENT_NODE) continue;
        if (element.closest("noscript, #language, .token, #alternatives")) continue;
        if (element !== node) found.push(node.data);
        else for (const name of ["title", "aria-label", "placeholder", "alt"])
            found.push(node.getAttribute(name) ?? "");
    }
    const bare = (text) => {
        const shorter = text.replaceAll(/⟦[^⟦⟧]*⟧/g, "");
        return shorter === text ? text.trim() : bare(shorter);
    };
    return [...new Set(found.map(bare).filter((text) => /\p{L}{2}/u.test(text)))].sort();"""
NAMES = [
    "Authorization: Bearer …",
    "Hearth",
    '[{"name": "weather", "parameters": {"type": "object"}}]',
    "fake-model",
    "http://localhost:8000/mcp",
]


def marked(text: str | dict[str, str]) -> str | dict[str, str]:
    if isinstance(text, str):
        return f"⟦{text}⟧"
    return {category: f"⟦{form}⟧" for category, form in text.items()}


def test_every_text_is_in_the_files(page: Page, doorman: Doorman, tmp_path: Path) -> None:
    doorman.answered["/web/strings/en.json"] = {
        key: marked(text) for key, text in TEXTS["en"].items()
    }
    service = scripted(ANSWER, template=templates.THINKING)
    with fakes.running(service, before=doorman.before) as client:
        page.open(str(client.base_url))
        assert page.run(FOREIGN) == NAMES
        page.request_probabilities()
        page.ask("123")
        page.click(".actions [aria-pressed]")
        page.click(".token:nth-child(2)")
        assert page.run(FOREIGN) == NAMES
        file = tmp_path / "8.9"
        file.write_text("8")
        page.run("document.getElementById('files').hidden = false")
        page.type(str(file), into="#files")
        page.shows(".chip", "1 token")
        page.click(".user .actions .idle-only")
        page.find(".editing")
        page.click(".conversation .tool")
        page.find("#menu")
        assert page.run(FOREIGN) == NAMES
        page.press(Keys.ARROW_UP, Keys.ENTER)
        page.shows("#toast", "Deleted")
        assert page.run(FOREIGN) == NAMES


def test_the_language_is_the_browsers_or_the_users(page: Page) -> None:
    loaded = """return performance.getEntriesByType("resource").map(({ name }) => name)
        .filter(name => name.endsWith(".json")).map(name => name.split("/").at(-1))"""
    written = """return import("/web/strings/phrase.js").then(({ phrase, decimal }) => [
        ...[0, 1, 2, 1234, 1e6].map(count => phrase("figures.tokens", { count })),
        decimal(1234.56, 1),
        phrase("mcp.no_cors", { origin: "a", page: "b", headers: ["c", "d"] })])"""

    def choose(language: str, state: str) -> list[str]:
        page.run(
            """const select = document.getElementById("language");
            select.value = arguments[0];
            select.onchange();""",
            language,
        )
        page.shows("#status", state)
        page.find("#settings")
        assert page.run("return document.getElementById('language').value") == language
        assert page.run(loaded) == [f"{page.run('return document.documentElement.lang')}.json"]
        return [text.replace("\u202f", " ").replace("\u00a0", " ") for text in page.run(written)]

    with fakes.running(scripted("the dog")) as client:
        # Nobody reads Traditional characters as Simplified ones.
        page.open(str(client.base_url), languages="zh-TW,de-AT,fr", state="Bereit")
        assert page.run("return document.documentElement.lang") == "de"
        assert page.find("#input").get_attribute("placeholder") == "Nachricht"
        assert page.find("#send").get_attribute("aria-label") == "Senden"
        assert page.run(loaded) == ["de.json"]
        assert page.run("return document.querySelector('[name=top_p]').placeholder") == "0,95"
        page.ask("123")
        assert " Tokens/s" in page.find(".figures").text
        assert choose("fr", "Prêt")[:6] == [
            "0 token", "1 token", "2 tokens", "1 234 tokens", "1 000 000 de tokens", "1 234,6",
        ]  # fmt: skip
        assert choose("zh-Hans", "就绪")[-1].startswith("a 不允许此页面访问。")
        page.driver.refresh()
        page.shows("#status", "就绪")
        assert choose("", "Bereit")[1:6] == [
            "1 Token", "2 Tokens", "1.234 Tokens", "1.000.000 Tokens", "1.234,6",
        ]  # fmt: skip
        names = page.run(
            "return [...document.querySelectorAll('#language option')].map(o => o.text)"
        )
        assert names[1:] == ["Deutsch", "English", "Español", "Français", "简体中文"]
        categories = "return new Intl.PluralRules(arguments[0]).resolvedOptions().pluralCategories"
        for language, texts in TEXTS.items():
            forms = set(page.run(categories, language))
            assert [
                key for key, t in texts.items() if isinstance(t, dict) and set(t) != forms
            ] == []


@pytest.mark.nightly
@pytest.mark.parametrize("languages", ["ja,ko", "xx-invalid_tag,en-GB"])
def test_english_is_the_last_resort(page: Page, doorman: Doorman, languages: str) -> None:
    with fakes.running(scripted("the dog"), before=doorman.before) as client:
        page.open(str(client.base_url), languages=languages)
        assert page.run("return document.documentElement.lang") == "en"
