"""The forms of a transcript: json, text, srt, vtt, verbose_json, and the events of a stream."""

from collections.abc import Set
from typing import Literal

from pydantic import BaseModel, Field

from hearthd.server.api.sse import NamedEvent
from hearthd.server.speech.transcription import Segment, TranscribedWindow

_MS_PER_HOUR, _MS_PER_MINUTE, _MS_PER_SECOND = 3_600_000, 60_000, 1000


class DurationUsage(BaseModel):
    """What a request is billed for elsewhere: the length of the sound."""

    type: Literal["duration"]
    seconds: int = Field(description="Length of the sound in seconds, rounded up.")


class InputDetails(BaseModel):
    """Kinds of the prompt's tokens."""

    text_tokens: int = Field(description="Tokens of the instruction.")
    audio_tokens: int = Field(description="Positions that the sound takes.")


class TokenUsage(BaseModel):
    """Token counts, of a model that reads sound in a prompt."""

    type: Literal["tokens"]
    input_tokens: int = Field(description="Tokens of the prompt, positions of the sound included.")
    input_token_details: InputDetails
    output_tokens: int = Field(description="Tokens of the text.")
    total_tokens: int = Field(description="Sum of both.")


class Transcript(BaseModel):
    """The text."""

    text: str = Field(description="The whole text.")
    usage: DurationUsage | TokenUsage = Field(
        description="Seconds of the sound with Whisper, tokens with other models."
    )


class TranscriptSegment(BaseModel):
    """A part of the text with its times."""

    id: int = Field(description="Position of the segment, from 0.")
    seek: int = Field(description="Begin of its window of sound, in hundredths of a second.")
    start: float = Field(description="Begin in seconds.")
    end: float = Field(description="End in seconds.")
    text: str = Field(description="The text, with the space before it.")
    tokens: list[int] = Field(description="Ids of its tokens, times included.")
    temperature: float = Field(description="Temperature at which its window was sampled.")
    avg_logprob: float = Field(description="Mean log-probability of the tokens of its window.")
    compression_ratio: float = Field(
        description="Bytes of the window's text per compressed byte: above 2.4 it repeats itself."
    )
    no_speech_prob: float = Field(description="Probability that nobody speaks in its window.")


class TranscriptWord(BaseModel):
    """A word with its times."""

    word: str = Field(description="The word with its punctuation, without spaces.")
    start: float = Field(description="Begin in seconds.")
    end: float = Field(description="End in seconds.")


class VerboseTranscript(BaseModel):
    """The text with its language, its duration, and its segments or words."""

    task: Literal["transcribe", "translate"] = Field(description="What the route does.")
    language: str = Field(description="Code of the language that is spoken, such as en.")
    duration: float = Field(description="Length of the sound in seconds.")
    text: str = Field(description="The whole text.")
    words: list[TranscriptWord] | None = Field(
        None, description="The words, in order.", exclude_if=lambda words: words is None
    )
    segments: list[TranscriptSegment] | None = Field(
        None, description="The parts, in order.", exclude_if=lambda segments: segments is None
    )
    usage: DurationUsage


class TranscriptDelta(NamedEvent):
    """More of the text."""

    type: Literal["transcript.text.delta"] = "transcript.text.delta"
    delta: str = Field(description="The text of a segment.")


class TranscriptDone(NamedEvent):
    """The whole text, at the end of a stream."""

    type: Literal["transcript.text.done"] = "transcript.text.done"
    text: str = Field(description="The whole text.")
    usage: DurationUsage | TokenUsage = Field(
        description="Seconds of the sound with Whisper, tokens with other models."
    )


class TranscriptWriter:
    """Joins what windows add to a transcript; `times` has what verbose_json has times of."""

    def __init__(
        self, task: Literal["transcribe", "translate"], *, times: Set[str] = frozenset({"segment"})
    ) -> None:
        self._task = task
        self._times = times
        self._segments: list[Segment] = []
        self._language = ""
        self._seconds = 0.0

    def add(self, window: TranscribedWindow) -> list[TranscriptDelta]:
        """Add a window; returns the events of a stream."""
        deltas = []
        for segment in window.segments:
            text = segment.text if self._segments else segment.text.lstrip()
            deltas.append(TranscriptDelta(delta=text))
            self._segments.append(segment)
        self._language, self._seconds = window.language, window.seconds
        return deltas

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(segment.text for segment in self._segments).lstrip()

    def json(self) -> Transcript:
        """`json`."""
        return Transcript(text=self.text, usage=self._usage)

    def done(self) -> TranscriptDone:
        """The last event of a stream."""
        return TranscriptDone(text=self.text, usage=self._usage)

    @property
    def _usage(self) -> DurationUsage:
        return DurationUsage(type="duration", seconds=-int(-self._seconds // 1))

    def verbose(self) -> VerboseTranscript:
        """`verbose_json`."""
        return VerboseTranscript(
            task=self._task,
            language=self._language,
            duration=self._seconds,
            text=self.text,
            words=self._words() if "word" in self._times else None,
            segments=[_segment(index, each) for index, each in enumerate(self._segments)]
            if "segment" in self._times
            else None,
            usage=self._usage,
        )

    def _words(self) -> list[TranscriptWord]:
        return [
            TranscriptWord(
                word=word.text.strip(), start=round(word.start, 3), end=round(word.end, 3)
            )
            for segment in self._segments
            for word in segment.words
        ]

    def srt(self) -> str:
        """`srt`: SubRip."""
        return "".join(
            f"{number}\n{_time(each.start, ',')} --> {_time(each.end, ',')}\n{_line(each)}\n\n"
            for number, each in enumerate(self._segments, 1)
        )

    def vtt(self) -> str:
        """`vtt`: WebVTT."""
        return "WEBVTT\n\n" + "".join(
            f"{_time(each.start, '.')} --> {_time(each.end, '.')}\n{_line(each)}\n\n"
            for each in self._segments
        )


def _segment(index: int, segment: Segment) -> TranscriptSegment:
    window = segment.window
    return TranscriptSegment(
        id=index,
        seek=round(100 * segment.seek),
        start=round(segment.start, 3),
        end=round(segment.end, 3),
        text=segment.text,
        tokens=list(segment.tokens),
        temperature=window.temperature,
        avg_logprob=window.logprob,
        compression_ratio=window.compression,
        no_speech_prob=window.no_speech,
    )


def _line(segment: Segment) -> str:
    """The text as a cue has it: an arrow would be read as times."""
    return segment.text.strip().replace("-->", "->")


def _time(seconds: float, point: str) -> str:
    """Such as 00:01:02,345."""
    total = round(1000 * seconds)
    hours, rest = divmod(total, _MS_PER_HOUR)
    minutes, rest = divmod(rest, _MS_PER_MINUTE)
    full_seconds, milliseconds = divmod(rest, _MS_PER_SECOND)
    return f"{hours:02}:{minutes:02}:{full_seconds:02}{point}{milliseconds:03}"
