"""The content of a message: a text, or a list of parts."""

import base64
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field, InstanceOf, TypeAdapter, ValidatorFunctionWrapHandler, WrapValidator
from pydantic.json_schema import SkipJsonSchema

from hearthd.server.api.fields import Fields, Text
from hearthd.text.conversation import Media, MediaKind, Part

CONTENT = "A text, or a list of texts, which are joined with line breaks."

# Types of parts in OpenAI's, Anthropic's and vLLM's APIs.
_KINDS: dict[object, MediaKind] = {
    "image": "image",
    "image_url": "image",
    "input_image": "image",
    "audio": "audio",
    "audio_url": "audio",
    "input_audio": "audio",
    "document": "file",
    "file": "file",
    "input_file": "file",
}


class TextPart(Fields):
    """A part of a message. Sound and files are not supported, and images by some models."""

    type: Literal["text"]
    text: Text = Field(description="The text.")


class RefusalPart(Fields):
    """A refusal in an earlier answer, which counts as its text."""

    type: Literal["refusal"]
    refusal: Text = Field(description="The text.")

    @property
    def text(self) -> str:
        """The refusal."""
        return self.refusal


class _AnyText(Protocol):
    @property
    def text(self) -> str: ...


class MediaPart:
    """An image, sound or a file, in the form of any surface."""

    def __init__(self, kind: MediaKind, url: str) -> None:
        self.kind = kind
        self.url = url


Unlisted = SkipJsonSchema[InstanceOf[MediaPart]]  # not in the OpenAPI document


def or_media(
    form: Any, is_text: Callable[[dict[str, Any]], bool] = lambda _: False
) -> WrapValidator:
    """Validate a part as `form`, unless it is an image, sound or a file that is not `is_text`.

    The text layer refuses those that the model does not read, with one message for all surfaces.
    """
    adapter = TypeAdapter(form)

    def validate(part: Any, _: ValidatorFunctionWrapHandler) -> Any:
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(kind, str) and kind in _KINDS and not is_text(part):
            return MediaPart(_KINDS[kind], _url(part))
        return adapter.validate_python(part)

    return WrapValidator(validate)


def _url(part: dict[str, Any]) -> str:
    """The address in a part in OpenAI's or Anthropic's form: a data URI where it has the data."""
    match part:
        case {"image_url": {"url": str(url)}} | {"image_url": str(url)}:
            return url
        case {"source": {"type": "base64", "data": str(data)}}:
            return f"data:;base64,{data}"
        case {"input_audio": {"data": str(data)}} | {"audio_url": {"url": str(data)}}:
            return data
        case {"source": {"url": str(url)}}:
            return url
    return ""


# Of WAV, FLAC, OGG, MP3 with tags, AIFF, AU and CAF, and of a frame of MP3.
_SOUND = re.compile(
    rb"RIFF....WAVE|fLaC|OggS|ID3|FORM....AIF|\.snd|caff|\xff[\xe2-\xff]", re.DOTALL
)


def kind_of(data: str) -> MediaKind:
    """Whether a file in base64 is a sound, by its first bytes, or counts as an image."""
    try:
        start = base64.b64decode(data[:16])
    except ValueError:
        return "image"  # the reader of images says what is wrong
    return "audio" if _SOUND.match(start) else "image"


ContentPart = Annotated[TextPart | Unlisted, or_media(TextPart)]
Content = Text | list[ContentPart]


def parts(content: str | Sequence[_AnyText | MediaPart], field: str) -> list[Part]:
    """The parts of a message for the text layer; `field` is the path of the content."""
    if isinstance(content, str):
        return [content]
    return [part(wire, f"{field}[{index}]") for index, wire in enumerate(content)]


def part(wire: _AnyText | MediaPart, field: str) -> Part:
    """A part for the text layer; `field` is its path."""
    if isinstance(wire, MediaPart):
        return Media(kind=wire.kind, field=field, url=wire.url)
    return wire.text
