"""Answers in llama-server's form: the events of a stream, and the whole answer."""

import math
from collections.abc import Iterable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import override

from hearthd.server.api.answer_writer import AnswerWriter
from hearthd.server.api.usage import reports
from hearthd.server.completions.choices import Choices
from hearthd.text.answer import (
    AnswerSummary,
    Piece,
    PromptProgress,
    Timings,
    TokenCandidate,
    TokenLogprobs,
)

_ABSENT = object()


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


class SelectedFields(BaseModel):
    """The fields that `response_fields` selects."""

    model_config = ConfigDict(extra="allow")


Answer = CompletionAnswer | SelectedFields


class CompletionWriter(AnswerWriter[CompletionEvent, Answer | list[Answer]]):
    """Writes the events of the answers to all prompts; a CompletionAnswer ends each.

    `settings` and `prompts` are what the last event of each answer returns. An answer is truncated
    when it ends with fewer than `n_predict` tokens at a limit. n_predict 0 gives empty answers.
    Whole answers have the fields at the paths `selected`, or all.
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
        selected: list[str],
    ) -> None:
        super().__init__(choices)
        self._model = model
        self._prompts = prompts
        self._settings = settings
        self._n_predict = n_predict
        self._after_sampling = after_sampling
        self._with_tokens = with_tokens
        self._selected = selected
        self._counts = [0] * len(prompts)
        self._has_new_line = [False] * len(prompts)
        self._kept: list[list[CompletionEvent]] = [[] for _ in prompts]

    @override
    def _more(self, index: int, piece: Piece) -> Iterable[CompletionEvent]:
        if self._n_predict != 0 or piece.progress:
            self._counts[index] += len(piece.token_ids)
            self._has_new_line[index] |= "\n" in piece.text
            yield CompletionEvent(**self._fields(index, piece))

    @override
    def _keep(self, event: CompletionEvent) -> None:
        self._kept[event.index].append(event)

    @override
    def _answer(self) -> Answer | list[Answer]:
        answers = [_select(self._joined(events), self._selected) for events in self._kept]
        return answers[0] if len(answers) == 1 else answers

    def _joined(self, kept: list[CompletionEvent]) -> CompletionAnswer:
        *events, answer = kept
        assert isinstance(answer, CompletionAnswer), "the last event is the end of the answer"
        answer.content = "".join(event.content for event in events)
        if self._with_tokens:
            answer.tokens = [token for event in events for token in event.tokens]
        if probabilities := [p for event in events for p in event.completion_probabilities]:
            answer.completion_probabilities = probabilities
        return answer

    def _fields(self, index: int, piece: Piece) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "index": index,
            "content": piece.text,
            "tokens": list(piece.token_ids),
            "stop": False,
            "id_slot": -1,
            "tokens_predicted": self._counts[index],
            "tokens_evaluated": self.choices.prompt_tokens[index],
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

    @override
    def _end(self, index: int, summary: AnswerSummary) -> Iterable[CompletionEvent]:
        predicted = summary.completion_tokens if self._n_predict else 0
        stop_type: Literal["eos", "word", "limit"] = "limit"
        if summary.finish_reason == "stop" and self._n_predict:
            stop_type = "word" if summary.stop_string else "eos"
        yield CompletionAnswer(
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
            has_new_line=self._has_new_line[index],
            truncated=summary.finish_reason == "length" and predicted != self._n_predict,
            stop_type=stop_type,
            stopping_word=summary.stop_string,
            tokens_cached=summary.prompt_tokens + predicted,
            timings=summary.timings,
        )


def _select(answer: CompletionAnswer, paths: list[str]) -> Answer:
    """The fields at the paths, each named by its path; without paths the whole answer."""
    if not paths:
        return answer
    fields = answer.model_dump(mode="json", exclude_unset=True)
    selected: dict[str, Any] = {}
    for path in paths:
        value: Any = fields
        for name in path.split("/"):
            value = value.get(name, _ABSENT) if isinstance(value, dict) else _ABSENT
        if value is not _ABSENT:
            selected[path] = value
    return SelectedFields(**selected)
