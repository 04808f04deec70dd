"""A fake model that reads images, and images in the forms of requests."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, Any

from PIL import Image

from hearthd.bundle import ImageInput
from tests.baker.small_smolvlm import LONGEST_EDGE, ROWS, SIDE, SPECIAL, TEMPLATE, pixels
from tests.server import fakes

if TYPE_CHECKING:
    from hearthd.server.services.language_service import LocalLanguageService

SETTINGS = ImageInput(
    side=SIDE, rows=ROWS, longest_edge=LONGEST_EDGE, resampling="lanczos", mean=(0.5,) * 3,
    std=(0.5,) * 3, marker="<image>", placeholder="<image>",
    tile="<fake_token_around_image><row_{row}_col_{column}>", line_end="\n",
    start="<fake_token_around_image><global-img>", end="<fake_token_around_image>",
)  # fmt: skip


LIBRARY = fakes.gemma_like(special=SPECIAL)


def image_service(**options: Any) -> LocalLanguageService:
    """A service whose model reads images as SmolVLM does; `options` as for fake_service."""
    fields = {"template": TEMPLATE, "context": 512, **options}
    return fakes.fake_service(LIBRARY, images=SETTINGS, image_rows=ROWS, **fields)


def encoded(width: int, height: int) -> str:
    """A picture of this size, as PNG in base64."""
    file = io.BytesIO()
    Image.fromarray(pixels(width, height)).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


# Each is cut into two squares, and read whole, too.
WIDE, TALL = encoded(60, 20), encoded(10, 50)


def openai(data: str) -> dict[str, Any]:
    """A part of a message with an image in base64."""
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def chat(*parts: Any) -> dict[str, Any]:
    """A request with a message of parts."""
    return {"messages": [{"role": "user", "content": list(parts)}], "max_tokens": 3}


def anthropic(data: str) -> dict[str, Any]:
    """A block with an image in base64."""
    return {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": data},
    }


def gemini(data: str) -> dict[str, Any]:
    """A part with an image in base64."""
    return {"inlineData": {"mimeType": "image/png", "data": data}}
