"""The answers of Gemini's routes for conversations, whole and in a stream."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from pydantic import Field
from typing_extensions import override

from hearthd.server.api.answer_writer import AnswerWriter, new_id
from hearthd.server.api.conversations.call_arguments import AnswerCall, CallReader
from hearthd.server.api.gemini.error_bodies import stream_error
from hearthd.server.api.gemini.gemini_fields import GeminiAnswer
from hearthd.server.api.gemini.generation_config import GenerationConfig
from hearthd.server.completions.choices import Choices
from hearthd.text.answer import AnswerSummary, FinishReason, Piece, TokenCandidate, TokenLogprobs

GeminiFinishReason = Literal["STOP", "MAX_TOKENS"]


class AnsweredCall(GeminiAnswer):
    """A function call by the model."""

    id: str = Field(description="Id of the call. The response can repeat it.")
    name: str = Field(description="Name of the function.")
    args: dict[str, Any] = Field(
        description="The arguments. With finishReason MAX_TOKENS, the last ones may be missing."
    )


class AnsweredPart(GeminiAnswer):
    """A part of an answer: a text or a call."""

    text: str | None = Field(default=None, description="The text.")
    thought: bool = Field(
        default=False, description="Present if the text is the model's reasoning."
    )
    function_call: AnsweredCall | None = Field(default=None, description="The call.")


class AnsweredContent(GeminiAnswer):
    """The message of an answer."""

    role: Literal["model"] = "model"
    parts: list[AnsweredPart] = Field(description="The parts, in order.")


class GeminiToken(GeminiAnswer):
    """A token and its log-probability."""

    token: str = Field(description="The token's text.")
    token_id: int = Field(description="The token's id.")
    log_probability: float = Field(description="Natural logarithm of the token's probability.")


class GeminiTopTokens(GeminiAnswer):
    """The most likely tokens at a position."""

    candidates: list[GeminiToken] = Field(description="The tokens, best first.")


class GeminiLogprobs(GeminiAnswer):
    """Log-probabilities of the tokens of an answer."""

    chosen_candidates: list[GeminiToken] = Field(description="The tokens of the answer.")
    top_candidates: list[GeminiTopTokens] = Field(
        description="For each token of the answer, the most likely ones at its position."
    )


class GeminiCandidate(GeminiAnswer):
    """One answer, or more of it."""

    index: int = Field(description="Position of the answer, from 0.")
    content: AnsweredContent
    finish_reason: GeminiFinishReason | None = Field(
        default=None,
        description="STOP: the model ended the answer, or a stop sequence did. MAX_TOKENS: the "
        "answer reached maxOutputTokens or the end of the context. In a stream, absent until the "
        "end.",
    )
    avg_logprobs: float | None = Field(
        default=None,
        description="Mean log-probability of the tokens, with finishReason, if requested.",
    )
    logprobs_result: GeminiLogprobs | None = Field(
        default=None, description="Log-probabilities, if the request asks for them."
    )


class GeminiUsage(GeminiAnswer):
    """Token counts. The token with which the model ends an answer is not counted."""

    prompt_token_count: int = Field(description="Tokens of the prompt.")
    cached_content_token_count: int = Field(
        description="Tokens of the prompt that came from the prefix cache."
    )
    candidates_token_count: int = Field(description="Tokens of all answers without the reasoning.")
    thoughts_token_count: int = Field(description="Tokens of the reasoning.")
    total_token_count: int = Field(description="Tokens of the prompt, the answers and reasoning.")


class GenerateContentAnswer(GeminiAnswer):
    """The answers to a conversation, or an event of their stream."""

    candidates: list[GeminiCandidate] = Field(description="The answers, or more of one.")
    usage_metadata: GeminiUsage | None = Field(
        default=None, description="Token counts, in a stream in the last event."
    )
    model_version: str = Field(description="Name of the model that answers.")
    response_id: str = Field(description="A unique id of the answer.")


class ContentWriter(AnswerWriter[GenerateContentAnswer, GenerateContentAnswer]):
    """Writes the events of the answers to a conversation, and joins them to the whole answer."""

    data_only = True

    def __init__(self, choices: Choices, *, model: str, config: GenerationConfig) -> None:
        super().__init__(choices)
        self._identity: dict[str, Any] = {"model_version": model, "response_id": new_id("")}
        self._config = config
        self._calls = defaultdict[int, CallReader](CallReader)
        self._logprobs = defaultdict[int, list[float]](list)
        self._summaries: list[AnswerSummary] = []
        self._events: list[GenerateContentAnswer] = []

    @override
    def error(self, error: BaseException) -> str:
        return stream_error(error)

    @override
    def _more(self, index: int, piece: Piece) -> Iterable[GenerateContentAnswer]:
        parts = []
        if piece.reasoning and self._config.thinking_config.include_thoughts:
            parts.append(AnsweredPart(text=piece.reasoning, thought=True))
        if piece.text:
            parts.append(AnsweredPart(text=piece.text))
        parts += [_part(call) for delta in piece.calls for call in self._calls[index].read(delta)]
        more: dict[str, Any] = {}
        if piece.logprobs:
            more["logprobs_result"] = _logprobs(piece.logprobs)
            self._logprobs[index] += [token.chosen.logprob for token in piece.logprobs]
        if parts or more:
            yield self._event(index, parts, more)

    @override
    def _end(self, index: int, summary: AnswerSummary) -> Iterable[GenerateContentAnswer]:
        self._summaries.append(summary)
        more: dict[str, Any] = {"finish_reason": _reason(summary.finish_reason)}
        if logprobs := self._logprobs[index]:
            more["avg_logprobs"] = sum(logprobs) / len(logprobs)
        # Gemini CLI reads the counts from the event with the reason.
        is_last = len(self._summaries) == self._config.candidate_count
        usage = {"usage_metadata": _usage(self._summaries)} if is_last else {}
        parts = [_part(call) for call in self._calls[index].end()]
        yield self._event(index, parts, more, **usage)

    def _event(
        self, index: int, parts: Sequence[AnsweredPart], more: dict[str, Any], **fields: Any
    ) -> GenerateContentAnswer:
        """The event for more of an answer; `more` are fields of the candidate.

        Google's packages drop a turn from a chat if the content of an event is empty.
        """
        content = AnsweredContent(role="model", parts=list(parts) or [AnsweredPart(text="")])
        candidate = GeminiCandidate(index=index, content=content, **more)
        return GenerateContentAnswer(candidates=[candidate], **self._identity, **fields)

    @override
    def _keep(self, event: GenerateContentAnswer) -> None:
        self._events.append(event)

    @override
    def _answer(self) -> GenerateContentAnswer:
        candidates = defaultdict[int, list[GeminiCandidate]](list)
        for event in self._events:
            for candidate in event.candidates:
                candidates[candidate.index].append(candidate)
        joined = [_joined(pieces) for _, pieces in sorted(candidates.items())]
        return self._events[-1].model_copy(update={"candidates": joined})


def _part(call: AnswerCall) -> AnsweredPart:
    return AnsweredPart(
        function_call=AnsweredCall(id=new_id("call_"), name=call.name, args=call.arguments)
    )


def _reason(reason: FinishReason) -> GeminiFinishReason:
    return "MAX_TOKENS" if reason in ("length", "timeout") else "STOP"


def _usage(summaries: Sequence[AnswerSummary]) -> GeminiUsage:
    """The usage of a request. A prompt counts once, however many answers it has."""
    prompt = summaries[0]
    thoughts = sum(summary.reasoning_tokens for summary in summaries)
    answers = sum(summary.completion_tokens for summary in summaries)
    return GeminiUsage(
        prompt_token_count=prompt.prompt_tokens,
        cached_content_token_count=prompt.cached_tokens,
        candidates_token_count=answers - thoughts,
        thoughts_token_count=thoughts,
        total_token_count=prompt.prompt_tokens + answers,
    )


def _logprobs(tokens: Sequence[TokenLogprobs]) -> GeminiLogprobs:
    return GeminiLogprobs(
        chosen_candidates=[_token(token.chosen) for token in tokens],
        top_candidates=[
            GeminiTopTokens(candidates=[_token(top) for top in token.top]) for token in tokens
        ],
    )


def _token(token: TokenCandidate) -> GeminiToken:
    return GeminiToken(token=token.text, token_id=token.id, log_probability=token.logprob)


def _joined(pieces: Sequence[GeminiCandidate]) -> GeminiCandidate:
    """One answer from the events for it. Texts in a row are one part."""
    parts: list[AnsweredPart] = []
    for part in (part for piece in pieces for part in piece.content.parts if part.text != ""):
        last = parts[-1] if parts else None
        if last and None not in (part.text, last.text) and part.thought == last.thought:
            text = f"{last.text}{part.text}"
            parts[-1] = last.model_copy(update={"text": text})
        else:
            parts.append(part)
    content = AnsweredContent(role="model", parts=parts or [AnsweredPart(text="")])
    joined: dict[str, Any] = {"content": content}
    if logprobs := [piece.logprobs_result for piece in pieces if piece.logprobs_result]:
        joined["logprobs_result"] = GeminiLogprobs(
            chosen_candidates=[token for each in logprobs for token in each.chosen_candidates],
            top_candidates=[tokens for each in logprobs for tokens in each.top_candidates],
        )
    return pieces[-1].model_copy(update=joined)
