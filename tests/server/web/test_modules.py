"""The page's pure modules, run in the browser that they are for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.by_day import first_by_day
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
    """A tab of the server: the page is loaded for the first test, and no test changes it."""
    if not page.driver.current_url.startswith(url):
        page.open(url)
    return page


def call(page: Page, module: str, code: str, *arguments: Any) -> Any:
    """What a function made of a module's `m` returns, by way of JSON."""
    script = f"return import('/web/{module}').then(m => JSON.stringify(({code})(...arguments)))"
    return json.loads(page.run(script, *arguments))


def parsed(page: Page, *pieces: str) -> list[dict[str, str]]:
    events: list[dict[str, str]] = call(page, "api/sse.js", PARSE, [pieces])[0]
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
    whole, cut = call(modules, "api/sse.js", PARSE, [[stream, ":"], [*pieces, ":"]])
    assert cut == whole


HTML = """source => {
    const box = document.createElement("div");
    box.append(...m.render(source));
    return box.innerHTML;
}"""


DONE = '<input type="checkbox" disabled="" aria-label="Done">'


@pytest.mark.parametrize(
    ("source", "html"),
    [
        ("one\ntwo\n\nthree", "<p>one<br>two</p><p>three</p>"),
        ("# Title #\ntext", "<h2>Title</h2><p>text</p>"),
        (
            "a\n```py\na * b\n\n  d\n```\nc",
            '<p>a</p><pre tabindex="0" data-language="py"><code>a * b\n\n  d</code></pre><p>c</p>',
        ),
        ("```\nnot closed", '<pre tabindex="0"><code>not closed</code></pre>'),
        ("- a\n- b\n  more", "<ul><li>a</li><li>b<br>more</li></ul>"),
        ("3. a\n   - b\n4. c", '<ol start="3"><li>a<ul><li>b</li></ul></li><li>c</li></ol>'),
        ("It was\n2024. A year", "<p>It was<br>2024. A year</p>"),
        ("> a\n\n---", "<blockquote><p>a</p></blockquote><hr>"),
        (
            "|a|b|\n|-|-:|\n|1|2|",
            '<table><thead><tr><th>a</th><th style="text-align: right;">b</th></tr></thead>'
            '<tbody><tr><td>1</td><td style="text-align: right;">2</td></tr></tbody></table>',
        ),
        ("**a *b* c** ~~d~~", "<p><strong>a <em>b</em> c</strong> <s>d</s></p>"),
        ("`**a**` ``b ` c``", "<p><code>**a**</code> <code>b ` c</code></p>"),
        ("snake_case and 2 * 3 * 4", "<p>snake_case and 2 * 3 * 4</p>"),
        ("**not closed and `neither", "<p>**not closed and `neither</p>"),
        ("\\*not\\* &lt;", "<p>*not* &lt;</p>"),
        (
            "<b>x</b> <script>y</script>",
            "<p>&lt;b&gt;x&lt;/b&gt; &lt;script&gt;y&lt;/script&gt;</p>",
        ),
        (
            "[a](https://b.example)",
            '<p><a href="https://b.example" target="_blank" rel="noopener noreferrer">a</a></p>',
        ),
        ("[a](/docs) ![c](https://b.example/x.png)", "<p><span>a</span> c</p>"),
        ("[a](javascript:alert)", "<p>[a](javascript:alert)</p>"),
        (
            r"$a_1*b*$ \(x\) it costs $5 or $ 6$ and 7$8",
            '<p><span class="math" title="$a_1*b*$">a_1*b*</span> '
            r'<span class="math" title="\(x\)">x</span> '
            "it costs $5 or $ 6$ and 7$8</p>",
        ),
        (
            "$$\n- a\n= b\n$$\nc $$d$$",
            '<span class="math display" title="$$\n- a\n= b\n$$">- a\n= b</span>'
            '<p>c <span class="math display" title="$$d$$">d</span></p>',
        ),
        (
            "- \\[\n  a\n  \\]\n\n$$\n\n$$ `$b$`",
            '<ul><li><span class="math display" title="\\[\na\n\\]">a</span></li></ul>'
            "<p>$$</p><p>$$ <code>$b$</code></p>",
        ),
        (
            "- [x] a\n- [ ] b\n- [c] d",
            '<ul><li class="task"><input type="checkbox" disabled="" aria-label="Done">a</li>'
            '<li class="task"><input type="checkbox" disabled="" aria-label="Not done">b</li>'
            "<li>[c] d</li></ul>",
        ),
        ("1. [X] *a*\n\n   b", f'<ol><li class="task"><p>{DONE}<em>a</em></p><p>b</p></li></ol>'),
        ("[x] a", "<p>[x] a</p>"),
        ("- [x]", "<ul><li>[x]</li></ul>"),
        (
            "|a|\n|-|\n|b<br>c<BR />d|",
            "<table><thead><tr><th>a</th></tr></thead>"
            "<tbody><tr><td>b<br>c<br>d</td></tr></tbody></table>",
        ),
        (
            "`<br>` <brx> <br onload=x>",
            "<p><code>&lt;br&gt;</code> &lt;brx&gt; &lt;br onload=x&gt;</p>",
        ),
        (
            "see https://b.example/x_y_z. README.md b.example //c ftp://d",
            '<p>see <a href="https://b.example/x_y_z" target="_blank" rel="noopener noreferrer">'
            "https://b.example/x_y_z</a>. README.md b.example //c <span>ftp://d</span></p>",
        ),
        ("a[^1]\n\n[^1]: Wiki\n[^b]: *c*", "<p>a[^1]</p><p>[^1]: Wiki</p><p>[^b]: <em>c</em></p>"),
        (
            "[a]: https://b.example\n[a]",
            '<p><a href="https://b.example" target="_blank" rel="noopener noreferrer">a</a></p>',
        ),
        ("", ""),
    ],
)
def test_markdown_is_rendered(modules: Page, source: str, html: str) -> None:
    assert call(modules, "markdown/markdown.js", HTML, source) == html


