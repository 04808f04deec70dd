"""POST /v1/chat/completions: OpenAI's route for conversations, with tools."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import override

from hearthd.server.api.conversations.turn import begin, rendered
from hearthd.server.api.conversations.turn_fields import EFFORT, Effort, TurnFields
from hearthd.server.api.current_service import language_service
from hearthd.server.api.fields import MaxTokens
from hearthd.server.api.generation_fields import RandomSeed
from hearthd.server.api.http_errors import ERRORS
from hearthd.server.api.json_body import JsonRoute
from hearthd.server.api.openai.chat_calls import (
    CallDeltas,
    ChatCallDelta,
    ChatCustomToolCall,
    ChatToolCall,
    ChatTools,
    custom_names,
    joined_calls,
)
from hearthd.server.api.openai.chat_messages import ChatMessage, messages
from hearthd.server.api.openai.choice_writer import ChoicesEvent, ChoiceWriter
from hearthd.server.api.openai.shared_fields import (
    FINISH_REASONS,
    FinishWord,
    Identity,
    OpenAIUsage,
    StreamOptions,
    identity,
)
from hearthd.server.api.openai.tool_fields import MODES, ChatToolChoice, tool_choice
from hearthd.server.api.openapi import streams
from hearthd.server.api.sse import CompletionStream, respond
from hearthd.server.api.surface import surface
from hearthd.server.api.token_logprobs import ChosenLogprob, chosen_logprob
from hearthd.server.completions.choices import Choices
from hearthd.text.answer import Piece
from hearthd.text.conversation import Conversation
from hearthd.text.errors import InvalidRequest

router = surface("OpenAI", ERRORS, JsonRoute)


class ChatRequest(RandomSeed, TurnFields):
    """A conversation to continue. Sampling fields have llama-server's names and defaults."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 32}
            ]
        }
    )

    messages: list[ChatMessage] = Field(
        min_length=1, description="The conversation so far, oldest message first."
    )
    max_completion_tokens: MaxTokens = Field(
        None,
        description="Maximum number of tokens of each answer. By default, and with -1, the rest of "
        "the context.",
    )
    max_tokens: MaxTokens = Field(None, description="The older name of max_completion_tokens.")
    n: int = Field(1, ge=1, le=16, description="Number of answers. Their seeds are consecutive.")
    logprobs: bool = Field(False, description="Report the log-probability of each token.")
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = Field(
        None,
        description="With `logprobs`: number of alternatives to report for each token. 0 by "
        "default.",
    )
    stream_options: StreamOptions | None = Field(
        None, description="With `stream`: options of the stream."
    )
    tools: ChatTools = Field(
        default_factory=list,
        description="Functions and custom tools that the model may call. Tools of other types are "
        "ignored.",
    )
    tool_choice: ChatToolChoice = Field(
        "auto",
        description=f"{MODES} any: another name of required. Or the tool to call, or the allowed "
        "tools.",
    )
    parallel_tool_calls: bool = Field(
        True, description="Allow several calls in one answer. If false, an answer has at most one."
    )
    reasoning_effort: Effort | None = Field(None, description=EFFORT)
    verbose: bool = Field(
        False, description="Return the prompt in `__verbose`, unless the answer is a stream."
    )

    @property
    @override
    def effort(self) -> Effort | None:
        return self.reasoning_effort

    def conversation(self) -> Conversation:
        """The conversation and its tools; raises InvalidRequest."""
        tools = [tool.tool(f"tools[{index}]") for index, tool in enumerate(self.tools) if tool]
        choice = tool_choice(self.tool_choice, tools, parallel=self.parallel_tool_calls)
        return Conversation(messages=messages(self.messages), tools=tools, choice=choice)


class ChatLogprobs(BaseModel):
    """Log-probabilities of an answer."""

    content: list[ChosenLogprob] = Field(description="One entry per token.")


class ChatDelta(BaseModel):
    """More of an answer."""

    role: Literal["assistant"] = "assistant"
    content: str | None = Field(default=None, description="More text.")
    reasoning_content: str | None = Field(default=None, description="More reasoning.")
    tool_calls: list[ChatCallDelta] = Field(
        default=[], description="More of the tool calls, as the model writes them."
    )


class ChatAnswerMessage(BaseModel):
    """A complete answer."""

    role: Literal["assistant"]
    content: str | None = Field(description="The text. null if the answer is tool calls only.")
    reasoning_content: str | None = Field(
        default=None, description="The reasoning before the text, if there is one."
    )
    tool_calls: list[ChatToolCall | ChatCustomToolCall] = Field(
        default=[], description="The model's tool calls."
    )


class ChatChunkChoice(BaseModel):
    """More of one choice."""

    index: int = Field(description="Position of the choice, from 0.")
    delta: ChatDelta
    logprobs: ChatLogprobs | None = Field(description="null if the request has no `logprobs`.")
    finish_reason: FinishWord | None = Field(description=f"null until the end. {FINISH_REASONS}")


class ChatChoice(BaseModel):
    """One answer."""

    index: int = Field(description="Position of the choice, from 0.")
    message: ChatAnswerMessage
    logprobs: ChatLogprobs | None = Field(description="null if the request has no `logprobs`.")
    finish_reason: FinishWord = Field(description=FINISH_REASONS)


class ChatChunk(ChoicesEvent):
    """An event of a stream."""

    object: Literal["chat.completion.chunk"]
    choices: list[ChatChunkChoice] = Field(description="More of one choice; empty with `usage`.")
    usage: OpenAIUsage | None = Field(
        default=None, description="Token counts, in the last event only."
    )


