"""The events of /v1/messages, and the message that they build up."""

from collections.abc import Collection
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import override

from hearthd.server.api.answer_writer import AnswerWriter, new_id
from hearthd.server.api.anthropic.error_bodies import stream_error
from hearthd.server.api.conversations.call_arguments import complete_members
from hearthd.server.api.sse import NamedEvent
from hearthd.server.completions.choices import Choices
from hearthd.text.answer import AnswerSummary, Piece
from hearthd.text.tool_calls.call_format import CallDelta

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class TextBlock(BaseModel):
    """Text of an answer."""

    type: Literal["text"] = "text"
    text: str = Field(description="The text.")


class ThoughtBlock(BaseModel):
    """The model's reasoning."""

    type: Literal["thinking"] = "thinking"
    thinking: str = Field(description="The reasoning.")
    signature: str = Field(default="", description="Always empty.")


class CallBlock(BaseModel):
    """A tool call by the model."""

    type: Literal["tool_use"] = "tool_use"
    id: str = Field(description="Id of the call. The block with the result repeats it.")
    name: str = Field(description="Name of the tool.")
    input: dict[str, Any] = Field(
        description="The arguments. With stop_reason max_tokens, the last ones may be missing."
    )


AnswerBlock = TextBlock | ThoughtBlock | CallBlock


class MessageUsage(BaseModel):
    """Token counts. The token with which the model ends an answer is not counted."""

    input_tokens: int = Field(description="Tokens of the prompt that the model read.")
    cache_creation_input_tokens: Literal[0] = Field(default=0, description="Always 0.")
    cache_read_input_tokens: int = Field(
        description="Tokens of the prompt that came from the prefix cache."
    )
    output_tokens: int = Field(description="Tokens of the answer.")


class Message(BaseModel):
    """An answer."""

    id: str = Field(description="A unique id of the answer.")
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str = Field(description="Name of the model that answers.")
    content: list[AnswerBlock] = Field(default=[], description="The blocks, in order.")
    stop_reason: StopReason | None = Field(
        default=None,
        description="end_turn: the model ended the answer. stop_sequence: a stop sequence did. "
        "max_tokens: the answer reached max_tokens, the end of the context or timeout_ms. "
        "tool_use: the model called tools. null until the end.",
    )
    stop_sequence: str | None = Field(
        default=None, description="The stop sequence that ended the answer."
    )
    usage: MessageUsage


class MessageEvent(NamedEvent):
    """An event of a stream. Its other fields depend on its `type`."""

    model_config = ConfigDict(extra="allow")


def _event(name: str, /, **fields: Any) -> MessageEvent:
    return MessageEvent(type=name, **fields)


class MessageWriter(AnswerWriter[MessageEvent, Message]):
    """Writes the events of the only choice, and builds up the message.

    `stops` are the stop sequences of the request.
    """

    def __init__(self, choices: Choices, *, model: str, stops: Collection[str]) -> None:
        super().__init__(choices)
        (prompt_tokens,) = choices.prompt_tokens
        self._message = Message(
            id=new_id("msg_"),
            model=model,
            usage=MessageUsage(
                input_tokens=prompt_tokens, cache_read_input_tokens=0, output_tokens=0
            ),
        )
        self._stops = stops
        self._open: AnswerBlock | None = None
        self._arguments = ""  # of the open call

    @override
    def error(self, error: BaseException) -> str:
        return stream_error(error)

    @override
    def _begin(self) -> list[MessageEvent]:
        started = _event("message_start", message=self._message.model_copy(deep=True))
        return [started, _event("ping")]

    @override
    def _answer(self) -> Message:
        return self._message

    @override
    def _more(self, _index: int, piece: Piece) -> list[MessageEvent]:
        events = self._texts(piece.reasoning, piece.text)
        for call in piece.calls:
            events += self._call(call)
        return events

    def _texts(self, thinking: str, text: str) -> list[MessageEvent]:
        events: list[MessageEvent] = []
        if thinking:
            events += self._opened(ThoughtBlock(thinking=""))
            assert isinstance(self._open, ThoughtBlock)
            self._open.thinking += thinking
            events.append(self._delta("thinking_delta", thinking=thinking))
        if text:
            events += self._opened(TextBlock(text=""))
            assert isinstance(self._open, TextBlock)
            self._open.text += text
            events.append(self._delta("text_delta", text=text))
        return events

    def _opened(self, block: TextBlock | ThoughtBlock) -> list[MessageEvent]:
        """Open a block unless one of its type is open."""
        if type(self._open) is type(block):
            return []
        return [*self._close(), self._start(block)]

    def _start(self, block: AnswerBlock) -> MessageEvent:
        self._open = block
        self._message.content.append(block)
        return self._event("content_block_start", content_block=block.model_copy())

    def _close(self) -> list[MessageEvent]:
        """Complete the open block, if there is one."""
        if self._open is None:
            return []
        if isinstance(self._open, CallBlock):
            self._open.input = complete_members(self._arguments)
        signed = isinstance(self._open, ThoughtBlock)
        self._open = None
        # Anthropic's clients expect a signature.
        signature = [self._delta("signature_delta", signature="")] if signed else []
        return [*signature, self._event("content_block_stop")]

    def _call(self, call: CallDelta) -> list[MessageEvent]:
        events: list[MessageEvent] = []
        if call.name:
            block = CallBlock(id=new_id("toolu_"), name=call.name, input={})
            events = [*self._close(), self._start(block)]
            self._arguments = ""
        if call.arguments:
            self._arguments += call.arguments
            events.append(self._delta("input_json_delta", partial_json=call.arguments))
        return [*events, *(self._close() if call.complete else ())]

    def _delta(self, name: str, **fields: Any) -> MessageEvent:
        return self._event("content_block_delta", delta={"type": name, **fields})

    def _event(self, name: str, /, **fields: Any) -> MessageEvent:
        return _event(name, index=len(self._message.content) - 1, **fields)

    @override
    def _end(self, _index: int, summary: AnswerSummary) -> list[MessageEvent]:
        events = self._close()
        message = self._message
        message.stop_reason = self._reason(summary)
        if message.stop_reason == "stop_sequence":
            message.stop_sequence = summary.stop_string
        message.usage = MessageUsage(
            input_tokens=summary.prompt_tokens - summary.cached_tokens,
            cache_read_input_tokens=summary.cached_tokens,
            output_tokens=summary.completion_tokens,
        )
        ending = {"stop_reason": message.stop_reason, "stop_sequence": message.stop_sequence}
        return [
            *events,
            _event("message_delta", delta=ending, usage=message.usage),
            _event("message_stop"),
        ]

    def _reason(self, summary: AnswerSummary) -> StopReason:
        match summary.finish_reason:
            case "tool_calls":
                return "tool_use"
            case "stop":
                return "stop_sequence" if summary.stop_string in self._stops else "end_turn"
            case _:
                return "max_tokens"
