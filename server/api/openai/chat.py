"""POST /v1/chat/completions: OpenAI's surface for conversations, with tools."""

from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from server.api.current_service import CurrentLanguageService
from server.api.disconnect import unless_disconnected
from server.api.http_errors import ERRORS
from server.api.openai.messages import ChatMessage, FunctionTool
from server.api.openai.shared_fields import (
    ChosenLogprob,
    FinishWord,
    OpenAIFields,
    OpenAIUsage,
    StreamOptions,
    chosen_logprob,
    finish_reason,
    head,
    new_id,
    usage,
)
from server.api.openai.turn import Turn, begin
from server.api.sse import CompletionStream, streams
from server.errors import InvalidRequest
from server.text.answer import Piece, Summary
from server.text.choices import Choices

router = APIRouter(responses=ERRORS, tags=["OpenAI"])


class ChatBody(OpenAIFields):
    """A conversation to continue, and how. Sampling has llama-server's names and defaults."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 32}
            ]
        }
    )

    messages: list[ChatMessage] = Field(min_length=1)
    max_completion_tokens: int | None = Field(
        None, ge=1, description="The most tokens of each answer; else the context ends it."
    )
    max_tokens: int | None = Field(None, ge=1, description="The older name of the same.")
    n: int = Field(1, ge=1, le=16, description="So many answers, by seeds in a row.")
    logprobs: bool = Field(False, description="Report each token's log-probability.")
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = Field(
        None, description="And those of so many alternatives; only with `logprobs`."
    )
    stream_options: StreamOptions | None = Field(None, description="Only with `stream`.")
    tools: list[FunctionTool] = Field(
        default_factory=list, description="Functions that the model may call."
    )
    tool_choice: Literal["auto", "none"] = Field(
        "auto", description="With none, the model is not told of the tools."
    )
    parallel_tool_calls: bool = Field(True, description="Whether an answer may have many calls.")


class FunctionCall(BaseModel):
    """A call that the model asks for; `arguments` is the text of a JSON object."""

    name: str
    arguments: str


class ToolCall(BaseModel):
    """A call with an id for its answer; `index` is its place, in streams only."""

    index: int = 0
    id: str
    type: Literal["function"]
    function: FunctionCall


class Logprobs(BaseModel):
    """One entry per token."""

    content: list[ChosenLogprob]


class ChatDelta(BaseModel):
    """More of an answer."""

    role: Literal["assistant"] = "assistant"
    content: str | None = None
    tool_calls: list[ToolCall] = []


class ChatMessageAnswer(BaseModel):
    """A whole answer."""

    role: Literal["assistant"]
    content: str | None
    tool_calls: list[ToolCall] = []


class ChunkChoice(BaseModel):
    """More of one choice."""

    index: int
    delta: ChatDelta
    logprobs: Logprobs | None
    finish_reason: FinishWord | None


class Choice(BaseModel):
    """One answer."""

    index: int
    message: ChatMessageAnswer
    logprobs: Logprobs | None
    finish_reason: FinishWord


class ChatChunk(BaseModel):
    """An event of a stream."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChunkChoice]
    usage: OpenAIUsage | None = None


