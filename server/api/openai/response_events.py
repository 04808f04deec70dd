"""The events of /v1/responses, and the response that they build up."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import override

from hearthd.server.api.answer_writer import AnswerWriter, new_id
from hearthd.server.api.openai.response_tools import (
    OfferedTool,
    OpenCall,
    OutputCall,
    OutputCustomCall,
)
from hearthd.server.api.sse import NamedEvent
from hearthd.server.api.token_logprobs import ChosenLogprob, chosen_logprob
from hearthd.server.api.usage import reports
from hearthd.server.completions.choices import Choices
from hearthd.text.answer import AnswerSummary, Piece, Timings
from hearthd.text.tool_calls.call_format import CallDelta


class OutputText(BaseModel):
    """Text of an answer."""

    type: Literal["output_text"] = "output_text"
    text: str = Field(description="The text.")
    annotations: list[None] = Field(default=[], description="Always empty.")
    logprobs: list[ChosenLogprob] = Field(
        default=[], description="One entry per token, if `include` asks for them."
    )


class OutputMessage(BaseModel):
    """A message from the model."""

    type: Literal["message"] = "message"
    id: str = Field(description="A unique id of the message.")
    role: Literal["assistant"] = "assistant"
    status: Literal["in_progress", "completed", "incomplete"] = Field(
        description="incomplete: the answer reached its limit."
    )
    content: list[OutputText] = Field(description="The text, in one part.")


class ReasoningText(BaseModel):
    """Reasoning."""

    type: Literal["reasoning_text"] = "reasoning_text"
    text: str = Field(description="The text.")


class SummaryText(BaseModel):
    """Reasoning, if the request asks for a summary. The server does not shorten it."""

    type: Literal["summary_text"] = "summary_text"
    text: str = Field(description="The text.")


class OutputReasoning(BaseModel):
    """The reasoning of the model before its answer."""

    type: Literal["reasoning"] = "reasoning"
    id: str = Field(description="A unique id of the item.")
    status: Literal["in_progress", "completed", "incomplete"] = Field(
        description="incomplete: the answer reached its limit."
    )
    summary: list[SummaryText] = Field(
        default=[], description="The reasoning in one part, if the request asks for a summary."
    )
    content: list[ReasoningText] = Field(
        default=[], description="The reasoning in one part, otherwise."
    )


OutputItem = OutputMessage | OutputReasoning | OutputCall | OutputCustomCall


class CachedTokens(BaseModel):
    """Origin of the input's tokens."""

    cached_tokens: int = Field(description="Tokens of the input found in the prefix cache.")
    cache_write_tokens: int = Field(default=0, description="Always 0: no token costs more.")


class ReasoningTokens(BaseModel):
    """Tokens that are not part of the answer's text."""

    reasoning_tokens: int = Field(
        description="Tokens of the reasoning, if it is separated from the text."
    )


class ResponseUsage(BaseModel):
    """Token counts. The token with which the model ends an answer is not counted."""

    input_tokens: int = Field(description="Tokens of the conversation, as the model reads it.")
    input_tokens_details: CachedTokens
    output_tokens: int = Field(description="Tokens of the answer.")
    output_tokens_details: ReasoningTokens
    total_tokens: int = Field(description="Sum of input_tokens and output_tokens.")


class Incomplete(BaseModel):
    """Why an answer is incomplete."""

    reason: Literal["max_output_tokens"] = Field(
        description="The answer reached max_output_tokens, the end of the context or timeout_ms."
    )


class ConversationId(BaseModel):
    """A stored conversation."""

    id: str = Field(description="Its id.")