@few
@given(source=st.text(alphabet="ab *_`#-1.\n~\\<>&[]()!|:$^xr", max_size=80))
def test_any_text_renders_to_known_elements_only(modules: Page, source: str) -> None:
    names = """source => {
        const box = document.createElement("div");
        box.append(...m.render(source));
        return [...box.querySelectorAll("*")].map(e => e.localName);
    }"""
    blocks = "p h2 h3 h4 h5 h6 ul ol li pre blockquote hr table thead tbody tr th td"
    known = {*blocks.split(), *"code strong em s a br span input".split()}
    assert set(call(modules, "markdown/markdown.js", names, source)) <= known


@few
@given(source=st.text(alphabet="ab *`#-1.\n>$|", max_size=60))
def test_an_answer_that_grows_ends_as_the_whole_one(modules: Page, source: str) -> None:
    grow = """source => {
        const [live, whole] = [document.createElement("div"), document.createElement("div")];
        const markdown = new m.LiveMarkdown(live, () => {});
        for (let end = 0; end <= source.length; end += 3) markdown.update(source.slice(0, end));
        markdown.update(source);
        return import("/web/markdown/markdown.js").then(({ render }) => {
            whole.append(...render(source));
            const blocks = [...live.children].map(block => block.innerHTML);
            return JSON.stringify([blocks.join(""), whole.innerHTML]);
        });
    }"""
    script = f"return import('/web/markdown/live.js').then(m => ({grow})(...arguments))"
    live, whole = json.loads(modules.run(script, source))
    assert live == whole


@pytest.mark.parametrize("prefix", ["- " * 1200, ">" * 20_000, "- > " * 600])
def test_deep_nesting_is_shown_as_plain_text(modules: Page, prefix: str) -> None:
    html = call(modules, "markdown/markdown.js", HTML, f"{prefix}end")
    escaped = prefix.replace(">", "&gt;")
    assert html == f'<p class="plain-text">{escaped}end</p>'


@pytest.mark.parametrize(
    "text",
    first_by_day(
        [
            "**a ",
            "[a](",
            "![",
            "`",
            "_a",
            "&#1",
            "| a ",
            "$a ",
            "\\(",
            "\\[a\n",
            "$$ a\n",
            "> $$\n",
            "- [x] ",
            "<br",
            "[^1]:",
            "http://a",
        ],
        4,
    ),
)
def test_rendering_time_does_not_grow_with_the_square_of_the_length(
    modules: Page, text: str
) -> None:
    milliseconds = """source => {
        const began = performance.now();
        m.render(source);
        return performance.now() - began;
    }"""
    assert call(modules, "markdown/markdown.js", milliseconds, text * 60_000) < 10_000


EXCEEDED = {"type": "exceed_context_size_error", "n_prompt_tokens": 3033, "n_ctx": 2048}
PROBLEM = """(status, message, details) => m.problemOf(
    { status, message, details, retryAfter: status === 429 ? 2 : null },
    { model: "one", next: "one", failure: "" })"""


