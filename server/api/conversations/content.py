"""The content of a message: a text, or a list of parts."""

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
    """A part of a message. Images, sound and files are not supported."""

    type: Literal["text"]
    text: Text = Field(description="The text.")


class _AnyText(Protocol):
    @property
    def text(self) -> str: ...


class MediaPart:
    """An image, sound or a file, in the form of any surface."""

    def __init__(self, kind: MediaKind) -> None:
        self.kind = kind


Unlisted = SkipJsonSchema[InstanceOf[MediaPart]]  # not in the OpenAPI document


def or_media(
    form: Any, is_text: Callable[[dict[str, Any]], bool] = lambda _: False
) -> WrapValidator:
    """Validate a part as `form`, unless it is an image, sound or a file that is not `is_text`.

    The text layer refuses those, with one message for all surfaces.
    """
    adapter = TypeAdapter(form)

    def validate(part: Any, _: ValidatorFunctionWrapHandler) -> Any:
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(kind, str) and kind in _KINDS and not is_text(part):
            return MediaPart(_KINDS[kind])
        return adapter.validate_python(part)

    return WrapValidator(validate)


ContentPart = Annotated[TextPart | Unlisted, or_media(TextPart)]
Content = Text | list[ContentPart]


def parts(content: str | Sequence[_AnyText | MediaPart], field: str) -> list[Part]:
    """The parts of a message for the text layer; `field` is the path of the content."""
    if isinstance(content, str):
        return [content]
    return [part(wire, f"{field}[{index}]") for index, wire in enumerate(content)]


def part(wire: _AnyText | MediaPart, field: str) -> Part:
    """A part for the text layer; `field` is its path."""
    return Media(kind=wire.kind, field=field) if isinstance(wire, MediaPart) else wire.text