class Response(BaseModel):
    """An answer, and the settings of its request."""

    id: str = Field(description="A unique id of the answer.")
    object: Literal["response"] = "response"
    created_at: int = Field(description="Unix time of the answer's start, in seconds.")
    status: Literal["in_progress", "completed", "incomplete"] = Field(
        default="in_progress", description="in_progress in a stream's first events only."
    )
    error: None = Field(default=None, description="Always null: an error has a body of its own.")
    incomplete_details: Incomplete | None = Field(
        default=None, description="null for a complete answer."
    )
    instructions: str | None = Field(description="As in the request; null if empty.")
    max_output_tokens: int | None = Field(description="As in the request.")
    metadata: dict[str, str] = Field(description="As in the request.")
    model: str = Field(description="Name of the model that answers.")
    output: list[OutputItem] = Field(
        default=[], description="The answer: reasoning, messages and tool calls, in order."
    )
    parallel_tool_calls: bool = Field(description="As in the request.")
    reasoning: dict[str, Any] = Field(description="As in the request.")
    previous_response_id: str | None = Field(description="As in the request.")
    conversation: ConversationId | None = Field(description="As in the request.")
    store: bool = Field(description="As in the request; false if there was no space to store it.")
    system_fingerprint: str = Field(
        description="Identifies the bundle by the start of its digest, and one of several programs."
    )
    temperature: float = Field(description="As in the request.")
    text: dict[str, Any] = Field(description="As in the request.")
    tool_choice: str | dict[str, Any] = Field(description="As in the request.")
    tools: list[dict[str, Any]] = Field(description="As in the request.")
    top_p: float = Field(description="As in the request.")
    truncation: Literal["auto", "disabled"] = Field(description="As in the request.")
    usage: ResponseUsage | None = Field(default=None, description="null until the end.")
    timings: Timings | None = Field(
        default=None, description="null until the end. A field of llama-server."
    )


class ResponseEvent(NamedEvent):
    """An event of a stream. Its other fields depend on its `type`."""

    model_config = ConfigDict(extra="allow")

    sequence_number: int = Field(description="Position of the event in the stream, from 0.")


