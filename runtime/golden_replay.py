"""Read a golden prompt and its steps again, with each kind of call that returns logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.runtime.interface import read_prompt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from hearthd.bundle import Golden
    from hearthd.runtime.interface import Reader, Runtime


def replayed(reader: Reader, case: Golden, slots: Sequence[int]) -> Iterator[NDArray[np.float32]]:
    """The logits before every golden token, f32 (B, V), of one sequence in B slots at once."""
    yield np.stack([read_prompt(reader, case.prompt_ids, slot=slot) for slot in slots])
    for position, token in enumerate(_read_tokens(case)[1:], start=len(case.prompt_ids)):
        yield reader.decode(slots, [token] * len(slots), [position] * len(slots))


def replayed_by_verifies(
    runtime: Runtime, case: Golden, tokens: int
) -> Iterator[NDArray[np.float32]]:
    """The logits before every golden token, f32 (V,), with calls that verify `tokens` tokens.

    Slot 0 has read the prompt except its last token.
    """
    read, start = _read_tokens(case), len(case.prompt_ids) - 1
    for first in range(0, len(read), tokens):
        yield from runtime.verify(0, read[first : first + tokens], start + first)


def replayed_by_pairs(
    runtime: Runtime, case: Golden, slots: Sequence[int]
) -> Iterator[NDArray[np.float32]]:
    """The logits before every golden token, f32 (2, V), with calls that verify those of two slots.

    Both have read the prompt except its last token. The tokens that fill no call are decoded.
    """
    read, start, size = _read_tokens(case), len(case.prompt_ids) - 1, runtime.pair_tokens
    end = len(read) // size * size
    for first in range(0, end, size):
        tokens = read[first : first + size]
        each = runtime.verify_pair(slots, [tokens] * len(slots), [start + first] * len(slots))
        yield from map(np.stack, zip(*each, strict=True))
    for index, token in enumerate(read[end:], end):
        yield runtime.decode(slots, [token] * len(slots), [start + index] * len(slots))


def _read_tokens(case: Golden) -> list[int]:
    """The last token of the prompt and the golden tokens that are read after it."""
    return [case.prompt_ids[-1], *(step.token_ids[0] for step in case.steps[:-1])]
