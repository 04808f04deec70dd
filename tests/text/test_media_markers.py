"""Messages have random marks for images and sounds that their chat template does not write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.text.conversation import Conversation, Media, Message
from hearthd.text.media_marker import TEMPLATE_MARKERS
from hearthd.text.templates.chat_template import ChatTemplate
from hearthd.text.templates.media_texts import MediaTexts
from tests.server import templates
from tests.text.test_chat_template import TOKENIZER
from tests.text.test_images_in_templates import EITHER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearthd.text.conversation import MediaKind

SOUND = Media(kind="audio", field="sound", url="data:")
IMAGE = Media(kind="image", field="image", url="data:")
MARKS: Mapping[MediaKind, str] = {"audio": "<!>"}


def test_a_probe_shows_what_a_template_writes() -> None:
    plain, either = (
        ChatTemplate(source, TOKENIZER, eos=None) for source in (templates.CHATML, EITHER)
    )
    assert either.writes("image", "<end_of_turn>")
    assert not either.writes("audio", "<|audio|>")
    assert not plain.writes("image", "<end_of_turn>")


def test_marks_are_in_a_line_with_what_is_beside_them() -> None:
    message = Message(role="user", parts=["a", "b", SOUND, SOUND, "c", "d"])
    (converted,) = Conversation(messages=[message]).as_template(reads=["audio"], marks=MARKS)
    assert converted["content"] == "a\nb<!><!>c\nd"


def test_marks_of_some_models_are_lines_of_their_own() -> None:
    message = Message(role="user", parts=["a", SOUND, SOUND, "c"])
    (converted,) = Conversation(messages=[message]).as_template(
        reads=["audio"], marks=MARKS, lines=["audio"]
    )
    assert converted["content"] == "a\n<!>\n<!>\nc"


def test_a_template_writes_images_beside_marks_of_sounds() -> None:
    template = ChatTemplate(EITHER, TOKENIZER, eos=None)
    message = Message(role="user", parts=["a", SOUND, IMAGE, "b"])
    conversation = Conversation(messages=[message])
    markers: Mapping[MediaKind, str] = {"image": "<end_of_turn>", **MARKS}
    texts = MediaTexts(markers, (("audio", "[1]"), ("image", "[2]")))
    messages = conversation.as_template(reads=["audio", "image"], marks=MARKS)
    assert template.prompt(messages, media=texts).text == "a[1][2]b"


def test_marks_of_kinds_differ() -> None:
    assert len({*TEMPLATE_MARKERS.values()}) == len(TEMPLATE_MARKERS) == 2
