"""The page's pure modules, run in the browser that they are for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.server import fakes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.server.web.browser import Page

# Feeds each list of pieces to a parser of its own.
PARSE = "runs => runs.map(run => { const p = m.eventParser(); return run.flatMap(t => p(t)); })"
few = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with fakes.running(fakes.fake_service(fakes.gemma_like())) as client:
        yield str(client.base_url)


@pytest.fixture
def modules(page: Page, url: str) -> Page:
    page.open(url)
    return page


def call(page: Page, module: str, code: str, *arguments: Any) -> Any:
    """What a function made of a module's `m` returns, by way of JSON."""
    script = f"return import('/web/{module}').then(m => JSON.stringify(({code})(...arguments)))"
    return json.loads(page.run(script, *arguments))


def parsed(page: Page, *pieces: str) -> list[dict[str, str]]:
    events: list[dict[str, str]] = call(page, "sse.js", PARSE, [pieces])[0]
    return events


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        ("data: a\n\n", [("message", "a")]),
        ("event: error\ndata: {}\n\ndata: b\n\n", [("error", "{}"), ("message", "b")]),
        ("data: a\ndata:b\ndata\n\n", [("message", "a\nb\n")]),
        (": keep-alive\n\n\n\nid: 3\nretry: 5\ndata:  x\n\n", [("message", " x")]),
        ("data: a\r\n\r\ndata: b\r\rdata: c\n\n", [("message", x) for x in "abc"]),
        ("event: lost\n\ndata: a\n\ndata: unfinished\n", [("message", "a")]),
    ],
)
def test_events_are_parsed_as_in_the_standard(
    modules: Page, stream: str, events: list[tuple[str, str]]
) -> None:
    # A CR at the very end waits for what follows.
    parsed_events = parsed(modules, stream, ":")
    assert [(event["name"], event["data"]) for event in parsed_events] == events


