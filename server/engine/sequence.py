"""A request while the engine serves it: the only owner of its tokens.

A sequence knows which of its tokens the KV cache of its slot holds, when its answer ends, and which
events its client has received. The sampler and the prompt lookup read its tokens in place. It knows
no other sequence and calls no model.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from hearthd.runtime.interface import ALL_LOGITS, LOGIT_MARGIN
from hearthd.sampling.sampler import Sampler
from hearthd.server.engine.generation import EmbedRequest, Prefilled, Request, Started, Token
from hearthd.server.engine.prefixes.snapshots import PromptBlocks
from hearthd.server.engine.prompt import Prompt

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from hearthd.sampling.sampler import SampledToken
    from hearthd.server.engine.drafting.drafts import Drafts
    from hearthd.server.engine.generation import AdapterUse, Event, Failed, Finished
    from hearthd.server.engine.image_rows import Reading
    from hearthd.server.engine.prefixes.used_prompt import UsedPrompt
    from hearthd.server.engine.prompt import ImageRows

FinishReason: TypeAlias = Literal["stop", "length"]

NO_SLOT = -1
# Tokens that a template writes before an answer, at most. It can write others in the next prompt.
MAX_ANSWER_START = 32


@dataclass(kw_only=True, eq=False, slots=True)
class Sequence:
    """The tokens of one request, with its position, slot and sampler state.

    prompt          the prompt, or a text to be embedded
    tokens          prompt and answer, 64-bit; only `append` adds to them
    prefill_tokens  how many tokens are read in chunks: all but the last one of a prompt, or all of
                    a text to be embedded
    max_length      length of prompt and answer at which the answer ends
    eos             ids that end the answer and are not part of it
    deliver         hands an event to the client
    deadline        when the request ends, in seconds of time.monotonic; None for never
    sampler         chooses the tokens of the answer; None for an embedding
    margin          how far below the best logit others are computed exactly, in nats
    block_keys      keys of the prompt's blocks in the prefix cache; empty if it is not used
    cached          the prompt as the prefix cache knows it; None before the cache is asked
    drafts          of the next tokens; None if nothing is drafted
    slot            the slot, or NO_SLOT while the request waits
    position        how many of the tokens are in the slot's KV cache
    admitted_at     when the request got its slot, in seconds of time.monotonic
    cached_tokens   tokens of the prompt that came out of the prefix cache
    drafted         drafted tokens that the model has verified so far
    accepted        drafted tokens that became part of the answer so far
    image_rows      rows of the squares of images that the next chunk reads, by digest
    reading         the work on the rows of a square that the next chunk reads, if it has begun
    hidden_sum      for a mean embedding: sum of the hidden states so far, f32 (hidden,)
    is_mean         for an embedding: whether it is the mean of the hidden states, not the last one
    progress        whether the client gets Prefilled
    adapter         the LoRA adapter; None for none
    started, ended  whether the client has received Started, and the last event
    """

    id: int
    prompt: Prompt
    tokens: array[int]
    prefill_tokens: int
    max_length: int
    eos: frozenset[int]
    deliver: Callable[[Event], None]
    deadline: float | None = None
    sampler: Sampler | None = None
    margin: int = LOGIT_MARGIN
    block_keys: tuple[bytes, ...] = ()
    cached: UsedPrompt | None = None
    drafts: Drafts | None = None
    slot: int = NO_SLOT
    position: int = 0
    admitted_at: float | None = None
    cached_tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    image_rows: dict[bytes, NDArray[np.float32]] = field(default_factory=dict)
    reading: Reading | None = None
    hidden_sum: NDArray[np.float32] | None = None
    is_mean: bool = True
    progress: bool = False
    adapter: AdapterUse | None = None
    started: bool = False
    ended: bool = False

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt."""
        return len(self.prompt)

    @property
    def ready(self) -> bool:
        """Whether the next token can be sampled: all tokens but the last one have been read."""
        return self.position >= self.prefill_tokens

    @property
    def is_embedding(self) -> bool:
        """Whether the tokens are read to their end and not continued."""
        return self.prefill_tokens == self.prompt_tokens

    @property
    def remaining(self) -> int:
        """How many more tokens the answer may have."""
        return self.max_length - len(self.tokens)

    def next_chunk(self, size: int) -> Prompt:
        """What to read in the next of the chunks of `size`; empty after the last chunk."""
        end = next(
            end for end in (*self.prompt.chunk_ends(size), 0) if not 0 < end <= self.position
        )
        return self.prompt[self.position : min(end, self.prefill_tokens)]

    def next_chunks(self, size: int, most: int) -> Prompt:
        """What to read at once: `most` tokens of whole chunks without rows, or the next chunk."""
        end = self.position + most
        if most > size and end <= self.prefill_tokens:
            several = self.prompt[self.position : end]
            if not several.row_segments:
                return several
        return self.next_chunk(size)

    def chunks_before(self, position: int, size: int) -> int:
        """How many chunks of `size` end before a position of the prompt, or there."""
        return bisect_right(self.prompt.chunk_ends(size), position)

    def next_image(self, size: int) -> ImageRows | None:
        """A square of an image in the next chunk whose rows are not there; None if all are."""
        images = self.next_chunk(size).images
        needed = {image.digest for image in images}
        self.image_rows = {key: rows for key, rows in self.image_rows.items() if key in needed}
        if self.reading is not None and self.reading.digest not in needed:
            self.reading = None  # the prefix cache had the chunk meanwhile
        return next((image for image in images if image.digest not in self.image_rows), None)

    def blocks(self, chunk: int) -> PromptBlocks:
        """The prompt for the prefix cache: a turn of a conversation ends with one of `eos`."""
        prompt = self.tokens[: self.prompt_tokens]
        chunks = self.prompt.chunk_ends(chunk)
        turns = [index + 1 for index, token in enumerate(prompt) if token in self.eos]
        lasting = bisect_right(chunks, self.prefill_tokens)
        if turns and lasting and chunks[lasting - 1] - turns[-1] <= MAX_ANSWER_START:
            lasting = min(lasting, bisect_right(chunks, turns[-1]))
        rest = self.prefill_tokens - (chunks[lasting - 1] if lasting else 0)
        return PromptBlocks(
            keys=self.block_keys,
            lasting=lasting,
            rest=rest / chunk,
            turn_ends=frozenset(bisect_right(chunks, turn) for turn in turns) - {0},
        )

    def advance(self, count: int) -> None:
        """`count` more tokens of the prompt are in the slot's KV cache."""
        self.position += count
        assert self.position <= self.prefill_tokens, f"{self.position} prompt tokens read"

    def append(self, token: int, *, last: bool = False) -> FinishReason | None:
        """Add the sampled token; the model has read the one before it.

        Returns why the answer ends here, or None. A `last` token, after which the constraint
        allows nothing, ends it with "stop".
        """
        self.tokens.append(token)
        self.position += 1
        if last or token in self.eos:
            return "stop"
        return "length" if len(self.tokens) == self.max_length else None

    def take(self, sample: SampledToken, *, at: float) -> FinishReason | None:
        """As `append`, and deliver the token unless it is one of `eos`."""
        finish = self.append(sample.token, last=sample.last)
        self.start()
        if sample.token not in self.eos:
            self.deliver(Token(sample.token, sample.logprobs, at, self.drafted, self.accepted))
        return finish

    def report(self) -> None:
        """Deliver how much of the prompt has been read, if the client asks for it."""
        if self.progress and self.admitted_at is not None:
            self.deliver(Prefilled(self.admitted_at, self.position, self.cached_tokens))

    def start(self) -> None:
        """Deliver Started, once, and only if the request got a slot."""
        if self.admitted_at is not None and not self.started:
            self.started = True
            self.deliver(Started(self.admitted_at, self.cached_tokens))

    def end(self, event: Finished | Failed) -> None:
        """Deliver the last event."""
        self.ended = True
        self.reading = None
        self.start()
        self.deliver(event)


