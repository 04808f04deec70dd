"""Answers in llama-server's form: the events of a stream, and the whole answer."""

import math
from collections.abc import AsyncIterator
from typing import Any, Literal

from pydantic import BaseModel, Field

from hearthd.server.api.usage import reports
from hearthd.server.text.answer import (
    AnswerSummary,
    Piece,
    PromptProgress,
    Timings,
    TokenCandidate,
    TokenLogprobs,
)
from hearthd.server.text.choices import Choices


class TokenProbability(BaseModel):
    """A token with its log-probability, or with `post_sampling_probs` its probability."""

    id: int = Field(description="The token id.")
    token: str = Field(description="The token's text.")
    bytes: list[int] = Field(description="The token's UTF-8 bytes.")
    logprob: float = Field(default=0, description="Natural logarithm of the probability.")
    prob: float = Field(default=0, description="The probability after the samplers.")


class ChosenProbability(TokenProbability):
    """A token of the answer, and the most likely tokens at its position, best first."""

    top_logprobs: list[TokenProbability] = Field(default=[], description="With `logprob`.")
    top_probs: list[TokenProbability] = Field(default=[], description="With `prob`.")


class CompletionEvent(BaseModel):
    """More of an answer. The last event of a stream is a CompletionAnswer without content."""

    index: int = Field(description="Position of the prompt, from 0.")
    content: str = Field(description="More text of the answer.")
    tokens: list[int] = Field(description="The ids of the answer's tokens.")
    stop: bool = Field(description="Whether the answer is complete.")
    id_slot: Literal[-1] = Field(default=-1, description="Always -1: slots are interchangeable.")
    tokens_predicted: int = Field(description="Tokens of the answer so far.")
    tokens_evaluated: int = Field(description="Tokens of the prompt.")
    completion_probabilities: list[ChosenProbability] = Field(
        default=[], description="One entry per token; present if the request has `n_probs`."
    )
    timings: Timings | None = Field(
        default=None, description="At the end, or with `timings_per_token`."
    )
    prompt_progress: PromptProgress | None = Field(
        default=None, description="Before the answer, with `return_progress`."
    )


class CompletionAnswer(CompletionEvent):
    """A complete answer."""

    model: str = Field(description="Name of the model.")
    prompt: str = Field(description="The text of the prompt's tokens.")
    generation_settings: dict[str, Any] = Field(description="The settings of the request.")
    has_new_line: bool = Field(description="Whether the answer contains a line break.")
    truncated: bool = Field(description="Whether the answer ended at the end of the context.")
    stop_type: Literal["eos", "word", "limit"] = Field(
        description="eos: the model ended the answer. word: a stop string did. limit: `n_predict`, "
        "the end of the context or `timeout_ms`."
    )
    stopping_word: str = Field(description='The stop string that ended the answer, or "".')
    tokens_cached: int = Field(description="Tokens of prompt and answer.")


class AnswerWriter:
    """Turn the pieces of the answers to one request into events.

    `settings` and `prompts` are what the last event of each answer returns. An answer is truncated
    when it ends with fewer than `n_predict` tokens at a limit. n_predict 0 gives empty answers.
    """

    def __init__(
        self,
        choices: Choices,
        *,
        model: str,
        prompts: list[str],
        settings: dict[str, Any],
        n_predict: int,
        after_sampling: bool,
        with_tokens: bool,
    ) -> None:
        self._choices = choices
        self._model = model
        self._prompts = prompts
        self._settings = settings
        self._n_predict = n_predict
        self._after_sampling = after_sampling
        self._with_tokens = with_tokens

    async def events(self) -> AsyncIterator[CompletionEvent]:
        """The events of all answers as they arrive; a CompletionAnswer ends each."""
        counts = [0] * len(self._prompts)
        texts = [""] * len(self._prompts)
        async for index, piece in self._choices.pieces():
            if isinstance(piece, AnswerSummary):
                yield self._end(index, piece, texts[index])
            elif self._n_predict != 0 or piece.progress:
                counts[index] += len(piece.token_ids)
                texts[index] += piece.text
                yield CompletionEvent(**self._fields(index, piece, counts[index]))

    async def whole(self) -> list[CompletionAnswer]:
        """The answers to all prompts, in order."""
        answers: dict[int, CompletionAnswer] = {}
        parts: dict[int, list[CompletionEvent]] = {at: [] for at in range(len(self._prompts))}
        async for event in self.events():
            if isinstance(event, CompletionAnswer):
                answers[event.index] = event
            else:
                parts[event.index].append(event)
        for index, answer in answers.items():
            answer.content = "".join(part.content for part in parts[index])
            if self._with_tokens:
                answer.tokens = [token for part in parts[index] for token in part.tokens]
            probabilities = [p for part in parts[index] for p in part.completion_probabilities]
            if probabilities:
                answer.completion_probabilities = probabilities
        return [answers[index] for index in sorted(answers)]

    def _fields(self, index: int, piece: Piece, count: int) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "index": index,
            "content": piece.text,
            "tokens": list(piece.token_ids),
            "stop": False,
            "id_slot": -1,
            "tokens_predicted": count,
            "tokens_evaluated": self._choices.prompt_tokens[index],
            **reports(piece),
        }
        if piece.logprobs:
            fields["completion_probabilities"] = [self._chosen(token) for token in piece.logprobs]
        return fields

    def _chosen(self, token: TokenLogprobs) -> ChosenProbability:
        name = "top_probs" if self._after_sampling else "top_logprobs"
        top = [TokenProbability(**self._candidate(other)) for other in token.top]
        fields: dict[str, Any] = {**self._candidate(token.chosen), name: top}
        return ChosenProbability(**fields)

    def _candidate(self, candidate: TokenCandidate) -> dict[str, Any]:
        value = (
            {"prob": math.exp(candidate.logprob)}
            if self._after_sampling
            else {"logprob": candidate.logprob}
        )
        named = {"id": candidate.id, "token": candidate.text, "bytes": list(candidate.bytes)}
        return {**named, **value}

    def _end(self, index: int, summary: AnswerSummary, text: str) -> CompletionAnswer:
        predicted = summary.completion_tokens if self._n_predict else 0
        stop_type: Literal["eos", "word", "limit"] = "limit"
        if summary.finish_reason == "stop" and self._n_predict:
            stop_type = "word" if summary.stop_string else "eos"
        return CompletionAnswer(
            index=index,
            content="",
            tokens=[],
            stop=True,
            id_slot=-1,
            model=self._model,
            tokens_predicted=predicted,
            tokens_evaluated=summary.prompt_tokens,
            generation_settings={**self._settings, "seed": summary.seed},
            prompt=self._prompts[index],
            has_new_line="\n" in text,
            truncated=summary.finish_reason == "length" and predicted != self._n_predict,
            stop_type=stop_type,
            stopping_word=summary.stop_string,
            tokens_cached=summary.prompt_tokens + predicted,
            timings=summary.timings,
        )
