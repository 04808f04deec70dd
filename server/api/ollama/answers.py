"""The answers of /api/chat and /api/generate, line by line or as a whole."""

import time
from abc import abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, Field
from typing_extensions import override

from hearthd.server.api.answer_writer import AnswerWriter, new_id
from hearthd.server.api.conversations.call_arguments import AnswerCall, CallReader
from hearthd.server.api.ollama.error_bodies import stream_error
from hearthd.server.api.ollama.model_names import tagged
from hearthd.server.api.token_logprobs import ChosenLogprob, chosen_logprob
from hearthd.server.completions.choices import Choices
from hearthd.text.answer import AnswerSummary, Piece

_NANOSECONDS = 10**9
DoneReason = Literal["stop", "length", "load", "unload"]
DURATION = "in nanoseconds. Present at the end."


class OllamaAnswer(BaseModel):
    """A line of a stream, or the whole answer."""

    model: str = Field(description="Name of the model that answers.")
    created_at: str = Field(description="Time of the line, as RFC 3339 text.")
    done: bool = Field(description="Whether the answer is complete.")
    done_reason: DoneReason | None = Field(
        default=None,
        description="stop: the model ended the answer, or a stop string did, or it called tools. "
        "length: the answer reached num_predict or the end of the context. load, unload: the "
        "request had no prompt. Present at the end.",
    )
    total_duration: int = Field(default=0, description=f"Time of the request {DURATION}")
    load_duration: int = Field(default=0, description=f"Time until the model was loaded {DURATION}")
    prompt_eval_count: int = Field(
        default=0, description="Tokens of the prompt, cached ones included. Present at the end."
    )
    prompt_eval_duration: int = Field(default=0, description=f"Time to read the prompt {DURATION}")
    eval_count: int = Field(default=0, description="Tokens of the answer. Present at the end.")
    eval_duration: int = Field(default=0, description=f"Time to generate the answer {DURATION}")
    logprobs: list[ChosenLogprob] = Field(
        default=[], description="One entry per token. Present if the request has `logprobs`."
    )


class OllamaFunctionCall(BaseModel):
    """The function that the model calls."""

    index: int = Field(description="Position of the call in the answer, from 0.")
    name: str = Field(description="Name of the function.")
    arguments: dict[str, Any] = Field(description="The arguments.")


class OllamaToolCall(BaseModel):
    """A tool call by the model."""

    id: str = Field(description="Id of the call.")
    function: OllamaFunctionCall


class OllamaMessage(BaseModel):
    """A message from the model, or more of it."""

    role: Literal["assistant"]
    content: str = Field(description="The text.")
    thinking: str = Field(default="", description="The reasoning before the text, if there is one.")
    tool_calls: list[OllamaToolCall] = Field(default=[], description="The model's tool calls.")


class OllamaChatAnswer(OllamaAnswer):
    """A line of a stream, or the whole answer to a conversation."""

    message: OllamaMessage


class OllamaGenerateAnswer(OllamaAnswer):
    """A line of a stream, or the whole answer to a prompt."""

    response: str = Field(description="The text.")
    thinking: str = Field(default="", description="The reasoning before the text, if there is one.")
    context: list[int] = Field(
        default=[],
        description="The token ids of the prompt and the answer, for `context` of the next "
        "request. Present at the end, unless the request is `raw` or has images.",
    )


Line = TypeVar("Line", bound=OllamaAnswer)


class Clock:
    """When a request began, and when its model was loaded."""

    def __init__(self) -> None:
        self._start = time.monotonic_ns()
        self._loaded = self._start

    def loaded(self) -> None:
        """The model is loaded now."""
        self._loaded = time.monotonic_ns()

    def durations(self) -> dict[str, int]:
        """The durations of a request that ends now."""
        return {
            "total_duration": time.monotonic_ns() - self._start,
            "load_duration": self._loaded - self._start,
        }


def stamp(model: str) -> dict[str, Any]:
    """The fields of every line: the name of the model and the time."""
    return {"model": tagged(model), "created_at": rfc3339(datetime.now(UTC))}


def rfc3339(time_: datetime) -> str:
    """A time in UTC as text, in the form of Go."""
    return time_.isoformat().replace("+00:00", "Z")


