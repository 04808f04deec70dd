"""One accepted completion: the engine's tokens as pieces of text, to a stop string or the end.

The engine handles no text, so this layer finds stop strings and cancels the generation there.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from hearthd.server.engine.generation import (
    Event,
    Failed,
    Finished,
    Generation,
    Prefilled,
    Started,
    Token,
)
from hearthd.server.errors import Draining, GenerationFailed, RulesFailed
from hearthd.text.answer import (
    AnswerSummary,
    Ended,
    Piece,
    PromptProgress,
    Timings,
    TokenCandidate,
    TokenLogprobs,
)
from hearthd.text.detokenize import Detokenizer, StopFilter, guarded, unguarded
from hearthd.text.reasoning import ReasoningFilter
from hearthd.text.tool_calls.call_filter import CallFilter, Passed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from types import TracebackType

    from hearthd.text.answer import FinishReason
    from hearthd.text.text_request import TextRequest
    from hearthd.text.tokenizer import Tokenizer


class Completion:
    """One accepted completion. Leaving its `with` block cancels the generation.

    `dropped_tokens` of the request's prompt are not in `prompt`; `context` positions take both the
    prompt and the answer.
    """

    def __init__(
        self,
        generation: Generation,
        tokenizer: Tokenizer,
        request: TextRequest,
        *,
        prompt: tuple[int, ...],
        dropped_tokens: int = 0,
        context: int,
        seed: int,
        on_end: Callable[[Ended], None],
    ) -> None:
        self._generation = generation
        self._tokenizer = tokenizer
        use = request.tools
        calls = use.read_as(any_text=request.grammar is None) if use else None
        tags = request.reasoning.tags if request.reasoning else None
        shown = (*(calls.special if calls else ()), *(tags.special if tags else ()))
        messages = bool(tags and tags.opening)
        guards = messages and all(tokenizer.special_id(name) is not None for name in shown)
        self._detokenizer = Detokenizer(tokenizer, shown=shown, guards=guards)
        self._reasoning = ReasoningFilter(request.reasoning)
        self._reasoning_tokens = 0
        stops = (*request.stop, *(calls.stop if calls else ()))
        self._filter = StopFilter((*stops, *map(guarded, stops)) if guards else stops)
        self._request = request
        self._reported = False  # whether a progress was sent
        self._calls = CallFilter(
            calls,
            {tool.name: tool.schema for tool in use.tools} if use else {},
            has_response=use is not None and not use.required and request.grammar is None,
            only_calls=use is not None and use.required,
            opened=self._reasoning.omitted,
        )
        self._one_call = use is not None and not use.parallel
        self._prompt_tokens = len(prompt)
        self.dropped_tokens = dropped_tokens
        self._context = context
        # Tokens of the prompt that the model is yet to generate, to report their probabilities.
        self._unscored = len(prompt) - 1 if request.score_prompt else 0
        self._scored = None
        if request.score_prompt:
            self._scored = _prompt_text(request.prompt, prompt[0], tokenizer)
        self._seed = seed
        self._on_end: Callable[[Ended], None] | None = on_end
        self._outcome: FinishReason | Literal["cancelled", "failed"] = "cancelled"
        self._started: float | None = None
        self._cached_tokens = 0
        self._token_times: list[float] = []
        self._drafted = self._accepted = 0

    def __enter__(self) -> Completion:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._generation.__exit__(exc_type, error, trace)
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end(
                Ended(
                    outcome=self._outcome,
                    prompt_tokens=self._prompt_tokens,
                    cached_tokens=self._cached_tokens,
                    submitted=self._generation.submitted,
                    started=self._started,
                    token_times=tuple(self._token_times),
                    drafted=self._drafted,
                    accepted=self._accepted,
                )
            )

    @property
    def prompt_tokens(self) -> int:
        """The number of tokens of the prompt."""
        return self._prompt_tokens

    async def pieces(self) -> AsyncIterator[Piece | AnswerSummary]:
        """The pieces of the answer, at most one token each, and at the end the summary.

        After a stop string or id the engine continues until the `with` block is left.

        Raises RulesFailed, GenerationFailed, or Draining when the server stopped before the end.
        """
        async for event in self._generation.events():
            for piece in self._pieces(event):
                yield piece
            match event:
                case Finished("cancelled"):
                    raise Draining("the server stopped before the answer was complete")
                case Failed(message, by_rules):
                    self._outcome = "failed"
                    raise RulesFailed(message) if by_rules else GenerationFailed(message)
            if end := self._end_at(event):
                for last in self._end(*end):
                    yield last
                return

    def _pieces(self, event: Event) -> Iterator[Piece]:
        """The pieces for an event, without those at the end of the answer."""
        match event:
            case Prefilled(at, tokens, cached_tokens):
                yield self._progress(at, tokens, cached_tokens)
            case Started(at, cached_tokens):
                self._started, self._cached_tokens = at, cached_tokens
                for tokens in self._last_progress():
                    yield self._progress(at, tokens, cached_tokens)
            case Token() if event.id not in self._request.stop_token_ids:
                yield from self._token_pieces(event)

    def _token_pieces(self, token: Token) -> Iterator[Piece]:
        """The piece of a token, and those for text that follows a call in the same token."""
        if self._unscored:
            assert self._scored is not None, "made for prompts that are scored"
            self._unscored -= 1
            logprobs = self._logprobs(token, self._scored.position)
            self._scored.push(token.id)
            yield Piece(text="", token_ids=(), logprobs=logprobs)
            return
        self._token_times.append(token.at)
        self._drafted, self._accepted = token.drafted, token.accepted
        logprobs = self._logprobs(token, self._detokenizer.position)
        inside = self._reasoning.inside
        reasoning, text = self._reasoning.push(self._filter.push(self._detokenizer.push(token.id)))
        self._reasoning_tokens += inside or self._reasoning.inside
        passed, *more = self._calls.push(text)
        yield replace(
            _without_token(passed, reasoning),
            token_ids=(token.id,),
            logprobs=logprobs,
            timings=self._timings() if self._request.timings_per_token else None,
        )
        yield from map(_without_token, more)

    def _last_progress(self) -> tuple[int, ...]:
        """The events after the prompt has been read: first the cached tokens, unless reported."""
        if not self._request.return_progress:
            return ()
        first = () if self._reported else (self._cached_tokens,)
        return (*first, self._prompt_tokens)

    def _progress(self, started: float, tokens: int, cached_tokens: int) -> Piece:
        self._reported = True
        progress = PromptProgress(
            total=self._prompt_tokens,
            cache=cached_tokens,
            processed=tokens,
            time_ms=1e3 * (time.monotonic() - started),
        )
        timings = None
        if self._request.timings_per_token:
            timings = self._timings_of(started, tokens, cached_tokens)
        return Piece(text="", token_ids=(), logprobs=(), progress=progress, timings=timings)

    def _end_at(self, event: Event) -> tuple[str, FinishReason] | None:
        """The rest of the text and the reason if the answer ends at an event, or None."""
        match event:
            case Token() if event.id in self._request.stop_token_ids:
                return self._rest(), "stop"
            case Token() if self._filter.stopped or self._one_call_complete:
                return "", "stop"
            case Finished("stop" | "length" | "timeout" as reason):
                rest = self._rest()
                return rest, "stop" if self._filter.stopped else reason
        return None

    @property
    def _one_call_complete(self) -> bool:
        return self._one_call and self._calls.count > 0 and not self._calls.open

    def _rest(self) -> str:
        """The text that was held back because it could have become a stop string."""
        return self._filter.push(self._detokenizer.flush()) + self._filter.flush()

    def _end(self, rest: str, reason: FinishReason) -> Iterator[Piece | AnswerSummary]:
        """The remaining text and calls, and the summary."""
        reasoning, text = self._reasoning.push(rest)
        more_reasoning, more_text = self._reasoning.flush()
        reasoning, text = reasoning + more_reasoning, text + more_text
        passed = self._calls.push(text)
        passed.append(Passed(text=self._calls.flush(cut=reason != "stop")))
        for index, part in enumerate(passed):
            piece = _without_token(part, reasoning="" if index else reasoning)
            if piece.text or piece.calls or piece.reasoning:
                yield piece
        called = self._calls.count > 0 and not self._calls.open
        yield self._summary("tool_calls" if called and reason == "stop" else reason)

    def _logprobs(self, token: Token, offset: int) -> tuple[TokenLogprobs, ...]:
        if token.logprobs is None:
            return ()
        chosen = self._candidate(token.id, token.logprobs.chosen)
        top = tuple(self._candidate(*top) for top in token.logprobs.top)
        return (TokenLogprobs(chosen, top, offset),)

    def _candidate(self, id_: int, logprob: float) -> TokenCandidate:
        names = self._tokenizer
        return TokenCandidate(id_, names.name(id_), names.bytes_of(id_), logprob)

    def _timings(self) -> Timings:
        started = self._generation.submitted if self._started is None else self._started
        return self._timings_of(started, self._prompt_tokens, self._cached_tokens)

    def _timings_of(self, started: float, tokens: int, cached_tokens: int) -> Timings:
        """The times of a prompt; this many of its tokens have been read or were cached."""
        times = self._token_times
        submitted = self._generation.submitted
        prefilled, decoded = tokens - cached_tokens, len(times) - 1
        # An answer without tokens spent all its time in the prefill.
        first, last = (times[0], times[-1]) if times else (time.monotonic(),) * 2
        is_reading = prefilled or times
        prefill_ms, decode_ms = 1e3 * (first - started) if is_reading else 0.0, 1e3 * (last - first)
        speed = 1e3 * decoded / decode_ms if decode_ms else 0.0
        return Timings(
            queue_ms=1e3 * (started - submitted),
            prefill_ms=prefill_ms,
            decode_ms=decode_ms,
            tokens_per_second=speed,
            cache_n=cached_tokens,
            prompt_n=prefilled,
            prompt_ms=prefill_ms,
            prompt_per_token_ms=prefill_ms / prefilled if prefilled else 0.0,
            prompt_per_second=1e3 * prefilled / prefill_ms if prefill_ms else 0.0,
            predicted_n=len(times),
            predicted_ms=decode_ms,
            predicted_per_token_ms=decode_ms / decoded if decoded > 0 else 0.0,
            predicted_per_second=speed,
            draft_n=self._drafted,
            draft_n_accepted=self._accepted,
            n_ctx=self._context,
        )

    def _summary(self, reason: FinishReason) -> AnswerSummary:
        self._outcome = reason
        return AnswerSummary(
            finish_reason=reason,
            stop_string=unguarded(self._filter.stop_string),
            prompt_tokens=self._prompt_tokens,
            cached_tokens=self._cached_tokens,
            completion_tokens=len(self._token_times),
            timings=self._timings(),
            reasoning_tokens=self._reasoning_tokens,
            seed=self._seed,
            dropped_tokens=self.dropped_tokens,
        )


def _without_token(passed: Passed, reasoning: str = "") -> Piece:
    return Piece(
        text=unguarded(passed.text),
        token_ids=(),
        logprobs=(),
        calls=tuple(replace(call, arguments=unguarded(call.arguments)) for call in passed.calls),
        reasoning=unguarded(reasoning),
    )


def _prompt_text(prompt: str | tuple[int, ...], first: int, tokenizer: Tokenizer) -> Detokenizer:
    """The text of a prompt after its first token, which a client reads as it wrote it."""
    if not isinstance(prompt, str):
        text = Detokenizer(tokenizer)
        text.push(first)
        return text
    text = Detokenizer(tokenizer, shown=tokenizer.special_token_names)
    if prompt.startswith(tokenizer.name(first)):  # otherwise the tokenizer added it
        text.push(first)
    return text
