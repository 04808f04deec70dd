"""The frames of a sound that a language model reads, from samples.

Source: Gemma4AudioFeatureExtractor, Gemma4UnifiedAudioFeatureExtractor and WhisperFeatureExtractor
of transformers (2026), the last one as VoxtralProcessor, Qwen2AudioProcessor,
Qwen2_5OmniProcessor and fixie-ai's UltravoxProcessor call it.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from hearthd.runtime.media.log_mel import HOP, SAMPLE_RATE, log_mel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hearthd.bundle import SoundInput

MAX_SAMPLES = 30 * SAMPLE_RATE
_WINDOW, _TRANSFORM = 320, 512
_MULTIPLE = 128  # samples that a sound is padded to
_FLOOR = 1e-3
_MIN_HOPS = 2  # of a sound in Whisper's spectrogram; a shorter one is padded


def sound_windows(samples: NDArray[np.float32], settings: SoundInput) -> list[NDArray[np.float32]]:
    """The frames f32 (T, width) of each window of mono samples at SAMPLE_RATE.

    None of a sound that is too short.
    """
    if not len(samples):
        return []
    if settings.features == "whisper":
        return _whisper_windows(samples, settings)
    if settings.features == "samples":
        padded = np.pad(samples, (0, -len(samples) % settings.width))
        return [padded.reshape(-1, settings.width)]
    features, count = sound_features(samples, mels=settings.width)
    return [features[:count].copy()] if count else []  # without the frames of padding


def _whisper_windows(
    samples: NDArray[np.float32], settings: SoundInput
) -> list[NDArray[np.float32]]:
    """The windows of Whisper's spectrogram, whose range is bounded by the loudest frame of all."""
    count = max(_MIN_HOPS, -(-len(samples) // HOP))
    size, margin = settings.window_frames, settings.margin
    if settings.padded:
        count = -(-count // size) * size
    longest = settings.windows * size
    # Silence follows a sound, but for the longest one.
    computed = min(count + margin + _MIN_HOPS, longest) if margin else count
    frames = log_mel(samples, mels=settings.width, frames=computed, mirrors_end=True).T
    # Behind the longest sound are zeros, as the tower's convolutions pad it.
    frames = np.pad(frames, ((0, margin), (0, 0)))
    windows = (frames[start : min(start + size, count) + margin] for start in range(0, count, size))
    return [np.ascontiguousarray(each) for each in windows if settings.rows(len(each)) > 0]


def sound_features(samples: NDArray[np.float32], *, mels: int) -> tuple[NDArray[np.float32], int]:
    """The spectrogram f32 (T, mels) of mono samples at SAMPLE_RATE, and the frames of the sound.

    The first frame is centered at the first sample. Frames that reach beyond the sound are zeros.
    """
    count = min(len(samples), MAX_SAMPLES)
    padded = np.zeros(_WINDOW // 2 + -(-count // _MULTIPLE) * _MULTIPLE, np.float64)
    padded[_WINDOW // 2 : _WINDOW // 2 + count] = samples[:count]
    if len(padded) <= _WINDOW:
        return np.zeros((0, mels), np.float32), 0
    # A frame has a sample more, for an emphasis that Gemma 4 does not use.
    frames = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW + 1)[::HOP, :-1]
    window = np.hanning(_WINDOW + 1)[:-1].astype(np.float32)
    magnitudes = np.abs(np.fft.rfft(frames * window, n=_TRANSFORM))
    features = np.log(magnitudes @ _filters(mels) + _FLOOR)
    inside = np.arange(len(features)) * HOP + _WINDOW < _WINDOW // 2 + count
    features[~inside] = 0.0
    return features.astype(np.float32), int(inside.sum())


def golden_frames(count: int, settings: SoundInput) -> NDArray[np.float32]:
    """The frames f32 (T, width) of `count` samples of a tone that rises from 100 Hz."""
    seconds = np.arange(count) / SAMPLE_RATE
    samples = 0.5 * np.sin(2 * np.pi * (100 + 900 * seconds) * seconds)
    return sound_windows(samples.astype(np.float32), settings)[0]


@functools.cache
def _filters(mels: int) -> NDArray[np.float64]:
    """Triangles of height 1, evenly spaced in HTK's mels: (bins, mels)."""
    top = 2595.0 * np.log10(1.0 + SAMPLE_RATE / 2 / 700.0)
    edges = 700.0 * (10.0 ** (np.linspace(0.0, top, mels + 2) / 2595.0) - 1.0)
    bins = np.linspace(0.0, SAMPLE_RATE / 2, _TRANSFORM // 2 + 1)[:, np.newaxis]
    widths = np.diff(edges)
    rising, falling = (bins - edges[:-2]) / widths[:-1], (edges[2:] - bins) / widths[1:]
    return np.asarray(np.maximum(0.0, np.minimum(rising, falling)))
