"""Which tokens may come next in the text of a window: suppressed ones, and times in pairs.

A text begins with a time, so the tokens that Whisper suppresses as the first one need no rule.

Source: `ApplyTimestampRules` in decoding.py of OpenAI's Whisper, and
WhisperTimeStampLogitsProcessor of transformers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hearthd.bundle import SpeechTokens

TIME_STEP = 0.02  # seconds between the times of neighboring tokens
_MAX_INITIAL_TIME = 50  # the first text begins within a second


class TokenRules:
    """The rules of a model's tokens."""

    def __init__(self, tokens: SpeechTokens) -> None:
        self._end = tokens.end
        self.first_time = tokens.no_timestamps + 1
        special = (tokens.start, tokens.previous, tokens.no_speech, tokens.no_timestamps)
        tasks = (id_ for id_ in (tokens.translate, tokens.transcribe) if id_ is not None)
        never = {*tokens.suppressed, *special, *tasks, *tokens.languages.values()}
        self._never = np.array(sorted(never), np.intp)

    def apply(self, logits: NDArray[np.float32], written: Sequence[int]) -> None:
        """Set the logits (V,) of tokens that may not follow `written` to minus infinity."""
        logits[self._never] = -np.inf
        time = self.first_time
        if not written:
            logits[:time] = -np.inf
            logits[time + _MAX_INITIAL_TIME + 1 :] = -np.inf
            return
        if written[-1] >= time:
            if len(written) < 2 or written[-2] >= time:
                logits[time:] = -np.inf  # a text follows its begin
            else:
                logits[: self._end] = -np.inf  # a begin or the end follows the end of a text
        latest = next((token for token in reversed(written) if token >= time), None)
        if latest is not None:
            is_open = written[-1] >= time and len(written) > 1 and written[-2] < time
            logits[time : latest if is_open else latest + 1] = -np.inf
        if _log_sum_exp(logits[time:]) > logits[:time].max():
            logits[:time] = -np.inf


def _log_sum_exp(x: NDArray[np.float32]) -> float:
    top = float(x.max())
    return top + float(np.log(np.exp(x - top).sum())) if np.isfinite(top) else top