class LineWriter(AnswerWriter[Line, Line], Generic[Line]):
    """Writes the lines of the only choice, and joins them to the whole answer."""

    def __init__(self, choices: Choices, *, model: str, clock: Clock) -> None:
        super().__init__(choices)
        self._model = model
        self._clock = clock
        self._lines: list[Line] = []
        self._calls = CallReader()

    @override
    def error(self, error: BaseException) -> str:
        return stream_error(error)

    @abstractmethod
    def _line(self, text: str, thinking: str, calls: Sequence[OllamaToolCall], **more: Any) -> Line:
        """A line with more text; `more` are fields of OllamaAnswer."""

    @override
    def _more(self, _index: int, piece: Piece) -> list[Line]:
        self._read(piece)
        calls = [_call(call) for delta in piece.calls for call in self._calls.read(delta)]
        more: dict[str, Any] = {}
        if piece.logprobs:
            more["logprobs"] = [chosen_logprob(token) for token in piece.logprobs]
        if not (piece.text or piece.reasoning or calls or more):
            return []
        return [self._line(piece.text, piece.reasoning, calls, done=False, **more)]

    def _read(self, piece: Piece) -> None:
        """Called for each piece."""

    @override
    def _end(self, _index: int, summary: AnswerSummary) -> list[Line]:
        ended_by_limit = summary.finish_reason in ("length", "timeout")
        return [
            self._line(
                "",
                "",
                [_call(call) for call in self._calls.end()],
                done=True,
                done_reason="length" if ended_by_limit else "stop",
                **self._clock.durations(),
                prompt_eval_count=summary.prompt_tokens,
                prompt_eval_duration=_nanoseconds(summary.timings.prefill_ms),
                eval_count=summary.completion_tokens,
                eval_duration=_nanoseconds(summary.timings.decode_ms),
                **self._last_fields(),
            )
        ]

    def _last_fields(self) -> dict[str, Any]:
        """Further fields of the last line."""
        return {}

    @override
    def _keep(self, event: Line) -> None:
        self._lines.append(event)

    @override
    def _answer(self) -> Line:
        last = self._lines[-1]
        logprobs = [token for line in self._lines for token in line.logprobs]
        more = {"logprobs": logprobs} if logprobs else {}
        return last.model_copy(update={**self._joined(self._lines), **more})

    @abstractmethod
    def _joined(self, lines: Sequence[Line]) -> dict[str, Any]:
        """The fields of the whole answer that its lines have parts of."""


class ChatLineWriter(LineWriter[OllamaChatAnswer]):
    """Writes the answer to a conversation."""

    @override
    def _line(
        self, text: str, thinking: str, calls: Sequence[OllamaToolCall], **more: Any
    ) -> OllamaChatAnswer:
        return OllamaChatAnswer(
            **stamp(self._model), message=_message(text, thinking, calls), **more
        )

    @override
    def _joined(self, lines: Sequence[OllamaChatAnswer]) -> dict[str, Any]:
        messages = [line.message for line in lines]
        return {
            "message": _message(
                "".join(message.content for message in messages),
                "".join(message.thinking for message in messages),
                [call for message in messages for call in message.tool_calls],
            )
        }


class GenerateLineWriter(LineWriter[OllamaGenerateAnswer]):
    """Writes the answer to a prompt; `prompt` are its token ids, None to send no context."""

    def __init__(
        self, choices: Choices, *, model: str, clock: Clock, prompt: Sequence[int] | None
    ) -> None:
        super().__init__(choices, model=model, clock=clock)
        self._context = None if prompt is None else [*prompt]

    @override
    def _read(self, piece: Piece) -> None:
        if self._context is not None:
            self._context += piece.token_ids

    @override
    def _line(
        self, text: str, thinking: str, calls: Sequence[OllamaToolCall], **more: Any
    ) -> OllamaGenerateAnswer:
        if thinking:
            more["thinking"] = thinking
        return OllamaGenerateAnswer(**stamp(self._model), response=text, **more)

    @override
    def _last_fields(self) -> dict[str, Any]:
        return {} if self._context is None else {"context": self._context}

    @override
    def _joined(self, lines: Sequence[OllamaGenerateAnswer]) -> dict[str, Any]:
        thinking = "".join(line.thinking for line in lines)
        joined = {"response": "".join(line.response for line in lines)}
        return {**joined, "thinking": thinking} if thinking else joined


def _call(call: AnswerCall) -> OllamaToolCall:
    function = OllamaFunctionCall(index=call.index, name=call.name, arguments=call.arguments)
    return OllamaToolCall(id=new_id("call_"), function=function)


def _message(text: str, thinking: str, calls: Sequence[OllamaToolCall]) -> OllamaMessage:
    more: dict[str, Any] = {}
    if thinking:
        more["thinking"] = thinking
    if calls:
        more["tool_calls"] = list(calls)
    return OllamaMessage(role="assistant", content=text, **more)


def _nanoseconds(milliseconds: float) -> int:
    return round(milliseconds * _NANOSECONDS / 1e3)
