"""The times of words: from the alignment, with limits on the length of a word.

Source: `add_word_timestamps` in timing.py of OpenAI's Whisper.
"""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hearthd.server.speech.alignment import first_states
from hearthd.server.speech.token_rules import TIME_STEP
from hearthd.server.speech.word_splitting import join_punctuation, words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hearthd.bundle import SpeechTokens
    from hearthd.runtime.speech_model import Listener
    from hearthd.server.speech.transcription import Segment
    from hearthd.server.speech.word_splitting import SpokenWord

_SENTENCE_ENDS = ".。!！?？"  # noqa: RUF001 - full-width marks
_MAX_MEDIAN = 0.7  # seconds
_PAUSE = 4  # medians of silence before a word that is checked
_SLACK = 0.5  # seconds that a word can exceed its segment by


@dataclass(frozen=True, kw_only=True)
class Word:
    """A word with the space before it and its punctuation; times in seconds of the sound."""

    text: str
    start: float
    end: float


class WordTimer:
    """The times of the words of one request, window after window."""

    def __init__(self, tokens: SpeechTokens, text_of: Callable[[Sequence[int]], str]) -> None:
        self._tokens = tokens
        self._text_of = text_of
        self._spoken_until = 0.0

    def timed(
        self,
        segments: Sequence[Segment],
        listener: Listener,
        begin: Sequence[int],
        *,
        states: int,
        language: str,
    ) -> list[Segment]:
        """The segments of the window that was heard, with words, whose times they take.

        `begin` are the tokens before the text. `states` have sound: the others are silence.
        """
        texts = [[t for t in segment.tokens if t < self._tokens.end] for segment in segments]
        text = [token for each in texts for token in each]
        words = words_of(text, self._text_of, language)
        if not words:
            return list(segments)
        read = [*begin, self._tokens.no_timestamps, *text, self._tokens.end]
        scores = listener.align(read)[:, :, :states]
        starts = first_states(scores, skipped=len(begin)) * TIME_STEP
        bounds = np.cumsum([0, *(word.tokens for word in words)])
        for word, (first, end) in zip(words, itertools.pairwise(bounds), strict=True):
            word.start, word.end = float(starts[first]), float(starts[end])
        median = _median_duration(words)
        _shorten_at_sentence_ends(words, 2 * median)
        join_punctuation(words)
        result, index = [], 0
        for segment, tokens in zip(segments, texts, strict=True):
            first, count = index, 0
            while index < len(words) and count < len(tokens):
                count += words[index].tokens
                index += 1
            result.append(self._with_words(segment, words[first:index], median))
        return result

    def _with_words(self, segment: Segment, spoken: Sequence[SpokenWord], median: float) -> Segment:
        """The segment with its words; its times and theirs fit each other."""
        words = [word for word in spoken if word.text]
        if not words:
            return segment
        for word in words:
            word.start = round(segment.seek + word.start, 2)
            word.end = round(segment.seek + word.end, 2)
        if words[0].end - self._spoken_until > _PAUSE * median:
            _shorten_after_pause(words, 2 * median)
        start, end, first, last = segment.start, segment.end, words[0], words[-1]
        if start < first.end and start - _SLACK > first.start:
            first.start = max(0.0, min(first.end - median, start))
        else:
            start = first.start
        if end > last.start and end + _SLACK < last.end:
            last.end = max(last.start + median, end)
        else:
            end = last.end
        self._spoken_until = end
        timed = tuple(Word(text=word.text, start=word.start, end=word.end) for word in words)
        return dataclasses.replace(segment, start=start, end=end, words=timed)


def _median_duration(words: Sequence[SpokenWord]) -> float:
    durations = [word.end - word.start for word in words if word.end != word.start]
    return min(_MAX_MEDIAN, float(np.median(durations))) if durations else 0.0


def _shorten_at_sentence_ends(words: Sequence[SpokenWord], limit: float) -> None:
    if limit == 0.0:
        return
    for previous, word in itertools.pairwise(words):
        if word.end - word.start > limit:
            if word.text in _SENTENCE_ENDS:
                word.end = word.start + limit
            elif previous.text in _SENTENCE_ENDS:
                word.start = word.end - limit


def _shorten_after_pause(words: Sequence[SpokenWord], limit: float) -> None:
    """Shorten the first two words to `limit` seconds each."""
    first, second = words[0], words[1] if len(words) > 1 else None
    if first.end - first.start <= limit and (
        second is None or second.end - first.start <= 2 * limit
    ):
        return
    if second is not None and second.end - second.start > limit:
        first.end = second.start = max(second.end / 2, second.end - limit)
    first.start = max(0.0, first.end - limit)
