"""Images that are attached on the chat page, with and without a model that reads them."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from tests.baker.small_smolvlm import pixels
from tests.server import fakes
from tests.server.images.image_service import TALL, WIDE, image_service

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.server.web.browser import Page
    from tests.server.web.doorman import Doorman

# Give the page files by a DataTransfer, as a browser does: [name, type, base64] of each.
TRANSFER = """const [files] = arguments;
    const data = new DataTransfer();
    for (const [name, type, content] of files) {
        const bytes = Uint8Array.from(atob(content), (c) => c.charCodeAt(0));
        data.items.add(new File([bytes], name, {type}));
    }"""
DROP = f"""{TRANSFER}
    document.body.dispatchEvent(
        new DragEvent("drop", {{dataTransfer: data, bubbles: true, cancelable: true}}))"""
PASTE = f"""{TRANSFER}
    document.getElementById("input").dispatchEvent(
        new ClipboardEvent("paste", {{clipboardData: data, cancelable: true}}))"""
SHOWN = """return [...document.querySelectorAll(arguments[0])].map(
    (image) => image.complete && image.naturalWidth ? [image.alt, image.naturalWidth] : null)"""


@pytest.fixture
def sighted(page: Page, doorman: Doorman) -> Iterator[Page]:
    """The page of a model that reads images."""
    with fakes.running(image_service(), before=doorman.before) as client:
        page.open(str(client.base_url))
        yield page


def give(page: Page, script: str, *files: tuple[str, str, str]) -> None:
    page.run(script, [list(file) for file in files])


def shows_images(page: Page, selector: str, *expected: tuple[str, int]) -> None:
    """Wait until the images have these names and widths."""
    wanted = [list(image) for image in expected]
    page.until(lambda: page.run(SHOWN, selector) == wanted, f"{selector}: {wanted}")


def sent_parts(doorman: Doorman) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = doorman.bodies[-1]["messages"][0]["content"]
    return parts


def test_images_are_picked_dropped_and_pasted(
    sighted: Page, doorman: Doorman, tmp_path: Path
) -> None:
    (tmp_path / "picked.png").write_bytes(base64.b64decode(WIDE))
    sighted.driver.find_element("id", "files").send_keys(str(tmp_path / "picked.png"))
    shows_images(sighted, ".chip img", ("picked.png", 60))
    give(sighted, DROP, ("dropped.png", "image/png", TALL))
    shows_images(sighted, ".chip img", ("picked.png", 60), ("dropped.png", 10))
    give(sighted, PASTE, ("pasted.png", "image/png", WIDE))
    sighted.shows(".chip", "pasted.png")
    sighted.click("[aria-label='Remove dropped.png']")
    shows_images(sighted, ".chip img", ("picked.png", 60), ("pasted.png", 60))
    sighted.until(lambda: sighted.find(".chip").text.endswith(" tokens"), "its size in tokens")
    sighted.ask("the dog")
    uri = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{WIDE}"}}
    assert sent_parts(doorman) == [uri, uri, {"type": "text", "text": "the dog"}]
    assert sighted.all(".chip") == []
    shown = (("picked.png", 60), ("pasted.png", 60))
    shows_images(sighted, ".user img", *shown)
    sighted.driver.refresh()
    shows_images(sighted, ".user img", *shown)
    doorman.bodies.clear()
    sighted.click("[aria-label='Regenerate']")
    sighted.until(lambda: doorman.bodies, "the request")
    assert sent_parts(doorman)[:2] == [uri, uri]


@pytest.mark.nightly
def test_large_images_are_made_smaller_and_other_formats_become_jpeg(
    sighted: Page, doorman: Doorman
) -> None:
    large, other = io.BytesIO(), io.BytesIO()
    Image.fromarray(pixels(1600, 400)).save(large, "PNG")
    Image.new("RGB", (30, 20), "red").save(other, "BMP")
    files = [base64.b64encode(file.getvalue()).decode() for file in (large, other)]
    give(sighted, DROP, ("l.png", "image/png", files[0]), ("o.bmp", "image/bmp", files[1]))
    shows_images(sighted, ".chip img", ("l.png", 1536), ("o.bmp", 30))
    sighted.ask("the dog")
    for part in sent_parts(doorman)[:2]:
        assert part["image_url"]["url"].startswith("data:image/jpeg;base64,")


@pytest.mark.nightly
def test_a_file_that_is_not_an_image_is_refused(sighted: Page) -> None:
    give(sighted, DROP, ("broken.png", "image/png", "AAAA"))
    sighted.shows("#notice", "broken.png: the browser cannot read this image.")
    assert sighted.all(".chip") == []


@pytest.mark.nightly
def test_phones_offer_the_camera(sighted: Page) -> None:
    assert not sighted.all("#photograph")
    sighted.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
    try:
        sighted.find("#photograph")
    finally:
        sighted.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})
    camera = sighted.driver.find_element("id", "camera")
    assert camera.get_attribute("capture") == "environment"


def test_a_model_without_images_refuses_them(chat: Page, doorman: Doorman) -> None:
    give(chat, PASTE, ("a.png", "image/png", WIDE))
    chat.shows("#notice", "a.png: this model cannot read images.")
    assert chat.all(".chip, #photograph") == []
    models = [
        {"id": "sighted", "meta": {"n_ctx": 100}, "capabilities": ["completion", "chat", "vision"]},
        {"id": "blind", "meta": {"n_ctx": 100}, "capabilities": ["completion", "chat"]},
    ]
    doorman.answered["/v1/models"] = {"object": "list", "data": models}
    chat.driver.refresh()
    chat.until(lambda: chat.run("return document.getElementById('models').value"), "the models")
    give(chat, DROP, ("a.png", "image/png", WIDE))
    shows_images(chat, ".chip img", ("a.png", 60))
    assert chat.find("#send").is_enabled()
    chat.run(
        """const field = document.getElementById("models");
        field.value = "blind";
        field.dispatchEvent(new Event("change"))"""
    )
    chat.shows("#refusal", "This model cannot read the images of this chat.")
    assert not chat.find("#send").is_enabled()
