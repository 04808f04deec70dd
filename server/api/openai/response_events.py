"""The events of /v1/responses, and the response that they build."""

from collections.abc import AsyncIterator
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from server.api.openai.shared_fields import ChosenLogprob, chosen_logprob, new_id
from server.api.sse import NamedEvent
from server.text.answer import Piece, Summary
from server.text.choices import Choices
from server.text.tool_calls import ToolCall


class OutputText(BaseModel):
    """Text of an answer."""

    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[None] = []
    logprobs: list[ChosenLogprob] = []


class OutputMessage(BaseModel):
    """What the model said."""

    type: Literal["message"] = "message"
    id: str
    role: Literal["assistant"] = "assistant"
    status: Literal["in_progress", "completed", "incomplete"]
    content: list[OutputText]


class OutputCall(BaseModel):
    """A call that the model asks for; `arguments` is the text of a JSON object."""

    type: Literal["function_call"] = "function_call"
    id: str
    call_id: str
    name: str
    arguments: str
    status: Literal["in_progress", "completed"]


class CachedTokens(BaseModel):
    """Where the input's tokens came from."""

    cached_tokens: int


class ReasoningTokens(BaseModel):
    """There is no hidden reasoning."""

    reasoning_tokens: Literal[0] = 0


class ResponseUsage(BaseModel):
    """Numbers of tokens. The token that ends an answer is not counted."""

    input_tokens: int
    input_tokens_details: CachedTokens
    output_tokens: int
    output_tokens_details: ReasoningTokens
    total_tokens: int


class Incomplete(BaseModel):
    """Why an answer has no end of its own."""

    reason: Literal["max_output_tokens"]


class Response(BaseModel):
    """An answer, with the settings that made it. It is not stored."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Literal["in_progress", "completed", "incomplete"] = "in_progress"
    error: None = None
    incomplete_details: Incomplete | None = None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    model: str
    output: list[OutputMessage | OutputCall] = []
    parallel_tool_calls: bool
    previous_response_id: None = None
    store: Literal[False] = False
    system_fingerprint: str
    temperature: float
    text: dict[str, Any]
    tool_choice: Literal["auto", "none"]
    tools: list[dict[str, Any]]
    top_p: float
    truncation: Literal["disabled"] = "disabled"
    usage: ResponseUsage | None = None


class ResponseEvent(NamedEvent):
    """An event of a stream; what it has besides depends on its `type`."""

    model_config = ConfigDict(extra="allow")

    sequence_number: int


class ResponseWriter:
    """Turns the pieces of one answer into events; the last one holds the whole response."""

    def __init__(self, response: Response) -> None:
        self.response = response
        self._number = -1
        self._message: OutputMessage | None = None
        self._output: list[OutputMessage | OutputCall] = []
        self._logprobs: list[ChosenLogprob] = []

    async def events(self, choices: Choices) -> AsyncIterator[ResponseEvent]:
        """The events of the only choice, as they come."""
        yield self._event("created", response=self.response)
        yield self._event("in_progress", response=self.response)
        async for _, piece in choices.pieces():
            for event in self._end(piece) if isinstance(piece, Summary) else self._more(piece):
                yield event

    def _event(self, name: str, /, **fields: Any) -> ResponseEvent:
        self._number += 1
        return ResponseEvent(type=f"response.{name}", sequence_number=self._number, **fields)

    def _more(self, piece: Piece) -> list[ResponseEvent]:
        self._logprobs += [chosen_logprob(token) for token in piece.logprobs]
        events = self._text(piece.text) if piece.text else []
        for call in piece.calls:
            events += [*self._close("completed"), *self._call(call)]
        return events

    def _text(self, text: str) -> list[ResponseEvent]:
        events = [] if self._message else self._open()
        assert self._message is not None
        part = self._message.content[0]
        part.text += text
        part.logprobs += self._logprobs
        delta = self._part("output_text.delta", delta=text, logprobs=self._logprobs)
        self._logprobs = []
        return [*events, delta]

    def _open(self) -> list[ResponseEvent]:
        self._message = OutputMessage(id=new_id("msg_"), status="in_progress", content=[])
        added = self._event(
            "output_item.added",
            output_index=len(self._output),
            item=self._message.model_copy(deep=True),
        )
        self._message.content.append(OutputText(text="", logprobs=[]))
        empty = OutputText(text="")
        return [added, self._part("content_part.added", part=empty)]

    def _close(self, status: Literal["completed", "incomplete"]) -> list[ResponseEvent]:
        """End the message that is open, if one is."""
        if self._message is None:
            return []
        message, self._message.status = self._message, status
        part = message.content[0]
        events = [
            self._part("output_text.done", text=part.text, logprobs=part.logprobs),
            self._part("content_part.done", part=part),
            self._event("output_item.done", output_index=len(self._output), item=message),
        ]
        self._output.append(message)
        self._message = None
        return events

    def _part(self, name: str, **fields: Any) -> ResponseEvent:
        assert self._message is not None
        return self._event(
            name,
            item_id=self._message.id,
            output_index=len(self._output),
            content_index=0,
            **fields,
        )

    def _call(self, call: ToolCall) -> list[ResponseEvent]:
        item = OutputCall(
            id=new_id("fc_"),
            call_id=new_id("call_"),
            name=call.name,
            arguments=call.arguments,
            status="completed",
        )
        begun = item.model_copy(update={"arguments": "", "status": "in_progress"})
        index = len(self._output)
        where = {"item_id": item.id, "output_index": index}
        self._output.append(item)
        return [
            self._event("output_item.added", output_index=index, item=begun),
            self._event("function_call_arguments.delta", delta=call.arguments, **where),
            self._event(
                "function_call_arguments.done", arguments=call.arguments, name=call.name, **where
            ),
            self._event("output_item.done", output_index=index, item=item),
        ]

    def _end(self, summary: Summary) -> list[ResponseEvent]:
        cut = summary.finish_reason in ("length", "timeout")
        status: Literal["completed", "incomplete"] = "incomplete" if cut else "completed"
        events = [] if self._output or self._message else self._open()
        events += self._close(status)
        self.response = self.response.model_copy(
            update={
                "status": status,
                "incomplete_details": Incomplete(reason="max_output_tokens") if cut else None,
                "output": self._output,
                "usage": ResponseUsage(
                    input_tokens=summary.prompt_tokens,
                    input_tokens_details=CachedTokens(cached_tokens=summary.cached_tokens),
                    output_tokens=summary.completion_tokens,
                    output_tokens_details=ReasoningTokens(),
                    total_tokens=summary.prompt_tokens + summary.completion_tokens,
                ),
            }
        )
        return [*events, self._event(status, response=self.response)]
