"""Golden values: what NumPy computed for a few prompts, for the self-test."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from hearthd.bundle.provenance import OMITTED

__all__ = ["Golden", "GoldenRow", "GoldenState", "GoldenStep"]


@dataclass(frozen=True, kw_only=True)
class GoldenStep:
    """The largest logits after one position, best first, as computed by NumPy."""

    token_ids: tuple[int, ...]
    logits: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Golden:
    """A prompt and its greedy continuation: step k holds the largest logits before token k.

    Token k of the continuation is `steps[k].token_ids[0]`.
    """

    prompt: str
    prompt_ids: tuple[int, ...]
    steps: tuple[GoldenStep, ...]


@dataclass(frozen=True, kw_only=True)
class GoldenRow:
    """A position of the KV caches of one layer, as computed by NumPy.

    prompt    the number of the golden prompt, which was read up to this position
    offset    the first of these bytes in the saved rows of a position, see Runtime.save
    integers  of the keys' G heads of width D, then of the values' heads: 2 * G * D.
              For caches of f16, values divided by their scale and rounded
    scales    of the heads: 2 * G. For caches of f16, one for all keys and one for all values:
              their largest magnitude divided by 32767. For caches of i4, one for each 32 columns
    dtype     the dtype of the caches; i4 if keys are of i6 and values of i4
    tolerance the largest mean difference of a head that passes, in steps of its integers; None
              stands for the usual one of the dtype
    """

    prompt: int
    offset: int
    integers: tuple[int, ...]
    scales: tuple[float, ...]
    dtype: Literal["i4", "i8", "f16"] = field(default="i8", metadata=OMITTED)
    tolerance: float | None = field(default=None, metadata=OMITTED)


@dataclass(frozen=True, kw_only=True)
class GoldenState:
    """The first values of a state of the first layer, after a golden prompt and its continuation.

    The last token of the continuation was not read.

    prompt  the number of the golden prompt
    offset  the first of these bytes in saved states, see Runtime.save_states
    values  those values, f32
    """

    prompt: int
    offset: int
    values: tuple[float, ...]
