"""How the chat page looks: widths, dark and light, contrast, and axe's rules of accessibility."""

from __future__ import annotations

import dataclasses
import re
from importlib import resources
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from selenium.webdriver.common.keys import Keys

from hearthd.sampling.options import SamplingOptions
from hearthd.server import web
from tests.server import fakes
from tests.server.openai_servers import scripted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.server.web.browser import Page

ANSWER = (
    "# Head\n\n## Next\n\n1. one `code`\n2. two\n\n```python\n"
    + "a_long_line = " * 8
    + "\n```\n\n$$x^2$$ is $y$\n\n"
    + "|Fruit|Price per kilogram|Season|Where it grows|\n|-|-:|-|-|\n"
    + "|Pomegranate|12.50|early summer|**Mediterranean** `countries`<br>https://a.example/"
    + "path/" * 12
    + "|\n\n- [x] done\n- [ ] open, see https://b.example/\n\n"
    + "word" * 30
)
# The words of text that can be seen and are on several lines, without those that are long.
BROKEN = r"""const broken = [];
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const { currentNode: node } = texts;
        if (!node.parentElement.checkVisibility()) continue;
        for (const { index, 0: word } of node.data.matchAll(/[^\s/-]{2,24}(?![^\s-])/g)) {
            if (/\S/.test(node.data[index - 1] ?? " ")) continue;
            const range = document.createRange();
            range.setStart(node, index);
            range.setEnd(node, index + word.length);
            const tops = new Set([...range.getClientRects()].map(({ top }) => Math.round(top)));
            if (tops.size > 1) broken.push(word);
        }
    }
    return broken;"""
STYLE = web.FILES["/web/styles/theme.css"].read_text("utf-8")
COLORS = {
    name: {"light": light, "dark": dark}
    for name, light, dark in re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", STYLE)
}
DEFAULTS = {field.name: field.default for field in dataclasses.fields(SamplingOptions)}

# German has the longest words.
on_a_phone_in_german = pytest.mark.parametrize(
    ("width", "languages", "state"), [(360, "de", "Bereit"), (1280, "en", "Ready")]
)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with fakes.running(scripted(ANSWER)) as client:
        yield str(client.base_url)


def contrast(first: str, second: str) -> float:
    """The ratio of WCAG 2.2 between two #rrggbb colors."""

    def luminance(color: str) -> float:
        parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(scheme: str) -> None:
    pairs = [*product(("ink", "quiet", "bad", "ember"), ("paper", "raised", "tint"))]
    for text, ground in [*pairs, ("on-ember", "ember")]:
        ratio = contrast(COLORS[text][scheme], COLORS[ground][scheme])
        assert ratio >= 4.5, f"{text} on {ground}: {ratio:.2f}"
    for edge, ground in product(("edge", "good", "wait", "bad"), ("paper", "raised")):
        ratio = contrast(COLORS[edge][scheme], COLORS[ground][scheme])
        assert ratio >= 3, f"{edge} on {ground}: {ratio:.2f}"
    # The least likely token has the strongest shade: three quarters of the color.
    shade = mixed(COLORS["doubtful"][scheme], COLORS["paper"][scheme], 0.75)
    assert contrast(COLORS["ink"][scheme], shade) >= 4.5


def mixed(first: str, second: str, share: float) -> str:
    parts = [(int(first[at : at + 2], 16), int(second[at : at + 2], 16)) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(a * share + b * (1 - share)):02x}" for a, b in parts)


def test_colors_are_defined_once() -> None:
    assert len(COLORS) >= 12
    for path in web.FILES.values():
        if path.parent.name == "styles" and path.name != "theme.css":
            assert re.findall(r"#[0-9a-f]{3,8}\b", path.read_text("utf-8")) == [], path.name


@on_a_phone_in_german
def test_nothing_is_wider_than_the_screen(
    page: Page, url: str, width: int, languages: str, state: str
) -> None:
    page.screen(width, 740)
    page.open(url, languages=languages, state=state)
    widths = """return [document.scrollingElement, document.getElementById('scroller'),
        document.getElementById('settings')].map(e => [e.scrollWidth, e.clientWidth])"""

    def fits() -> None:
        assert page.run("return innerWidth") == width
        for needed, there in page.run(widths):
            assert needed <= there

    fits()
    page.request_probabilities()
    page.ask("the dog " + "x" * 200)
    fits()
    page.click(".actions [aria-pressed]")
    page.click(".token:nth-child(21)")
    edges = page.run("return document.getElementById('alternatives').getBoundingClientRect()")
    assert edges["left"] >= 0
    assert edges["right"] <= width
    fits()
    page.click("#open-settings")
    fits()


