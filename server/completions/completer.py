"""From a request for text to a request to the engine.

Prompts become token ids, grammars become constraints, and texts in the sampling options become
token ids. The engine handles no text; this layer handles no HTTP and no slots.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from hearthd.server.completions.completion import Completion
from hearthd.server.engine.generation import Embedded, EmbedRequest, Failed, Request
from hearthd.server.engine.prompt import ImageRows, Prompt, is_readable
from hearthd.server.errors import Draining, GenerationFailed
from hearthd.text.answer import EmbeddedText
from hearthd.text.errors import ContextExceeded, InvalidRequest
from hearthd.text.grammars.answer_constraint import Constraints
from hearthd.text.grammars.call_grammar import CallGrammars
from hearthd.text.overflow import without_middle, without_oldest
from hearthd.text.sampling_text import SamplingText

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from numpy.typing import NDArray

    from hearthd.sampling.constraint import Constraint
    from hearthd.sampling.options import SamplingOptions
    from hearthd.server.engine.backend import Backend
    from hearthd.server.engine.generation import AdapterUse
    from hearthd.text.answer import Ended
    from hearthd.text.overflow import Overflow
    from hearthd.text.text_request import ImageSquare, TextRequest
    from hearthd.text.tokenizer import Tokenizer


# As short as llama-server's seeds, so that every client can send one back.
_RANDOM_SEEDS = 2**32


class Completer:
    """Starts completions on a backend whose model has `vocab_size` ids and `context` positions.

    `eos` are the ids that end an answer; no answer has one of `suppressed`. A prompt that does not
    fit is an error, or with the overflow "truncate-middle" loses tokens in its middle; texts to
    embed or to score lose none.
    """

    def __init__(
        self,
        backend: Backend,
        tokenizer: Tokenizer,
        *,
        vocab_size: int,
        context: int,
        eos: Collection[int],
        suppressed: Collection[int] = (),
        pooling: Literal["mean", "last"] = "mean",
        overflow: Overflow = "error",
    ) -> None:
        self._constraints = Constraints(tokenizer, vocab_size=vocab_size, ends=eos)
        self._call_grammars = CallGrammars(self._constraints.grammars, tokenizer)
        self._sampling = SamplingText(tokenizer, vocab_size=vocab_size)
        self._backend = backend
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._context = context
        self._ends = frozenset(eos)
        self._suppressed = frozenset(suppressed)
        self._overflow: Overflow = overflow
        self._pooling: Literal["mean", "last"] = pooling

    async def begin(
        self,
        request: TextRequest,
        on_end: Callable[[Ended], None],
        adapter: AdapterUse | None = None,
        owner: str = "",
    ) -> Completion:
        """Check a request and submit it; raises InvalidRequest, QueueFull or Unavailable.

        `on_end` is called once, when the completion is closed. Different owners share nothing in
        the prefix cache.
        """
        accepted = time.monotonic()
        salt = _salt(owner, request.cache_salt)
        given_ids = await self._valid_ids(request.prompt, request.field, request.images)
        context = min(self._context, request.context or self._context)
        prompt = self._shortened(given_ids, request, context)
        forced = self._forced(prompt, request)
        sampling, constraint = await asyncio.to_thread(self._resolve, request, forced)
        remaining = context - len(prompt)
        max_tokens = remaining if request.max_tokens is None else min(request.max_tokens, remaining)
        if not forced and not max_tokens:
            raise InvalidRequest(field="max_tokens", got=0, expected="1 for a prompt of one token")
        seed = secrets.randbelow(_RANDOM_SEEDS) if request.seed is None else request.seed
        generation = self._backend.submit(
            Request(
                prompt=_with_images(prompt[:1] if forced else prompt, request.images, salt),
                max_tokens=len(forced) + max_tokens,
                sampling=sampling,
                seed=seed,
                deadline=_deadline(accepted, request.timeout_ms),
                cache_prompt=request.cache_prompt,
                cache_salt=salt,
                constraint=constraint,
                progress=request.return_progress,
                adapter=adapter,
            )
        )
        return Completion(
            generation,
            self._tokenizer,
            request,
            prompt=prompt,
            dropped_tokens=len(given_ids) - len(prompt),
            context=context,
            seed=seed,
            on_end=on_end,
        )

    async def embed(
        self, text: str | tuple[int, ...], field: str, adapter: AdapterUse | None = None
    ) -> EmbeddedText:
        """Embed a text or its token ids; raises as `begin`, and GenerationFailed or Draining."""
        if self._pooling == "last" and isinstance(text, str) and text:
            # The last token is the token that the tokenizer puts behind a text.
            text = await asyncio.to_thread(self._tokenizer.encode_whole, text)
        ids = _fitting(await self._valid_ids(text, field), field, self._context)
        state: NDArray[np.float32] | None = None
        request = EmbedRequest(prompt=ids, pooling=self._pooling, adapter=adapter)
        with self._backend.submit(request) as generation:
            async for event in generation.events():
                match event:
                    case Embedded():
                        state = event.state
                    case Failed(message):
                        raise GenerationFailed(message)
        if state is None:
            raise Draining("the server stopped before the answer was complete")
        return EmbeddedText(unit(state), len(ids))

    def _resolve(
        self, request: TextRequest, forced: tuple[int, ...]
    ) -> tuple[SamplingOptions, Constraint | None]:
        """The request's sampling options and grammar in token ids; for any thread."""
        never = ((id_, -math.inf) for id_ in sorted(self._suppressed.difference(forced)))
        sampling = self._sampling.resolve(
            request.sampling,
            logprobs=request.logprobs,
            logit_bias=(*request.logit_bias, *never),
            dry_sequence_breakers=request.dry_sequence_breakers,
        )
        reasoning = request.reasoning
        rules = self._call_grammars.rules(request.tools, request.grammar, reasoning)
        budget = reasoning is not None and reasoning.budget is not None
        if not (rules.grammar or budget or forced):
            return sampling, None
        rules = replace(rules, reasoning=reasoning, forced=forced)
        return sampling, self._constraints.constraint(rules)

    async def _valid_ids(
        self, prompt: str | tuple[int, ...], field: str, images: Sequence[ImageSquare] = ()
    ) -> tuple[int, ...]:
        if len(prompt) == 0:
            got = "" if isinstance(prompt, str) else "[]"
            raise InvalidRequest(field=field, got=got, expected="at least one token")
        if isinstance(prompt, str):
            # A long text takes milliseconds, and the library releases the interpreter's lock.
            ids = await asyncio.to_thread(self._tokenizer.encode, prompt)
        else:
            ids = prompt
        for position, token in enumerate(ids):
            if not is_readable(token, self._vocab_size, has_images=bool(images)):
                raise InvalidRequest(
                    field=field if isinstance(prompt, str) else f"{field}[{position}]",
                    got=token,
                    expected=f"token ids from 0 to {self._vocab_size - 1}",
                )
        return ids

    def _forced(self, prompt: tuple[int, ...], request: TextRequest) -> tuple[int, ...]:
        """To score a prompt, the model generates it again: all but its first token are forced."""
        forced = prompt[1:] if request.score_prompt else ()
        for token in forced:
            if token in self._ends or token in request.stop_token_ids:
                raise InvalidRequest(
                    field=request.field,
                    got=token,
                    expected="no token that ends an answer, to report log-probabilities",
                )
        return forced

    def _shortened(
        self, ids: tuple[int, ...], request: TextRequest, context: int
    ) -> tuple[int, ...]:
        """The prompt of a request that fits in a context; raises ContextExceeded."""
        keeps_all = request.score_prompt or request.images
        if not keeps_all and len(ids) >= context:
            if request.keep_first is not None:
                return without_oldest(ids, context=context, keep_first=request.keep_first)
            if self._overflow == "truncate-middle":
                return without_middle(ids, context=context, max_tokens=request.max_tokens)
        return _fitting(ids, request.field, context)