@pytest.mark.parametrize(
    ("status", "message", "details", "text", "way"),
    [
        (400, "?", EXCEEDED, "Too long by 986 tokens: shorten it, or start a new chat.", "edit"),
        (400, "too long: 2048 tokens > 2047 maximum: the", {}, "Too long by 1 token:", "edit"),
        (400, "?", {**EXCEEDED, "n_prompt_tokens": 0}, "Too long for this model: shorten", "edit"),
        (400, "top_p: got", {"param": "top_p", "got": 9, "expected": "0 to 1"},
         "The setting “Top p” is not valid: it is 9, and must be 0 to 1.", "settings"),
        (400, "messages: no", {"param": "messages[1]"}, "The model cannot answer this", "edit"),
        (0, "The connection was lost.", {}, "The connection was lost. Check that the", "retry"),
        (401, "?", {}, "This server answers only with an API key.", "key"),
        (404, "?", {}, "The server does not know this request. Reload the page", "retry"),
        (413, "?", {}, "The message is too large for this server.", "edit"),
        (429, "?", {}, "The server is busy. Try again in 2 seconds.", "retry"),
        (500, "?", {"request_id": "a"}, "The server failed while it answered. Try again; its log "
         "has the reason (request a).", "retry"),
        (501, "no tools", {}, "The server refused the request: no tools.", "retry"),
        (503, "draining", {}, "The server is not ready: draining. Choose another", "retry"),
        (504, "?", {}, "The server did not answer in time.", "retry"),
    ],
)  # fmt: skip
def test_an_error_is_a_sentence_and_an_action(
    modules: Page, status: int, message: str, details: dict[str, Any], text: str, way: str
) -> None:
    problem = call(modules, "session/problems.js", PROBLEM, status, message, details)
    assert problem["text"].startswith(text)
    assert problem["text"].endswith(".")
    assert problem["way"] == way


def test_adjacent_messages_of_one_role_are_joined(modules: Page) -> None:
    roles = ["user", "user", "assistant", "user"]
    messages = [{"role": role, "content": c} for role, c in zip(roles, "abcd", strict=True)]
    assert call(modules, "data/prompt.js", "m.turns", messages, "be kind") == [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "a\n\nb"},
        {"role": "assistant", "content": "c"},
        {"role": "user", "content": "d"},
    ]
    assert call(modules, "data/prompt.js", "m.text", messages) == "a\nbc\nd"


def test_images_are_parts_before_the_text(modules: Page) -> None:
    image = {"name": "a.png", "image": "data:image/png;base64,AAAA"}
    url = {"type": "image_url", "image_url": {"url": image["image"]}}
    messages = [
        {"role": "user", "content": "a"},
        {"role": "user", "content": "b", "attachments": [image, {"name": "n", "text": "c"}]},
        {"role": "user", "content": "", "attachments": [image]},
    ]
    text = {"type": "text", "text": "n\n```\nc\n```\n\nb"}
    assert call(modules, "data/prompt.js", "m.turns", messages, "") == [
        {"role": "user", "content": [{"type": "text", "text": "a"}, url, text, url]}
    ]


def test_images_of_tools_are_for_models_that_read_them(modules: Page) -> None:
    images = [{"name": "plot", "image": "data:image/png;base64,AAAA", "tokens": None}]
    url = {"type": "image_url", "image_url": {"url": images[0]["image"]}}
    result = {"role": "tool", "call": "1", "content": "done", "attachments": images}
    for reads, content in (
        (True, [url, {"type": "text", "text": "done"}]),
        (False, "done\n\n[image]"),
    ):
        (turn,) = call(modules, "data/prompt.js", "m.turns", [result], "", reads)
        assert turn == {"role": "tool", "tool_call_id": "1", "content": content}


@pytest.mark.parametrize(
    ("image", "valid"),
    [
        ("data:image/webp;base64,AAAA", True),
        ("data:image/svg+xml;base64,AAAA", False),
        ("v1/models", False),
        ("https://example.com/a.png", False),
    ],
)
def test_an_imported_image_has_its_data(modules: Page, image: str, valid: bool) -> None:
    """The page would otherwise request the address."""
    attachments = [{"name": "a", "text": "b", "image": image}]
    message = {
        "id": "1", "conversation": "2", "role": "user", "content": "", "attachments": attachments,
    }  # fmt: skip
    read = call(modules, "data/records.js", "m.validMessage", message)
    assert ("attachments" in read) is valid


@pytest.mark.parametrize(
    ("logprob", "text"),
    [(0, "100%"), (-0.001, "100%"), (-0.05, "95%"), (-3, "5.0%"), (-20, "< 0.01%")],
)
def test_percentages_have_two_digits(modules: Page, logprob: float, text: str) -> None:
    assert call(modules, "view/tokens.js", "m.percent", logprob) == text


def test_the_chosen_token_has_exactly_one_bar(modules: Page) -> None:
    top = [{"text": " a", "logprob": -0.5}, {"text": "b\n", "logprob": -1.5}]
    inside = call(modules, "view/tokens.js", "m.bars", {**top[1], "top": top})
    assert [(bar["text"], bar["chosen"]) for bar in inside] == [("␣a", False), ("b⏎", True)]
    outside = call(modules, "view/tokens.js", "m.bars", {"text": "c", "logprob": -9, "top": top})
    assert [(bar["text"], bar["chosen"]) for bar in outside][2:] == [("c", True)]