@pytest.mark.nightly
@on_a_phone_in_german
def test_words_do_not_break(page: Page, url: str, width: int, languages: str, state: str) -> None:
    page.screen(width, 740)
    page.open(url, languages=languages, state=state)
    page.ask("the dog")
    assert page.run(BROKEN) == []
    box, table = page.run(
        """const box = document.querySelector(".table");
        return [box, box.firstChild].map(e => e.getBoundingClientRect().width)"""
    )
    assert (table > box + 1) == (width == 360)  # it scrolls in its box
    page.run(
        "import('/web/view/notices.js').then(m => m.showNotice('A long sentence. '.repeat(9), "
        "{ retry() {}, label: 'Continue' }))"
    )
    page.find("#retry")
    page.click("#open-settings")
    assert page.run(BROKEN) == []


@pytest.mark.nightly
def test_dark_mode_follows_the_system_until_the_button_is_used(page: Page, url: str) -> None:
    def ground() -> str:
        value: str = page.run("return getComputedStyle(document.body).backgroundColor")
        return "#" + "".join(f"{int(part):02x}" for part in re.findall(r"\d+", value)[:3])

    light, dark = COLORS["paper"]["light"], COLORS["paper"]["dark"]
    page.open(url)
    assert ground() == light
    page.screen(1280, 800, dark=True)
    assert ground() == dark
    assert page.find("#theme").get_attribute("aria-pressed") == "true"
    page.click("#theme")
    assert ground() == light
    page.driver.refresh()
    page.shows("#status", "Ready")
    assert ground() == light
    assert page.find("#theme").get_attribute("aria-pressed") == "false"


def test_the_page_can_be_added_to_a_home_screen(page: Page, url: str) -> None:
    page.open(url)
    manifest = page.driver.execute_cdp_cmd("Page.getAppManifest", {})
    assert manifest["errors"] == []
    assert manifest["url"] == f"{url}/web/manifest.webmanifest"
    problems = page.driver.execute_cdp_cmd("Page.getInstallabilityErrors", {})
    assert problems == {"installabilityErrors": []}


def test_placeholders_show_the_defaults_of_the_model(page: Page) -> None:
    service = scripted("the dog")
    service.sampling["min_p"] = 0.25
    with fakes.running(service) as client:
        page.open(str(client.base_url))
        page.ask("the dog")  # then the page knows the model
        page.click("#open-settings")
        for name in ("temperature", "top_k", "top_p", "min_p", "repeat_penalty"):
            placeholder = page.find(f"[name={name}]").get_attribute("placeholder")
            assert float(placeholder or "nan") == (DEFAULTS | service.sampling)[name]


@pytest.mark.nightly
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_axe_finds_no_accessibility_problem(page: Page, url: str, width: int, dark: bool) -> None:
    axe = resources.files("axe_core_python").joinpath("axe.min.js").read_text("utf-8")

    def broken() -> list[Any]:
        violations = page.run("return axe.run().then(result => result.violations)")
        return [(rule["id"], [node["html"][:120] for node in rule["nodes"]]) for rule in violations]

    page.screen(width, 800, dark=dark)
    page.open(url)
    page.run(axe)
    assert broken() == []
    page.request_probabilities()
    page.ask("the dog")
    assert broken() == []
    page.click("[aria-label='Token probabilities']")
    page.click(".token:nth-child(4)")
    assert broken() == []
    page.click("#open-settings")
    assert broken() == []
    page.press(Keys.ESCAPE)
    if width < 900:
        page.click("#toggle-sidebar")
        page.find("#close-sidebar")
    page.click("[aria-label='Actions for the dog']")
    assert page.driver.switch_to.active_element.text == "Rename"
    assert broken() == []
    page.press(Keys.ARROW_UP)
    assert page.driver.switch_to.active_element.text == "Delete"
    page.press(Keys.ESCAPE)
    page.until(lambda: not page.all("#menu"), "the end of the menu")
    page.press(Keys.ESCAPE)
    assert page.run("return document.getElementById('backdrop').hidden")
    assert page.run("return document.getElementById('page').inert") is False
