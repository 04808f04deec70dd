"""From a prompt to pieces of text: what stands between the api and the engine.

It turns a prompt into token ids that the model can take, tokens into text, and a stop string into
the end of the answer: the engine knows no text, so the one who finds the string cancels the
generation. It knows no HTTP and no slots.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from server.engine.generation import (
    Embedded,
    EmbedRequest,
    Failed,
    Finished,
    Generation,
    Request,
    Started,
    Token,
)
from server.errors import Draining, GenerationFailed, InvalidRequest, RulesFailed
from server.text.detokenize import Detokenizer, StopFilter
from server.text.grammar import Grammars
from server.text.sampling_text import DRY_SEQUENCE_BREAKERS, SamplingText
from server.text.tool_calls import CallFilter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterator
    from types import TracebackType

    from numpy.typing import NDArray

    from server.engine.engine import Engine
    from server.sampling.sampler import SamplingOptions
    from server.text.grammar import Grammar, Rules
    from server.text.tokenizer import Tokenizer
    from server.text.tool_calls import CallFormat, ToolCall

# A random seed is as short as llama-server's, so that every client can send it back.
SEEDS = 2**32

FinishReason: TypeAlias = Literal["stop", "length", "timeout", "tool_calls"]


@dataclass(frozen=True, kw_only=True)
class CompletionRequest:
    """What to continue and how.

    max_tokens    None goes on to the end of the context
    stop          strings that end the answer, none of them empty
    seed          None draws one
    timeout_ms    when the answer ends, finished or not, from its acceptance on; None for never
    cache_prompt  as in the engine's Request
    grammar       what the answer must be; None for anything
    logit_bias    added to the logits of an id, or of each token of a text
    dry_sequence_breakers   strings at which DRY's repetitions end
    calls         how the model writes tool calls, which are then taken out of the text
    one_call      end the answer after the first call
    field         what the prompt is called where it came from, for errors
    """

    prompt: str | tuple[int, ...]
    max_tokens: int | None
    stop: tuple[str, ...]
    sampling: SamplingOptions
    seed: int | None
    timeout_ms: int | None = None
    cache_prompt: bool = True
    grammar: Grammar | None = None
    logit_bias: tuple[tuple[int | str, float], ...] = ()
    dry_sequence_breakers: tuple[str, ...] = DRY_SEQUENCE_BREAKERS
    calls: CallFormat | None = None
    one_call: bool = False
    field: str = "prompt"


@dataclass(frozen=True)
class Candidate:
    """A token that could have come, with the natural logarithm of its probability.

    `bytes` are what it adds to the answer's UTF-8, of which `text` may be half a character.
    """

    id: int
    text: str
    bytes: bytes
    logprob: float


@dataclass(frozen=True)
class TokenLogprobs:
    """The token that came, and the most likely ones, best first."""

    chosen: Candidate
    top: tuple[Candidate, ...]


@dataclass(frozen=True, kw_only=True)
class Piece:
    """More of the answer: at most one token, and the text and calls that are certain by now.

    `logprobs` has one entry per token, or none if they were not asked for.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...]
    calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Timings:
    """In milliseconds; the prefill ends, and the decode begins, with the first token.

    `tokens_per_second` counts the tokens after the first one; None if there are none. `draft_n`
    tokens were guessed and checked, of which `draft_n_accepted` were right.
    """

    queue_ms: float
    prefill_ms: float
    decode_ms: float
    tokens_per_second: float | None
    draft_n: int
    draft_n_accepted: int


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The end of an answer. `cached_tokens` of the prompt came out of the prefix cache."""

    finish_reason: FinishReason
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    timings: Timings
    seed: int


@dataclass(frozen=True)
class Embedding:
    """The mean of the hidden states of a text's tokens, scaled to a length of 1, f32 (hidden,)."""

    vector: NDArray[np.float32]
    tokens: int


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A completion that was left: how it ended, and when what happened, as time.monotonic says it.

    `started` is None when it never left the queue. It is "cancelled" when its reader left first or
    the server stopped. `drafted` and `accepted` are as in the engine's Token.
    """

    outcome: FinishReason | Literal["cancelled", "failed"]
    prompt_tokens: int
    cached_tokens: int
    submitted: float
    started: float | None
    token_times: tuple[float, ...]
    drafted: int
    accepted: int


class Completer:
    """Begins completions on an engine whose model has `vocab_size` ids and `context` positions.

    `eos` are the ids that end an answer.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        *,
        vocab_size: int,
        context: int,
        eos: Collection[int],
    ) -> None:
        self._grammars = Grammars(tokenizer, vocab_size=vocab_size, ends=eos)
        self._sampling = SamplingText(tokenizer, vocab_size=vocab_size)
        self._engine = engine
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._context = context

    async def begin(
        self, request: CompletionRequest, on_end: Callable[[Ended], None]
    ) -> Completion:
        """Check a request and submit it; raises InvalidRequest, QueueFull or Unavailable.

        `on_end` is called once, when the completion is left.
        """
        accepted = time.monotonic()
        prompt = await self._prompt_ids(request.prompt, request.field)
        sampling, constraint = await asyncio.to_thread(self._tokens_of, request)
        seed = secrets.randbelow(SEEDS) if request.seed is None else request.seed
        generation = self._engine.submit(
            Request(
                prompt=prompt,
                max_tokens=self._context if request.max_tokens is None else request.max_tokens,
                sampling=sampling,
                seed=seed,
                deadline=_deadline(accepted, request.timeout_ms),
                cache_prompt=request.cache_prompt,
                constraint=constraint,
            )
        )
        return Completion(
            generation,
            self._tokenizer,
            request,
            prompt_tokens=len(prompt),
            seed=seed,
            on_end=on_end,
        )

    async def embed(self, text: str | tuple[int, ...], field: str) -> Embedding:
        """The embedding of a text; raises as `begin`, and GenerationFailed or Draining."""
        ids = await self._prompt_ids(text, field)
        mean: NDArray[np.float32] | None = None
        with self._engine.submit(EmbedRequest(prompt=ids)) as generation:
            async for event in generation.events():
                match event:
                    case Embedded():
                        mean = event.mean
                    case Failed(message):
                        raise GenerationFailed(message)
        if mean is None:
            raise Draining("the server stopped before the answer was complete")
        return Embedding(_unit(mean), len(ids))

    def _tokens_of(self, request: CompletionRequest) -> tuple[SamplingOptions, Rules | None]:
        """What the sampler is given for what the request says in text."""
        sampling = self._sampling.resolve(
            request.sampling,
            logit_bias=request.logit_bias,
            dry_sequence_breakers=request.dry_sequence_breakers,
        )
        return sampling, self._grammars.rules(request.grammar) if request.grammar else None

    async def _prompt_ids(self, prompt: str | tuple[int, ...], field: str) -> tuple[int, ...]:
        if len(prompt) == 0:
            got = "" if isinstance(prompt, str) else "[]"
            raise InvalidRequest(field=field, got=got, wanted="at least one token")
        if isinstance(prompt, str):
            # A long text takes milliseconds, and the library releases the interpreter's lock.
            ids = await asyncio.to_thread(self._tokenizer.encode, prompt)
        else:
            ids = prompt
        for position, token in enumerate(ids):
            if not 0 <= token < self._vocab_size:
                raise InvalidRequest(
                    field=field if isinstance(prompt, str) else f"{field}[{position}]",
                    got=token,
                    wanted=f"token ids from 0 to {self._vocab_size - 1}",
                )
        if len(ids) >= self._context:
            raise InvalidRequest(
                field=field,
                got=f"{len(ids)} tokens",
                wanted=f"at most {self._context - 1} tokens, one less than the model's context",
            )
        return ids