def new_sequence(
    id_: int,
    request: Request | EmbedRequest,
    *,
    context: int,
    eos: frozenset[int],
    deliver: Callable[[Event], None],
    block_keys: tuple[bytes, ...] = (),
    exact_logits: bool = False,
) -> Sequence:
    """The sequence of a request, which fits in `context` positions.

    With `exact_logits` its logits are exact even if the sampler does not need that.
    """
    prompt = request.prompt if isinstance(request, Request) else Prompt(request.prompt)
    tokens, length = prompt.tokens, len(prompt)
    if isinstance(request, EmbedRequest):
        assert 0 < length <= context, f"{length} tokens to embed in a context of {context}"
        prefill_tokens = max_length = length
        sampler = None
    else:
        max_length = min(length + request.max_tokens, context)
        assert 0 < length < max_length, f"a prompt of {length} tokens in a context of {context}"
        prefill_tokens = length - 1
        sampler = Sampler(
            request.sampling,
            seed=request.seed,
            tokens=tokens,
            ends=eos,
            constraint=request.constraint,
        )
    margin = None if sampler is None else sampler.margin
    return Sequence(
        id=id_,
        prompt=prompt,
        tokens=tokens,
        prefill_tokens=prefill_tokens,
        max_length=max_length,
        eos=eos,
        deliver=deliver,
        deadline=request.deadline,
        sampler=sampler,
        margin=ALL_LOGITS if exact_logits or margin is None else margin,
        block_keys=block_keys,
        progress=isinstance(request, Request) and request.progress,
        adapter=request.adapter,
        is_mean=not isinstance(request, EmbedRequest) or request.pooling == "mean",
    )