@few
@given(data=st.data(), stream=st.text(alphabet="da: t\r\n", max_size=60))
def test_events_do_not_depend_on_how_the_stream_is_split(
    modules: Page, data: st.DataObject, stream: str
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    whole, cut = call(modules, "sse.js", PARSE, [[stream, ":"], [*pieces, ":"]])
    assert cut == whole


def p(*inline: Any) -> dict[str, Any]:
    return {"kind": "p", "inline": list(inline)}


@pytest.mark.parametrize(
    ("source", "blocks"),
    [
        ("one\ntwo\n\nthree", [p("one\ntwo"), p("three")]),
        ("# Title #\ntext", [{"kind": "h", "level": 1, "inline": ["Title"]}, p("text")]),
        (
            "before\n```py\na * b * c\n\n    d\n```\nafter",
            [
                p("before"),
                {"kind": "code", "language": "py", "text": "a * b * c\n\n    d"},
                p("after"),
            ],
        ),
        ("~~~\n```\n~~~", [{"kind": "code", "language": "", "text": "```"}]),
        ("```\nnot closed", [{"kind": "code", "language": "", "text": "not closed"}]),
        (
            "- a\n- b\n  more\n\n- c",
            [{"kind": "ul", "start": 1, "items": [[p("a")], [p("b\nmore")], [p("c")]]}],
        ),
        (
            "3. a\n   - b\n   - c\n4. d",
            [
                {
                    "kind": "ol",
                    "start": 3,
                    "items": [
                        [p("a"), {"kind": "ul", "start": 1, "items": [[p("b")], [p("c")]]}],
                        [p("d")],
                    ],
                }
            ],
        ),
        ("It was\n2024. A year", [p("It was\n2024. A year")]),
        ("- a\n\ntext", [{"kind": "ul", "start": 1, "items": [[p("a")]]}, p("text")]),
        ("", []),
    ],
)
def test_markdown_blocks_are_parsed(modules: Page, source: str, blocks: list[Any]) -> None:
    assert call(modules, "markdown.js", "m.parse", source) == blocks


def strong(*inline: Any) -> dict[str, Any]:
    return {"kind": "strong", "inline": list(inline)}


def em(*inline: Any) -> dict[str, Any]:
    return {"kind": "em", "inline": list(inline)}


def code(text: str) -> dict[str, Any]:
    return {"kind": "code", "text": text}


@pytest.mark.parametrize(
    ("source", "runs"),
    [
        ("a **b** c", ["a ", strong("b"), " c"]),
        ("*a* _b_ __c__", [em("a"), " ", em("b"), " ", strong("c")]),
        ("**a *b* c**", [strong("a ", em("b"), " c")]),
        ("`**a**` ``b ` c``", [code("**a**"), " ", code("b ` c")]),
        ("snake_case_name and 2 * 3 * 4", ["snake_case_name and 2 * 3 * 4"]),
        ("**not closed and `neither", ["**not closed and `neither"]),
        (r"\*not\*", ["*", "not", "*"]),
        ("<b>x</b> &amp;", ["<b>x</b> &amp;"]),
    ],
)
def test_inline_markdown_is_parsed(modules: Page, source: str, runs: list[Any]) -> None:
    assert call(modules, "markdown.js", "m.inline", source) == runs


@few
@given(source=st.text(alphabet="ab *_`#-1.\n~\\<>&", max_size=80))
def test_any_text_renders_to_known_elements_only(modules: Page, source: str) -> None:
    names = """source => {
        const box = document.createElement("div");
        box.append(...m.render(m.parse(source)));
        return [...box.querySelectorAll("*")].map(e => e.localName);
    }"""
    known = {*"p h2 h3 h4 h5 h6 ul ol li pre code strong em br".split()}
    assert set(call(modules, "markdown.js", names, source)) <= known


def test_adjacent_messages_of_one_role_are_joined(modules: Page) -> None:
    roles = ["user", "user", "assistant", "user"]
    messages = [{"role": role, "content": c} for role, c in zip(roles, "abcd", strict=True)]
    assert call(modules, "conversation.js", "m.turns", messages, "be kind") == [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "a\n\nb"},
        {"role": "assistant", "content": "c"},
        {"role": "user", "content": "d"},
    ]
    assert call(modules, "conversation.js", "m.text", messages) == "a\nbc\nd"


def test_storage_may_be_invalid_or_full(modules: Page) -> None:
    load = "text => m.load({ getItem: () => text })"
    for text in ("{", "3", '[{"role": "user"}]', "null", '[{"content": 3, "role": "user"}]'):
        assert call(modules, "conversation.js", load, text) == []
    small = """limit => {
        let found = null;
        const setItem = (_, text) => { if (text.length > limit) throw new Error(); found = text; };
        const tokens = new Array(100).fill({ text: "x" });
        return [m.save({ setItem }, [{ role: "assistant", content: "a", tokens }]), found];
    }"""
    without = '[{"role":"assistant","content":"a"}]'
    assert call(modules, "conversation.js", small, 100) == [True, without]
    assert call(modules, "conversation.js", small, 10) == [False, None]


@pytest.mark.parametrize(
    ("logprob", "text"),
    [(0, "100 %"), (-0.001, "100 %"), (-0.05, "95 %"), (-3, "5.0 %"), (-20, "< 0.01 %")],
)
def test_percentages_have_two_digits(modules: Page, logprob: float, text: str) -> None:
    assert call(modules, "tokens.js", "m.percent", logprob) == text


def test_the_chosen_token_has_exactly_one_bar(modules: Page) -> None:
    top = [{"text": " a", "logprob": -0.5}, {"text": "b\n", "logprob": -1.5}]
    inside = call(modules, "tokens.js", "m.bars", {**top[1], "top": top})
    assert [(bar["text"], bar["chosen"]) for bar in inside] == [("␣a", False), ("b⏎", True)]
    outside = call(modules, "tokens.js", "m.bars", {"text": "c", "logprob": -9, "top": top})
    assert [(bar["text"], bar["chosen"]) for bar in outside][2:] == [("c", True)]
