"""The text of one window of sound: greedy decoding, and sampling where its text is implausible.

Source: `decode_with_fallback` in transcribe.py of OpenAI's Whisper.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from hearthd.bundle import SpeechManifest
    from hearthd.runtime.speech_model import Listener
    from hearthd.server.speech.token_rules import TokenRules

_MAX_COMPRESSION, _MIN_LOGPROB, _MIN_NO_SPEECH = 2.4, -1.0, 0.6
_TEMPERATURE_STEP = 0.2


class Stopped(Exception):
    """Nobody waits for the text any more."""


@dataclass(frozen=True, kw_only=True)
class WindowText:
    """The text of a window.

    tokens       with times, without the end
    temperature  at which they were sampled
    logprob      the mean log-probability of the tokens and of the end
    compression  bytes of the text for each byte of its compressed form: high if it repeats itself
    no_speech    the probability that nobody speaks
    """

    tokens: tuple[int, ...]
    temperature: float
    logprob: float
    compression: float
    no_speech: float

    @property
    def is_silent(self) -> bool:
        """Whether nobody speaks."""
        return self.no_speech > _MIN_NO_SPEECH and self.logprob < _MIN_LOGPROB

    @property
    def is_plausible(self) -> bool:
        """Whether the text needs no second attempt."""
        return self.is_silent or (
            self.compression <= _MAX_COMPRESSION and self.logprob >= _MIN_LOGPROB
        )


def temperatures(first: float) -> list[float]:
    """The temperatures that are tried: the first one, and higher ones up to 1."""
    count = int((1.0 - first) / _TEMPERATURE_STEP + 1e-6)
    return [first, *(round(first + _TEMPERATURE_STEP * i, 6) for i in range(1, count + 1))]


class WindowDecoder:
    """Decodes the windows of one request, on a listener that has heard the window.

    `text_of` decodes tokens, and `stopped` ends the work with Stopped.
    """

    def __init__(
        self,
        listener: Listener,
        manifest: SpeechManifest,
        rules: TokenRules,
        text_of: Callable[[Sequence[int]], str],
        stopped: threading.Event,
    ) -> None:
        self._listener = listener
        self._tokens, self._context = manifest.tokens, manifest.context
        self._rules = rules
        self._text_of = text_of
        self._stopped = stopped
        self._random = np.random.default_rng(0)

    def language(self) -> str:
        """The code of the most probable language of the window."""
        logits = self._listener.read([self._tokens.start], 0)
        languages = self._tokens.languages
        return max(languages, key=lambda code: float(logits[languages[code]]))

    def decode(
        self, begin: Sequence[int], previous: Sequence[int], temperature: float
    ) -> WindowText:
        """The text after the tokens `begin`, which start with `start`.

        `previous` are the tokens before the window.
        """
        prompt = list(previous[-(self._context // 2 - 1) :])
        prefix = [*([self._tokens.previous, *prompt] if prompt else ()), begin[0]]
        logits = self._listener.read(prefix, 0)
        no_speech = _probability(logits, self._tokens.no_speech)
        position = len(prefix) + len(begin) - 1
        if len(begin) > 1:
            logits = self._listener.read(begin[1:], len(prefix))
        for attempt in temperatures(temperature):
            tokens, logprob = self._attempt(logits.copy(), position, attempt)
            text = WindowText(
                tokens=tokens,
                temperature=attempt,
                logprob=logprob,
                compression=self._compression(tokens),
                no_speech=no_speech,
            )
            if text.is_plausible:
                break
        return text

    def _attempt(
        self, logits: NDArray[np.float32], position: int, temperature: float
    ) -> tuple[tuple[int, ...], float]:
        """Sample tokens up to the end, from `position` on; also their mean log-probability."""
        written: list[int] = []
        total = 0.0
        for _ in range(min(self._context // 2, self._context - position)):
            if self._stopped.is_set():
                raise Stopped
            self._rules.apply(logits, written)
            token = self._sample(logits, temperature)
            total += _log_probability(logits, token)
            if token == self._tokens.end:
                break
            written.append(token)
            if position + len(written) > self._context - 1:
                break
            logits = self._listener.read([token], position + len(written) - 1)
        return tuple(written), total / (len(written) + 1)

    def _sample(self, logits: NDArray[np.float32], temperature: float) -> int:
        if temperature == 0.0:
            return int(logits.argmax())
        noise = self._random.gumbel(size=logits.shape)
        return int((logits / temperature + noise).argmax())

    def _compression(self, tokens: Sequence[int]) -> float:
        data = self._text_of(tokens).encode()
        return len(data) / len(zlib.compress(data))


def _log_probability(logits: NDArray[np.float32], token: int) -> float:
    top = float(logits.max())
    return float(logits[token]) - top - float(np.log(np.exp(logits - top).sum()))


def _probability(logits: NDArray[np.float32], token: int) -> float:
    return float(np.exp(_log_probability(logits, token)))
