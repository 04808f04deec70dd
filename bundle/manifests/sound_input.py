"""How a model reads sound: the frames that its tower reads, and the tokens around its rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from hearthd.bundle.bundle_errors import NotABundle
from hearthd.bundle.file_records import MANIFEST
from hearthd.bundle.provenance import OMITTED

__all__ = ["GoldenSound", "SoundFeatures", "SoundInput", "TranscriptPrompts"]

SoundFeatures: TypeAlias = Literal["log_mel", "samples", "whisper"]

_MAX_WIDTH = 1024
_MAX_FRAMES = 64
_MAX_ROWS = 2**16
_MAX_WINDOWS = 150
_SAMPLE_RATE = 16_000
_HOP = 160  # samples between frames of a spectrogram


@dataclass(frozen=True, kw_only=True)
class GoldenSound:
    """The last row of embeddings of a tone that rises, as computed by NumPy.

    samples  of the sound
    values   of the row: E
    """

    samples: int
    values: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class TranscriptPrompts:
    """What a user asks the model for the words of a sound, which is at {sound}.

    any_language  for the words as they are spoken
    one_language  the same, if the language is known: its English name is at {language}, and its
                  code at {code}
    english       for a translation into English
    token         special token that follows the user's message with the sound alone, in place of
                  the first two; before it, `lang:en` names a known language. May be empty
    """

    any_language: str = (
        "{sound}Transcribe the speech in its original language. Write the transcript only."
    )
    one_language: str = "{sound}Transcribe the speech in {language}. Write the transcript only."
    english: str = "{sound}Translate the speech into English. Write the translation only."
    token: str = ""


@dataclass(frozen=True, kw_only=True)
class SoundInput:
    """How a sound becomes frames, which the tower reads, and a text around its rows.

    features     a log-mel spectrogram or the samples, see `hearthd.runtime.media.sound_features`
    width        values of a frame: bands of a spectrogram, or samples
    frames       that give one row of embeddings
    max_rows     rows of the longest window
    marker       what the chat template writes for a sound, if it writes something
    start        special token before the rows of a sound, or empty
    placeholder  special token that stands for the rows of a window in texts
    end          special token after a sound, or empty
    window       frames of the longest window; 0: as many as give `max_rows` rows
    windows      that the longest sound is cut into; the tower reads one at a time
    padded       whether a sound is padded with silence to complete windows
    margin       frames behind a sound that its last row is computed of, too. A row that would have
                 no more frames of the sound than this is left out
    transcripts  how transcripts are asked for
    """

    features: SoundFeatures
    width: int
    frames: int
    max_rows: int
    marker: str
    start: str
    placeholder: str
    end: str
    window: int = field(default=0, metadata=OMITTED)
    windows: int = field(default=1, metadata=OMITTED)
    padded: bool = field(default=False, metadata=OMITTED)
    margin: int = field(default=0, metadata=OMITTED)
    transcripts: TranscriptPrompts = field(default=TranscriptPrompts(), metadata=OMITTED)

    def __post_init__(self) -> None:
        """Raises NotABundle for a size out of range."""
        limits = {
            "width": (self.width, _MAX_WIDTH),
            "frames": (self.frames, _MAX_FRAMES),
            "max_rows": (self.max_rows, _MAX_ROWS),
            "windows": (self.windows, _MAX_WINDOWS),
            "window": (self.window_frames, self.max_rows * self.frames),
            "margin": (self.margin + 1, self.frames),
        }
        for name, (size, largest) in limits.items():
            if not 1 <= size <= largest:
                raise NotABundle(f"{MANIFEST}.sound.{name}: got {size}, expected 1 to {largest}")

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """The special tokens that a tokenizer must have."""
        return tuple(filter(None, (self.start, self.placeholder, self.end)))

    @property
    def hop(self) -> int:
        """Samples between the starts of two frames that follow each other."""
        return self.width if self.features == "samples" else _HOP

    @property
    def window_frames(self) -> int:
        """Frames of the longest window."""
        return self.window or self.max_rows * self.frames

    @property
    def max_samples(self) -> int:
        """The longest sound, in samples."""
        return self.windows * self.window_frames * self.hop

    @property
    def max_seconds(self) -> float:
        """The longest sound, in seconds."""
        return self.max_samples / _SAMPLE_RATE

    @property
    def min_seconds(self) -> float:
        """A length from which on a sound has a row, in seconds."""
        return 0.03 if self.margin else 0.02

    def rows(self, frames: int) -> int:
        """The rows of embeddings of a window with some frames, the margin among them."""
        return -(-(frames - 2 * self.margin) // self.frames)

    def reading_rows(self, frames: int) -> int:
        """The rows of the smallest entry point that can read some frames."""
        return -(-(frames - self.margin) // self.frames)

    def length(self, rows: int) -> int:
        """The frames that an entry point with some rows reads."""
        return rows * self.frames + self.margin

    @property
    def sizes(self) -> tuple[int, ...]:
        """The rows of each entry point, rising: shorter sounds take less time."""
        shorter = self.max_rows if self.padded else max(1, self.max_rows // 4)
        return tuple(sorted({shorter, self.max_rows}))

    def text(self, windows: int) -> str:
        """The text of a sound that is cut into windows."""
        return f"{self.start}{self.placeholder * windows}{self.end}"
