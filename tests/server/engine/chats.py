"""Chats as prompts of token ids, and a cache that reads them as an engine with one slot does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.sampling.options import SamplingOptions
from hearthd.server.engine.generation import Request
from hearthd.server.engine.prefixes.used_prompt import UsedPrompt
from hearthd.server.engine.prompt import Prompt
from hearthd.server.engine.sequence import new_sequence

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from hearthd.server.engine.prefixes.prefix_cache import PrefixCache

    Tokens = tuple[int, ...]

END, HEAD, ANSWER = 1, 2, 3  # the tokens around messages; others are texts


def messages_of(rng: Random, count: int, shortest: int, longest: int) -> list[Tokens]:
    """Messages of random lengths and texts."""
    return [
        tuple(rng.choices(range(4, 60), k=rng.randrange(shortest, longest))) for _ in range(count)
    ]


def prompt_of(messages: Sequence[Tokens]) -> Tokens:
    """Messages, and what a template writes before an answer: not how an answer begins later."""
    text = (token for message in messages for token in (HEAD, *message, END))
    return (*text, HEAD, ANSWER, ANSWER, ANSWER)


def common(first: Tokens, second: Tokens) -> int:
    """How many tokens two prompts begin with."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(first), len(second)))


def read(
    cache: PrefixCache, tokens: Tokens, *, chunk: int, block_bytes: int, state_bytes: int
) -> int:
    """Read a prompt as the engine does; returns how many of its tokens were cached."""
    request = Request(prompt=Prompt(tokens), max_tokens=1, sampling=SamplingOptions(), seed=1)
    sequence = new_sequence(
        0,
        request,
        context=2**20,
        eos=frozenset((END,)),
        deliver=lambda _event: None,
        block_keys=request.block_keys(chunk),
    )
    prompt = UsedPrompt(blocks=sequence.blocks(chunk), state_bytes=state_bytes)
    cached = len(cache.find(prompt, 0).blocks)
    for count in range(cached + 1, len(prompt.blocks.keys) + 1):
        tokens_of_block = min(count * chunk, sequence.prefill_tokens) - (count - 1) * chunk
        rows = np.empty(block_bytes * tokens_of_block // chunk, np.uint8)
        states = None
        if cache.needs_states(prompt, count):
            states = np.empty(state_bytes, np.uint8)
        cache.add(prompt, count, rows, states=states)
    return min(cached * chunk, sequence.prefill_tokens)