class ResponseWriter(AnswerWriter[ResponseEvent, Response]):
    """Writes the events of the only choice; the last event holds the complete response.

    `tools` are the request's by the names that the model sees. With `summarized` the
    reasoning is a summary. `on_end` gets the complete response, and returns what clients get.
    """

    def __init__(
        self,
        choices: Choices,
        response: Response,
        *,
        tools: Mapping[str, OfferedTool],
        summarized: bool,
        on_end: Callable[[Response], Response],
    ) -> None:
        super().__init__(choices)
        self._response = response
        self._tools = tools
        self._summarized = summarized
        self._on_end = on_end
        self._number = -1
        self._item: OutputMessage | OutputReasoning | None = None  # the open one
        self._open_call: OpenCall | None = None
        self._output: list[OutputItem] = []
        self._logprobs: list[ChosenLogprob] = []

    @override
    def _begin(self) -> list[ResponseEvent]:
        return [self._event(name, response=self._response) for name in ("created", "in_progress")]

    @override
    def _answer(self) -> Response:
        return self._response

    def _event(self, name: str, /, **fields: Any) -> ResponseEvent:
        self._number += 1
        return ResponseEvent(type=f"response.{name}", sequence_number=self._number, **fields)

    @override
    def _more(self, _index: int, piece: Piece) -> list[ResponseEvent]:
        if piece.progress:
            return [self._event("in_progress", response=self._response, **reports(piece))]
        if isinstance(self._item, OutputReasoning):
            self._logprobs = []  # tokens of the reasoning, which are not reported
        self._logprobs += [chosen_logprob(token) for token in piece.logprobs]
        events = self._reason(piece.reasoning) if piece.reasoning else []
        events += self._text(piece.text, **reports(piece)) if piece.text else []
        for call in piece.calls:
            events += self._call(call)
        return events

    def _reason(self, text: str) -> list[ResponseEvent]:
        events: list[ResponseEvent] = []
        if not isinstance(self._item, OutputReasoning):
            item = OutputReasoning(id=new_id("rs_"), status="in_progress")
            if self._summarized:
                item.summary = [SummaryText(text="")]
            else:
                item.content = [ReasoningText(text="")]
            events = self._open(item)
        part = self._open_part()
        part.text += text
        return [*events, self._part(f"{_event_name(part)}.delta", delta=text)]

    def _text(self, text: str, **more: Any) -> list[ResponseEvent]:
        events: list[ResponseEvent] = []
        if not isinstance(self._item, OutputMessage):
            item = OutputMessage(
                id=new_id("msg_"),
                status="in_progress",
                content=[OutputText(text="", logprobs=[])],
            )
            events = self._open(item)
            self._item = item
        part = self._item.content[0]
        part.text += text
        part.logprobs += self._logprobs
        delta = self._part("output_text.delta", delta=text, logprobs=self._logprobs, **more)
        self._logprobs = []
        return [*events, delta]

    def _open(self, item: OutputMessage | OutputReasoning) -> list[ResponseEvent]:
        """Complete the open item, if there is one, and begin another."""
        events = self._close("completed")
        self._item = item
        part = self._open_part()
        lists = ("content", "summary") if isinstance(item, OutputReasoning) else ("content",)
        empty = item.model_copy(update={name: [] for name in lists})
        return [
            *events,
            self._event("output_item.added", output_index=len(self._output), item=empty),
            self._part(f"{self._container}_part.added", part=part.model_copy(deep=True)),
        ]

    def _open_part(self) -> OutputText | ReasoningText | SummaryText:
        """The only part of the open item."""
        item = self._item
        assert item is not None
        return (
            item.summary[0]
            if isinstance(item, OutputReasoning) and item.summary
            else item.content[0]
        )

    @property
    def _container(self) -> Literal["content", "reasoning_summary"]:
        """The list of the open item that has its part, as events name it."""
        return "reasoning_summary" if isinstance(self._open_part(), SummaryText) else "content"

    def _close(self, status: Literal["completed", "incomplete"]) -> list[ResponseEvent]:
        """Complete the open item, if there is one."""
        if self._open_call:
            return self._close_call(self._open_call, status)
        item = self._item
        if item is None:
            return []
        item.status = status
        part = self._open_part()
        fields: dict[str, Any] = {"text": part.text}
        if isinstance(part, OutputText):
            fields["logprobs"] = part.logprobs
        events = [
            self._part(f"{_event_name(part)}.done", **fields),
            self._part(f"{self._container}_part.done", part=part),
            self._event("output_item.done", output_index=len(self._output), item=item),
        ]
        self._output.append(item)
        self._item = None
        return events

    def _part(self, name: str, **fields: Any) -> ResponseEvent:
        assert self._item is not None
        return self._event(
            name,
            item_id=self._item.id,
            output_index=len(self._output),
            **{"summary_index" if self._container == "reasoning_summary" else "content_index": 0},
            **fields,
        )

    def _call(self, call: CallDelta) -> list[ResponseEvent]:
        events: list[ResponseEvent] = []
        if call.name:
            events = self._close("completed")
            self._open_call = OpenCall(self._tools[call.name])
            started = self._open_call.item.model_copy()
            events.append(
                self._event("output_item.added", output_index=len(self._output), item=started)
            )
        assert self._open_call is not None
        if text := self._open_call.push(call.arguments):
            events.append(self._call_event(self._open_call, "delta", delta=text))
        return [*events, *(self._close("completed") if call.complete else ())]

    def _call_event(self, call: OpenCall, name: str, /, **fields: str) -> ResponseEvent:
        return self._event(
            f"{call.event}.{name}",
            item_id=call.item.id,
            output_index=len(self._output),
            **fields,
        )

    def _close_call(
        self, call: OpenCall, status: Literal["completed", "incomplete"]
    ) -> list[ResponseEvent]:
        call.item.status = status
        events = [
            self._call_event(call, "done", **call.done),
            self._event("output_item.done", output_index=len(self._output), item=call.item),
        ]
        self._output.append(call.item)
        self._open_call = None
        return events

    @override
    def _end(self, _index: int, summary: AnswerSummary) -> list[ResponseEvent]:
        cut = summary.finish_reason in ("length", "timeout")
        status: Literal["completed", "incomplete"] = "incomplete" if cut else "completed"
        is_empty = not (self._output or self._item or self._open_call)
        events = self._text("") if is_empty else []
        events += self._close(status)
        complete = self._response.model_copy(
            update={
                "status": status,
                "incomplete_details": Incomplete(reason="max_output_tokens") if cut else None,
                "output": self._output,
                "usage": ResponseUsage(
                    input_tokens=summary.prompt_tokens,
                    input_tokens_details=CachedTokens(cached_tokens=summary.cached_tokens),
                    output_tokens=summary.completion_tokens,
                    output_tokens_details=ReasoningTokens(
                        reasoning_tokens=summary.reasoning_tokens
                    ),
                    total_tokens=summary.prompt_tokens + summary.completion_tokens,
                ),
                "timings": summary.timings,
            }
        )
        self._response = self._on_end(complete)
        end = self._event(status, response=self._response, timings=summary.timings)
        return [*events, end]


def _event_name(part: OutputText | ReasoningText | SummaryText) -> str:
    return "reasoning_summary_text" if isinstance(part, SummaryText) else part.type
