"""Read a golden prompt and its steps again, with each kind of call that returns logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.runtime.interface import prefill_all_but_last, read_prompt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from hearthd.bundle import Golden
    from hearthd.runtime.interface import Reader, Runtime


def replayed(reader: Reader, cases: Sequence[Golden]) -> Iterator[NDArray[np.float32]]:
    """The logits before every golden token, f32 (B, V), of B prompts, one in each slot.

    They have the same number of steps.
    """
    slots = range(len(cases))
    each = zip(slots, cases, strict=True)
    yield np.stack([read_prompt(reader, case.prompt_ids, slot=slot) for slot, case in each])
    _, *later = zip(*map(_read_tokens, cases), strict=True)
    for number, tokens in enumerate(later):
        yield reader.decode(slots, tokens, [len(case.prompt_ids) + number for case in cases])


def replayed_by_verifies(
    runtime: Runtime, case: Golden, tokens: int
) -> Iterator[NDArray[np.float32]]:
    """The logits before every golden token, f32 (V,), with calls that verify `tokens` tokens.

    Slot 0 has read the prompt except its last token.
    """
    read, start = _read_tokens(case), len(case.prompt_ids) - 1
    for first in range(0, len(read), tokens):
        yield from runtime.verify(0, read[first : first + tokens], start + first)


def replayed_by_pairs(runtime: Runtime, cases: Sequence[Golden]) -> Iterator[NDArray[np.float32]]:
    """As `replayed`, of two prompts, with calls that verify the tokens of both.

    The tokens that fill no such call are decoded.
    """
    slots, size = range(2), runtime.pair_tokens
    for slot, case in zip(slots, cases, strict=True):
        prefill_all_but_last(runtime, case.prompt_ids, slot=slot)
    read = [_read_tokens(case) for case in cases]
    count = len(read[0])
    for first in range(0, count, size):
        tokens = [each[first : first + size] for each in read]
        starts = [len(case.prompt_ids) - 1 + first for case in cases]
        if first + size <= count:
            verified = runtime.verify_pair(slots, tokens, starts)
            yield from map(np.stack, zip(*verified, strict=True))
        else:
            for ahead, latest in enumerate(zip(*tokens, strict=True)):
                yield runtime.decode(slots, latest, [start + ahead for start in starts])


def _read_tokens(case: Golden) -> list[int]:
    """The last token of the prompt and the golden tokens that are read after it."""
    return [case.prompt_ids[-1], *(step.token_ids[0] for step in case.steps[:-1])]