class Verbose(BaseModel):
    """The prompt that the model read."""

    prompt: str = Field(description="The prompt, as the chat template renders it.")


class ChatResponse(Identity):
    """The answers to a conversation."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice] = Field(description="`n` answers.")
    usage: OpenAIUsage
    verbose: Verbose | None = Field(
        default=None, alias="__verbose", description="Present if the request has `verbose`."
    )


@router.post(
    "/v1/chat/completions",
    summary="Answer a conversation",
    response_model=ChatResponse,
    response_model_exclude_unset=True,
    responses=streams(ChatChunk),
)
async def chat_completions(body: ChatRequest, request: Request) -> ChatResponse | CompletionStream:
    """Generate the next message of a conversation.

    With `stream`, the answer is a stream of server-sent events, each a ChatChunk, that ends with
    `data: [DONE]`. The joined deltas of a choice are its message.
    """
    service = await language_service(request, body)
    _check(body)
    conversation = body.conversation()
    prompt = await rendered(request, service, body, conversation)
    choices = await begin(
        service,
        body,
        conversation,
        prompt,
        max_tokens=body.max_completion_tokens or body.max_tokens,
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        choices=body.n,
    )
    writer = ChatWriter(
        choices,
        identity(service, "chatcmpl-"),
        n=body.n,
        options=body.stream_options,
        with_logprobs=body.logprobs,
        custom=custom_names(body.tools),
        verbose={"__verbose": Verbose(prompt=prompt.text)} if body.verbose else {},
    )
    return await respond(writer, request, stream=body.stream)


def _check(body: ChatRequest) -> None:
    if body.max_tokens and body.max_completion_tokens not in (None, body.max_tokens):
        raise InvalidRequest(
            field="max_tokens", got=body.max_tokens, expected="the value of max_completion_tokens"
        )
    if body.top_logprobs and not body.logprobs:
        raise InvalidRequest(
            field="top_logprobs", got=body.top_logprobs, expected="null or 0 without logprobs"
        )
    if body.stream_options and not body.stream:
        raise InvalidRequest(
            field="stream_options", got="an object", expected="null without stream"
        )


class ChatWriter(ChoiceWriter[ChatChunkChoice, ChatChunk, ChatResponse]):
    """Writes the events of the choices.

    custom   names of the custom tools
    verbose  more fields of the whole answer
    """

    def __init__(
        self,
        choices: Choices,
        identity: dict[str, Any],
        *,
        n: int = 1,
        options: StreamOptions | None = None,
        with_logprobs: bool = False,
        custom: frozenset[str] = frozenset(),
        verbose: Mapping[str, Any] = {},
    ) -> None:
        super().__init__(
            choices,
            ChatChunk,
            {**identity, "object": "chat.completion.chunk"},
            n=n,
            options=options,
        )
        self._with_logprobs = with_logprobs
        self._calls = defaultdict[int, CallDeltas](lambda: CallDeltas(custom))
        self._verbose = verbose

    @override
    def _begin(self) -> Iterable[ChatChunk]:
        for index in range(self._n):
            yield self._chunk(_choice(index, ChatDelta(role="assistant", content=None)))

    @override
    def _more(self, index: int, piece: Piece) -> Iterable[ChatChunk]:
        if piece.text or piece.logprobs or piece.calls or piece.reasoning or piece.progress:
            calls = [self._calls[index].delta(call) for call in piece.calls]
            more = _choice(index, _delta(piece, calls))
            if self._with_logprobs:
                more.logprobs = _logprobs(piece)
            yield self._chunk(more, piece)

    @override
    def _last(self, index: int, reason: FinishWord) -> ChatChunkChoice:
        return _choice(index, ChatDelta(), reason)

    @override
    def _answer(self) -> ChatResponse:
        return ChatResponse(
            **{**self._identity, "object": "chat.completion"},
            choices=[_joined(deltas) for deltas in self._kept()],
            **self._totals(),
            **self._verbose,
        )


def _choice(index: int, delta: ChatDelta, reason: FinishWord | None = None) -> ChatChunkChoice:
    return ChatChunkChoice(index=index, delta=delta, logprobs=None, finish_reason=reason)


def _delta(piece: Piece, calls: list[ChatCallDelta]) -> ChatDelta:
    more: dict[str, Any] = {}
    if piece.reasoning:
        more["reasoning_content"] = piece.reasoning
    if piece.text or not (piece.calls or piece.reasoning):
        more["content"] = piece.text
    if calls:
        more["tool_calls"] = calls
    return ChatDelta(**more)


def _logprobs(piece: Piece) -> ChatLogprobs:
    return ChatLogprobs(content=[chosen_logprob(token) for token in piece.logprobs])


def _joined(parts: list[ChatChunkChoice]) -> ChatChoice:
    content = "".join(part.delta.content or "" for part in parts)
    calls = joined_calls(call for part in parts for call in part.delta.tool_calls)
    more: dict[str, Any] = {"tool_calls": calls} if calls else {}
    if reasoning := "".join(part.delta.reasoning_content or "" for part in parts):
        more["reasoning_content"] = reasoning
    logprobs = [part.logprobs for part in parts if part.logprobs]
    last = parts[-1].finish_reason
    assert last is not None
    return ChatChoice(
        index=parts[0].index,
        message=ChatAnswerMessage(
            role="assistant",
            content=content if content or not calls else None,
            **more,
        ),
        logprobs=ChatLogprobs(content=[token for part in logprobs for token in part.content])
        if logprobs
        else None,
        finish_reason=last,
    )
