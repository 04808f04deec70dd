"""How a model reads sound: the spectrogram that its tower reads, and the tokens around its rows."""

from __future__ import annotations

from dataclasses import dataclass

from hearthd.bundle.bundle_errors import NotABundle
from hearthd.bundle.file_records import MANIFEST

__all__ = ["GoldenSound", "SoundInput"]

_MAX_MELS = 1024
_MAX_FRAMES = 64
_MAX_ROWS = 2**16
_FRAMES_PER_SECOND = 100


@dataclass(frozen=True, kw_only=True)
class GoldenSound:
    """The last row of embeddings of a tone that rises, as computed by NumPy.

    samples  of the sound
    mels     bands of its spectrogram
    values   those of the row: E
    """

    samples: int
    mels: int
    values: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class SoundInput:
    """How a sound becomes a spectrogram, which the tower reads, and a text around its rows.

    mels         bands of a spectrogram, see `hearthd.runtime.sound_features`
    frames       of a spectrogram that give one row of embeddings
    max_rows     rows of the longest sound
    marker       what the chat template writes for a sound
    start        special token before the rows of a sound
    placeholder  special token that stands for the rows in texts
    end          special token after a sound
    """

    mels: int
    frames: int
    max_rows: int
    marker: str
    start: str
    placeholder: str
    end: str

    def __post_init__(self) -> None:
        """Raises NotABundle for a size out of range."""
        limits = {
            "mels": (self.mels, _MAX_MELS),
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
    def max_seconds(self) -> float:
        """The longest sound, in seconds."""
        return self.max_rows * self.frames / _FRAMES_PER_SECOND

    def rows(self, frames: int) -> int:
        """The rows of embeddings of a spectrogram."""
        return -(-frames // self.frames)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The rows of each entry point, rising: shorter sounds take less time."""
        return tuple(sorted({max(1, self.max_rows // 4), self.max_rows}))

    @property
    def text(self) -> str:
        """The text of a sound."""
        return f"{self.start}{self.placeholder}{self.end}"
