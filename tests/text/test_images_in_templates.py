"""Chat templates write images, and some take lists of parts only."""

from __future__ import annotations

import pytest

from hearthd.text.conversation import Conversation, Media, MediaKind, Message, ToolResult
from hearthd.text.errors import InvalidRequest
from hearthd.text.templates.chat_template import ChatTemplate
from hearthd.text.templates.media_texts import MediaTexts
from tests.baker.small_smolvlm import SPECIAL, TEMPLATE
from tests.server import templates
from tests.server.fakes import gemma_like
from tests.text.test_chat_template import TOKENIZER

# As the template of Gemma 3: it takes a text, or a list of parts.
EITHER = (
    "{% for message in messages %}{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for item in message['content'] %}{% if item['type'] == 'image' %}"
    "{{ '<end_of_turn>' }}{% else %}{{ item['text'] }}{% endif %}{% endfor %}{% endif %}"
    "{% endfor %}"
)
READS: tuple[MediaKind, ...] = ("image",)
IMAGE = Media(kind="image", field="image", url="data:")


def conversation(*parts: str | Media) -> Conversation:
    return Conversation(messages=[Message(role="user", parts=parts)])


def test_a_template_of_lists_gets_lists() -> None:
    tokenizer = type(TOKENIZER)(gemma_like(special=SPECIAL), bos=None)
    template = ChatTemplate(TEMPLATE, tokenizer, eos=None)
    written = template.prompt(conversation("the dog").as_template()).text
    assert written == "<|im_start|>User: the dog<end_of_utterance>\nAssistant:"
    again = [*conversation("a").messages, Message(role="assistant", parts=["the fo"])]
    messages = Conversation(messages=again).as_template()
    continued = template.prompt(messages, continue_final=True, add_generation_prompt=False).text
    assert continued.endswith("Assistant: the fo")


def test_texts_are_in_the_places_of_images() -> None:
    template = ChatTemplate(EITHER, TOKENIZER, eos=None)
    parts = conversation("a<end_of_turn>", IMAGE, "b", IMAGE).as_template(reads=READS)
    prompt = template.prompt(
        parts, media=MediaTexts({"image": "<end_of_turn>"}, (("image", "[1]"), ("image", "[2]")))
    )
    assert prompt.text == "a<end_of_turn>[1]b[2]"
    assert template.prompt(conversation("a", "b").as_template(reads=READS)).text == "a\nb"


def test_a_template_that_writes_no_images_is_named() -> None:
    template = ChatTemplate(templates.CHATML, TOKENIZER, eos=None)
    with pytest.raises(InvalidRequest, match='got "image", expected none, which the model'):
        template.prompt(
            conversation("a").as_template(),
            media=MediaTexts({"image": "<pad>"}, (("image", "[1]"),)),
        )


def test_users_and_tools_have_images() -> None:
    for role in ("system", "assistant"):
        message = Message(role=role, parts=[IMAGE])
        with pytest.raises(InvalidRequest, match='image: got "image", expected text'):
            Conversation(messages=[message]).as_template(reads=READS)
    result = ToolResult(call_id="c", parts=["a", IMAGE], field="f")
    assert Conversation(messages=[result]).media == (IMAGE,)