class ChatAnswer(BaseModel):
    """The answers."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[Choice]
    usage: OpenAIUsage


@router.post(
    "/v1/chat/completions",
    response_model=ChatAnswer,
    response_model_exclude_unset=True,
    responses=streams(ChatChunk),
)
async def chat_completions(
    body: ChatBody, service: CurrentLanguageService, request: Request
) -> ChatAnswer | CompletionStream:
    """Answer in a conversation.

    With `stream`, the events are chunks whose deltas join to the answer, until `data: [DONE]`.
    """
    _check(body)
    turn = Turn(
        messages=body.messages,
        tools=[] if body.tool_choice == "none" else body.tools,
        one_call=not body.parallel_tool_calls,
    )
    choices = await begin(
        service,
        body,
        turn,
        max_tokens=body.max_completion_tokens or body.max_tokens,
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        choices=body.n,
    )
    parts = _parts(body, choices)
    if body.stream:
        first = head(service, "chatcmpl-", "chat.completion.chunk")
        return CompletionStream(choices, _events(body, first, parts), done=True)
    with choices:
        first = head(service, "chatcmpl-", "chat.completion")
        return await unless_disconnected(request, _whole(first, parts))


def _check(body: ChatBody) -> None:
    if body.max_tokens and body.max_completion_tokens not in (None, body.max_tokens):
        raise InvalidRequest(
            field="max_tokens", got=body.max_tokens, wanted="the same as max_completion_tokens"
        )
    if body.top_logprobs is not None and not body.logprobs:
        raise InvalidRequest(
            field="top_logprobs", got=body.top_logprobs, wanted="null without logprobs"
        )
    if body.stream_options and not body.stream:
        raise InvalidRequest(field="stream_options", got="an object", wanted="null without stream")


async def _parts(body: ChatBody, choices: Choices) -> AsyncIterator[ChunkChoice | OpenAIUsage]:
    """More of one choice or another, and the usage at the end."""
    summaries: dict[int, Summary] = {}
    calls: Counter[int] = Counter()
    for index in range(body.n):
        delta = ChatDelta(role="assistant", content=None)
        yield ChunkChoice(index=index, delta=delta, logprobs=None, finish_reason=None)
    async for index, piece in choices.pieces():
        if isinstance(piece, Summary):
            summaries[index] = piece
            reason = finish_reason(piece.finish_reason)
            yield ChunkChoice(index=index, delta=ChatDelta(), logprobs=None, finish_reason=reason)
        elif piece.text or piece.logprobs or piece.calls:
            yield ChunkChoice(
                index=index,
                delta=_delta(piece, calls[index]),
                logprobs=_logprobs(piece) if body.logprobs else None,
                finish_reason=None,
            )
            calls[index] += len(piece.calls)
    yield usage([summary for _, summary in sorted(summaries.items())], choices=body.n)


def _delta(piece: Piece, first_call: int) -> ChatDelta:
    more: dict[str, Any] = {}
    if piece.text or not piece.calls:
        more["content"] = piece.text
    if piece.calls:
        more["tool_calls"] = [
            ToolCall(
                index=index,
                id=new_id("call_"),
                type="function",
                function=FunctionCall(name=call.name, arguments=call.arguments),
            )
            for index, call in enumerate(piece.calls, first_call)
        ]
    return ChatDelta(**more)


def _logprobs(piece: Piece) -> Logprobs:
    return Logprobs(content=[chosen_logprob(token) for token in piece.logprobs])


async def _events(
    body: ChatBody, first: dict[str, Any], parts: AsyncIterator[ChunkChoice | OpenAIUsage]
) -> AsyncIterator[ChatChunk]:
    with_usage = body.stream_options is not None and body.stream_options.include_usage
    usages: dict[str, Any] = {"usage": None} if with_usage else {}
    async for part in parts:
        if isinstance(part, ChunkChoice):
            yield ChatChunk(**first, choices=[part], **usages)
        elif with_usage:
            yield ChatChunk(**first, choices=[], usage=part)


async def _whole(
    first: dict[str, Any], parts: AsyncIterator[ChunkChoice | OpenAIUsage]
) -> ChatAnswer:
    gathered: dict[int, list[ChunkChoice]] = defaultdict(list)
    async for part in parts:
        if isinstance(part, OpenAIUsage):
            choices = [_joined(gathered[index]) for index in sorted(gathered)]
            return ChatAnswer(**first, choices=choices, usage=part)
        gathered[part.index].append(part)
    raise AssertionError("the parts ended without a usage")


def _joined(parts: list[ChunkChoice]) -> Choice:
    content = "".join(part.delta.content or "" for part in parts)
    calls = [
        ToolCall(id=call.id, type="function", function=call.function)
        for part in parts
        for call in part.delta.tool_calls
    ]
    logprobs = [part.logprobs for part in parts if part.logprobs]
    last = parts[-1].finish_reason
    assert last is not None
    return Choice(
        index=parts[0].index,
        message=ChatMessageAnswer(
            role="assistant",
            content=content if content or not calls else None,
            **({"tool_calls": calls} if calls else {}),
        ),
        logprobs=Logprobs(content=[one for found in logprobs for one in found.content])
        if logprobs
        else None,
        finish_reason=last,
    )