def _fitting(ids: tuple[int, ...], field: str, context: int) -> tuple[int, ...]:
    if len(ids) >= context:
        raise ContextExceeded(field=field, tokens=len(ids), limit=context - 1, context=context)
    return ids


def _salt(*names: str) -> bytes:
    """The salt of the prefix cache for requests with these names; none if all are empty."""
    if not any(names):
        return b""
    return hashlib.sha256(b"".join(map(_digest, names))).digest()


def _digest(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def _with_images(ids: tuple[int, ...], images: Sequence[ImageSquare], salt: bytes = b"") -> Prompt:
    rows = [
        ImageRows(
            media=image.media,
            # The rows of the latest images are kept by it, too.
            digest=hashlib.sha256(salt + image.digest).digest() if salt else image.digest,
            count=image.rows // image.lines,
            offset=image.offset + image.rows // image.lines * line,
            both_ways=image.both_ways,
            grid=image.grid,
        )
        for image in images
        for line in range(image.lines)
    ]
    return Prompt.of_ids(ids, rows)


def unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """The vector with length 1, or of zeros."""
    length = np.linalg.norm(vector)
    return vector / length if length else vector


def _deadline(accepted: float, timeout_ms: int | None) -> float | None:
    return None if timeout_ms is None else accepted + timeout_ms / 1e3
