"""The text of a sound of any length: windows that advance to the end of the last complete text.

Source: `transcribe` in transcribe.py of OpenAI's Whisper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hearthd.runtime.media.log_mel import HOP, MARGIN, SAMPLE_RATE, log_mel
from hearthd.server.speech.token_rules import TIME_STEP, TokenRules
from hearthd.server.speech.window_decoding import WindowDecoder
from hearthd.server.speech.word_times import WordTimer

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Sequence

    from hearthd.bundle import SpeechManifest
    from hearthd.runtime.speech_model import Listener
    from hearthd.server.speech.sound import Sound
    from hearthd.server.speech.window_decoding import WindowText
    from hearthd.server.speech.word_times import Word

ENGLISH = "en"
_FRAMES_PER_STATE = 2
# Of full scale, -66 dB: a window of smaller samples is silent, and Whisper would hear words in it.
_MIN_PEAK = 5e-4
# Text at a higher temperature is not a good example for the next window.
_MAX_EXAMPLE_TEMPERATURE = 0.5


@dataclass(frozen=True, kw_only=True)
class SpeechOptions:
    """What a request asks for.

    language     a code of the model's; None to detect it
    translate    into English
    prompt       tokens of a text that comes before the sound
    temperature  of the first attempt
    words        whether to compute the times of words, of a model with alignment heads
    """

    language: str | None
    translate: bool
    prompt: tuple[int, ...]
    temperature: float
    words: bool = False


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A part of the text.

    start, end  in seconds of the sound
    seek        the begin of its window, in seconds
    tokens      with the times around it
    window      of its window
    words       with their times, if the request asks for them
    """

    start: float
    end: float
    text: str
    tokens: tuple[int, ...]
    seek: float
    window: WindowText
    words: tuple[Word, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TranscribedWindow:
    """The segments of a window, the language of the sound, and the seconds read so far."""

    segments: tuple[Segment, ...]
    language: str
    seconds: float


class Transcriber:
    """Transcribes sounds with one model; `text_of` decodes tokens. For any thread."""

    def __init__(self, manifest: SpeechManifest, text_of: Callable[[Sequence[int]], str]) -> None:
        self._manifest = manifest
        self._rules = TokenRules(manifest.tokens)
        self._decode = text_of

    def transcribe(
        self, sound: Sound, options: SpeechOptions, listener: Listener, stopped: threading.Event
    ) -> Iterator[TranscribedWindow]:
        """The segments of each window, in order; raises InvalidRequest or Stopped.

        Between two windows the listener may hear others.
        """
        manifest = self._manifest
        frames = _FRAMES_PER_STATE * manifest.states
        decoder = WindowDecoder(listener, manifest, self._rules, self.text_of, stopped)
        timer = WordTimer(manifest.tokens, self.text_of) if options.words else None
        language = options.language
        previous = list(options.prompt)
        position = 0
        while True:
            lead = min(position, MARGIN)
            samples = sound.read(position - lead, lead + frames * HOP + MARGIN)
            if len(samples) <= lead:
                return
            count = min(len(samples) - lead, frames * HOP)
            seek, length = position / SAMPLE_RATE, count / SAMPLE_RATE
            segments: list[Segment] = []
            advance = length
            if np.abs(samples[lead : lead + count]).max() >= _MIN_PEAK:
                listener.hear(log_mel(samples, mels=manifest.mels, frames=frames, lead=lead))
                if language is None:
                    language = decoder.language() if manifest.tokens.languages else ENGLISH
                begin = self._begin(language, translate=options.translate)
                window = decoder.decode(begin, previous, options.temperature)
                if not window.is_silent:
                    segments, advance = self._segments(window, seek, length)
                if timer is not None and segments:
                    states = max(1, count // (_FRAMES_PER_STATE * HOP))
                    segments = timer.timed(
                        segments, listener, begin, states=states, language=language
                    )
                    words = [word for segment in segments for word in segment.words]
                    end = words[-1].end if words else segments[-1].end
                    if not self._ends_with_one_time(window.tokens) and end > seek:
                        advance = end - seek
                previous += [token for segment in segments for token in segment.tokens]
                if window.temperature > _MAX_EXAMPLE_TEMPERATURE:
                    previous = []
            position += round(advance * SAMPLE_RATE)
            yield TranscribedWindow(
                segments=tuple(segments), language=language or ENGLISH, seconds=seek + length
            )

    def text_of(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without times."""
        end = self._manifest.tokens.end
        return self._decode([token for token in tokens if token < end])

    def _begin(self, language: str, *, translate: bool) -> list[int]:
        tokens = self._manifest.tokens
        if not tokens.languages:
            return [tokens.start]
        task = tokens.translate if translate else tokens.transcribe
        assert task is not None, "a model of several languages has tokens of both tasks"
        return [tokens.start, tokens.languages[language], task]

    def _ends_with_one_time(self, tokens: Sequence[int]) -> bool:
        """Whether no text follows the last one in the window."""
        return [token >= self._rules.first_time for token in tokens[-2:]] == [False, True]

    def _segments(
        self, window: WindowText, seek: float, length: float
    ) -> tuple[list[Segment], float]:
        """The segments of a window, and the seconds after which the next one begins."""
        first_time, tokens = self._rules.first_time, window.tokens
        is_time = [token >= first_time for token in tokens]

        def seconds(token: int) -> float:
            return (token - first_time) * TIME_STEP

        def segment(part: tuple[int, ...], start: float, end: float) -> Segment:
            return Segment(
                start=seek + start,
                end=seek + end,
                text=self.text_of(part),
                tokens=part,
                seek=seek,
                window=window,
            )

        ends = [i for i in range(1, len(tokens)) if is_time[i - 1] and is_time[i]]
        single_end = self._ends_with_one_time(tokens)
        if not ends:
            times = [token for token in tokens if token >= first_time]
            end = seconds(times[-1]) if times and times[-1] != first_time else length
            return _spoken([segment(tokens, 0.0, end)]), length
        if single_end:
            ends.append(len(tokens))
        parts = [tokens[a:b] for a, b in zip([0, *ends], ends, strict=False)]
        segments = [segment(part, seconds(part[0]), seconds(part[-1])) for part in parts]
        advance = length if single_end else seconds(tokens[ends[-1] - 1])
        return _spoken(segments), advance


def _spoken(segments: Sequence[Segment]) -> list[Segment]:
    """The segments with a text."""
    return [each for each in segments if each.text.strip()]