class Completion:
    """One accepted completion. Leaving its `with` block cancels it."""

    def __init__(
        self,
        generation: Generation,
        tokenizer: Tokenizer,
        request: CompletionRequest,
        *,
        prompt_tokens: int,
        seed: int,
        on_end: Callable[[Ended], None],
    ) -> None:
        self._generation = generation
        self._tokenizer = tokenizer
        calls = request.calls
        self._detokenizer = Detokenizer(tokenizer, shown=calls.special if calls else ())
        self._filter = StopFilter((*request.stop, *(calls.stop if calls else ())))
        self._calls = CallFilter(calls)
        self._one_call = request.one_call
        self._prompt_tokens = prompt_tokens
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
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._generation.__exit__(kind, error, trace)
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

    async def pieces(self) -> AsyncIterator[Piece | Summary]:
        """The pieces of the answer, one per token, and the summary at the end.

        After a stop string the engine still runs, until the `with` block is left.

        Raises RulesFailed, GenerationFailed, or Draining when the server stopped before the end.
        """
        async for event in self._generation.events():
            match event:
                case Started(at, cached_tokens):
                    self._started, self._cached_tokens = at, cached_tokens
                case Token():
                    yield self._piece(event)
                    if self._filter.stopped or (self._one_call and self._calls.found):
                        for last in self._end("", "stop"):
                            yield last
                        return
                case Finished("stop" | "length" | "timeout" as reason):
                    rest = self._filter.push(self._detokenizer.flush()) + self._filter.flush()
                    for last in self._end(rest, "stop" if self._filter.stopped else reason):
                        yield last
                case Finished():
                    raise Draining("the server stopped before the answer was complete")
                case Failed(message, by_rules):
                    self._outcome = "failed"
                    raise RulesFailed(message) if by_rules else GenerationFailed(message)

    def _piece(self, token: Token) -> Piece:
        self._token_times.append(token.at)
        self._drafted, self._accepted = token.drafted, token.accepted
        text, calls = self._calls.push(self._filter.push(self._detokenizer.push(token.id)))
        return Piece(text=text, token_ids=(token.id,), logprobs=self._logprobs(token), calls=calls)

    def _end(self, rest: str, reason: FinishReason) -> Iterator[Piece | Summary]:
        """What is left when the last text has come, and the summary."""
        text, calls = self._calls.push(rest)
        text += self._calls.flush()
        if text or calls:
            yield Piece(text=text, token_ids=(), logprobs=(), calls=calls)
        yield self._summary("tool_calls" if self._calls.found and reason == "stop" else reason)

    def _logprobs(self, token: Token) -> tuple[TokenLogprobs, ...]:
        if token.logprobs is None:
            return ()
        chosen = self._candidate(token.id, token.logprobs.chosen)
        return (TokenLogprobs(chosen, tuple(self._candidate(*top) for top in token.logprobs.top)),)

    def _candidate(self, id_: int, logprob: float) -> Candidate:
        names = self._tokenizer
        return Candidate(id_, names.name(id_), names.bytes_of(id_), logprob)

    def _summary(self, reason: FinishReason) -> Summary:
        self._outcome = reason
        times = self._token_times
        submitted = self._generation.submitted
        started = submitted if self._started is None else self._started
        # An answer that ends before its first token has spent all its time in the prefill.
        first, last = (times[0], times[-1]) if times else (time.monotonic(),) * 2
        return Summary(
            finish_reason=reason,
            prompt_tokens=self._prompt_tokens,
            cached_tokens=self._cached_tokens,
            completion_tokens=len(times),
            timings=Timings(
                queue_ms=1e3 * (started - submitted),
                prefill_ms=1e3 * (first - started),
                decode_ms=1e3 * (last - first),
                tokens_per_second=(len(times) - 1) / (last - first) if last > first else None,
                draft_n=self._drafted,
                draft_n_accepted=self._accepted,
            ),
            seed=self._seed,
        )


def _unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    length = np.linalg.norm(vector)
    return vector / length if length else vector


def _deadline(accepted: float, timeout_ms: int | None) -> float | None:
    return None if timeout_ms is None else accepted + timeout_ms / 1e3
