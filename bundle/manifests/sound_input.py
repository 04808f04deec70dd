"""How a model reads sound: the frames that its tower reads, and the tokens around its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from hearthd.bundle.bundle_errors import NotABundle
from hearthd.bundle.file_records import MANIFEST

__all__ = ["GoldenSound", "SoundFeatures", "SoundInput"]

SoundFeatures: TypeAlias = Literal["log_mel", "samples"]

_MAX_WIDTH = 1024
_MAX_FRAMES = 64
_MAX_ROWS = 2**16
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
class SoundInput:
    """How a sound becomes frames, which the tower reads, and a text around its rows.

    features     a log-mel spectrogram or the samples, see `hearthd.runtime.media.sound_features`
    width        values of a frame: bands of a spectrogram, or samples
    frames       that give one row of embeddings
    max_rows     rows of the longest sound
    marker       what the chat template writes for a sound
    start        special token before the rows of a sound
    placeholder  special token that stands for the rows in texts
    end          special token after a sound
    """

    features: SoundFeatures
    width: int
    frames: int
    max_rows: int
    marker: str
    start: str
    placeholder: str
    end: str

    def __post_init__(self) -> None:
        """Raises NotABundle for a size out of range."""
        limits = {
            "width": (self.width, _MAX_WIDTH),
            "frames": (self.frames, _MAX_FRAMES),
            "max_rows": (self.max_rows, _MAX_ROWS),
        }
        for name, (size, largest) in limits.items():
            if not 1 <= size <= largest:
                raise NotABundle(f"{MANIFEST}.sound.{name}: got {size}, expected 1 to {largest}")

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """The special tokens that a tokenizer must have."""
        return self.start, self.placeholder, self.end

    @property
    def hop(self) -> int:
        """Samples between the starts of two frames that follow each other."""
        return self.width if self.features == "samples" else _HOP

    @property
    def max_samples(self) -> int:
        """The longest sound, in samples."""
        return self.max_rows * self.frames * self.hop

    @property
    def max_seconds(self) -> float:
        """The longest sound, in seconds."""
        return self.max_samples / _SAMPLE_RATE

    def rows(self, frames: int) -> int:
        """The rows of embeddings of some frames."""
        return -(-frames // self.frames)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The rows of each entry point, rising: shorter sounds take less time."""
        return tuple(sorted({max(1, self.max_rows // 4), self.max_rows}))

    @property
    def text(self) -> str:
        """The text of a sound."""
        return f"{self.start}{self.placeholder}{self.end}"
