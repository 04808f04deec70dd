"""A conversation in the form of the text layer: every surface converts its messages to it once."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from hearthd.text.errors import InvalidRequest
from hearthd.text.tool_calls.tools import ToolChoice

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from hearthd.text.templates.chat_template import TemplateMessage
    from hearthd.text.tool_calls.tools import Tool

MediaKind: TypeAlias = Literal["image", "audio", "file"]


@dataclass(frozen=True, kw_only=True)
class Media:
    """An image, sound or a file in a message. Models with towers read images and sound.

    field  path of the part in the client's request, for errors
    url    a data URI, or the address of an image
    data   what was downloaded from the address; None if nothing was
    """

    kind: MediaKind
    field: str
    url: str = ""
    data: bytes | None = None


Part: TypeAlias = str | Media


@dataclass(frozen=True, kw_only=True)
class EarlierCall:
    """A tool call in an earlier message from the model."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(kw_only=True)
class Message:
    """A message.

    name       of the author, for templates that use it
    reasoning  of the model before its answer
    calls      of tools, by the model
    """

    role: Literal["system", "developer", "user", "assistant"]
    parts: Sequence[Part] = ()
    name: str = ""
    reasoning: str = ""
    calls: list[EarlierCall] = dataclasses.field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class ToolResult:
    """The result of a tool call.

    call_id  id of the call in an earlier message
    field    path of the id in the client's request, for errors
    """

    call_id: str
    parts: Sequence[Part]
    field: str


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """Messages, oldest first, after which the model generates the next one.

    tools   that the model sees
    choice  of those that it may call
    field   name of the messages in the client's request, for errors
    """

    messages: Sequence[Message | ToolResult]
    tools: Sequence[Tool] = ()
    choice: ToolChoice = dataclasses.field(default_factory=ToolChoice)
    field: str = "messages"

    @property
    def can_be_continued(self) -> bool:
        """Whether the last message is a text from the model."""
        last = self.messages[-1] if self.messages else None
        return isinstance(last, Message) and last.role == "assistant" and not last.calls

    def after(self, system: str, messages: Sequence[Message]) -> Conversation:
        """This conversation after a system message, unless it has one, and other messages.

        These come after the system messages at its start.
        """
        start = list(itertools.takewhile(is_system, self.messages))
        if system and not any(map(is_system, self.messages)):
            start = [Message(role="system", parts=[system])]
        rest = itertools.dropwhile(is_system, self.messages)
        return dataclasses.replace(self, messages=[*start, *messages, *rest])

    @property
    def media(self) -> tuple[Media, ...]:
        """The images and sounds of all messages, in their order."""
        return tuple(
            part for message in self.messages for part in message.parts if isinstance(part, Media)
        )

    def as_template(
        self,
        *,
        reads: Collection[MediaKind] = (),
        marks: Mapping[MediaKind, str] = MappingProxyType({}),
        lines: Collection[MediaKind] = (),
    ) -> list[TemplateMessage]:
        """The messages in the form of chat templates; raises InvalidRequest.

        The parts of a message are one text, or a list if there is one among them of a kind that the
        model `reads`. `marks` has the texts that stand for parts of kinds that the template does
        not write; media of `lines` are lines of their own. A tool's result has the tool's name.
        """
        if not self.messages:  # such as a list of reasoning without a text
            raise InvalidRequest(field=self.field, got="none", expected="at least one message")
        names: dict[str, str] = {}
        converted = []
        for message in self.messages:
            if isinstance(message, ToolResult):
                converted.append(_result(message, names, reads=reads, marks=marks, lines=lines))
            else:
                converted.append(_message(message, reads=reads, marks=marks, lines=lines))
                names |= {call.id: call.name for call in message.calls}
        return converted


def is_system(message: Message | ToolResult) -> bool:
    """Whether a message has instructions for the whole conversation."""
    return isinstance(message, Message) and message.role in ("system", "developer")


def _message(
    message: Message,
    *,
    reads: Collection[MediaKind],
    marks: Mapping[MediaKind, str],
    lines: Collection[MediaKind],
) -> TemplateMessage:
    reads = reads if message.role == "user" else ()
    content = _content(message.parts, reads=reads, marks=marks, lines=lines)
    converted: TemplateMessage = {"role": message.role, "content": content}
    if message.name:
        converted["name"] = message.name
    if message.reasoning:
        converted["reasoning_content"] = message.reasoning
    if message.calls:
        converted["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.calls
        ]
    return converted


def _result(
    result: ToolResult,
    names: Mapping[str, str],
    *,
    reads: Collection[MediaKind],
    marks: Mapping[MediaKind, str],
    lines: Collection[MediaKind],
) -> TemplateMessage:
    """The message of a result; `names` are the tools called so far, by the call's id."""
    if result.call_id not in names:
        raise InvalidRequest(
            field=result.field,
            got=result.call_id,
            expected="the id of a call in an earlier message",
        )
    return {
        "role": "tool",
        "content": _content(result.parts, reads=reads, marks=marks, lines=lines),
        "name": names[result.call_id],
        "tool_call_id": result.call_id,
    }


def _content(
    parts: Sequence[Part],
    *,
    reads: Collection[MediaKind],
    marks: Mapping[MediaKind, str],
    lines: Collection[MediaKind],
) -> str | list[dict[str, str]]:
    """The parts as one text, or with media as a list; raises InvalidRequest for other parts."""
    for part in parts:
        if isinstance(part, Media) and part.kind not in reads:
            raise InvalidRequest(field=part.field, got=part.kind, expected=_expected(reads))
    written = [part for part in parts if isinstance(part, str) or part.kind not in marks]
    if all(isinstance(part, str) for part in written):
        return _one_text(parts, marks, lines)
    return [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "text", "text": marks[part.kind]}
        if part.kind in marks
        else {"type": part.kind}
        for part in parts
    ]


def _one_text(
    parts: Sequence[Part], marks: Mapping[MediaKind, str], lines: Collection[MediaKind]
) -> str:
    """Texts, a line each, and the marks of media.

    A mark of a kind that is not of `lines` is in a line with what is beside it.
    """
    text, after_line = "", False
    for part in parts:
        is_line = isinstance(part, str) or part.kind in lines
        separator = "\n" if is_line and after_line else ""
        text += separator + (part if isinstance(part, str) else marks[part.kind])
        after_line = is_line
    return text


def _expected(reads: Collection[MediaKind]) -> str:
    """The parts that a model reads, by the kinds of media among them."""
    images, sound = "image" in reads, "audio" in reads
    if images and sound:
        return (
            "text, an image or sound: the model reads images and sound of users and of tools, and "
            "no files"
        )
    if images:
        return (
            "text or an image: the model reads images of users and of tools, and no sound and files"
        )
    if sound:
        return "text or sound: the model reads sound of users and of tools, and no images and files"
    return "text: the model cannot read images, sound and files"
