"""Log-mel spectrograms, the input of models of speech, from samples of sound.

Source: `audio.py` of OpenAI's Whisper, and WhisperFeatureExtractor of transformers.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SAMPLE_RATE = 16_000
HOP = 160
_WINDOW = 400
MARGIN = _WINDOW // 2
_BINS = _WINDOW // 2 + 1
# Slaney's scale: linear up to a frequency in Hz, then logarithmic.
_LINEAR_HZ, _HZ_PER_MEL = 1000.0, 200 / 3
_LINEAR_MELS, _LOG_STEP = _LINEAR_HZ / _HZ_PER_MEL, math.log(6.4) / 27
_SMALLEST, _RANGE = 1e-10, 8.0
_BLOCK = 3000  # frames whose spectra are in memory at once: a window of Whisper


def log_mel(
    samples: NDArray[np.float32],
    *,
    mels: int,
    frames: int,
    lead: int = 0,
    mirrors_end: bool = False,
) -> NDArray[np.float32]:
    """The spectrogram f32 (mels, frames) of mono samples at SAMPLE_RATE, of frames of HOP samples.

    The first `lead` samples, at most MARGIN, come before the first frame; without them it is
    mirrored. MARGIN samples behind the last frame are read, or with `mirrors_end` mirrored, too.
    Missing samples are silence.
    """
    before = MARGIN - lead
    padded = np.zeros(before + lead + frames * HOP + MARGIN, np.float32)
    used = samples[: len(padded) - before]
    padded[before : before + len(used)] = used
    padded[:before] = padded[before + 1 : 2 * before + 1][::-1]
    if mirrors_end:
        padded[-MARGIN:] = padded[-2 * MARGIN - 1 : -MARGIN - 1][::-1]
    windows = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW)[::HOP][:frames]
    log = np.empty((mels, frames), np.float64)
    for start in range(0, frames, _BLOCK):
        log[:, start : start + _BLOCK] = _log_bands(windows[start : start + _BLOCK], mels)
    np.maximum(log, log.max() - _RANGE, out=log)
    log += 4.0
    log /= 4.0
    return log.astype(np.float32)


def _log_bands(windows: NDArray[np.float32], mels: int) -> NDArray[np.float64]:
    """The logarithms of the power in each band of windows of samples (n, WINDOW): (mels, n)."""
    spectrum = np.fft.rfft(windows * _hann())
    power = spectrum.real**2 + spectrum.imag**2
    return np.log10(np.maximum(_filters(mels) @ power.T, _SMALLEST))


@functools.cache
def _hann() -> NDArray[np.float64]:
    """The periodic window (WINDOW,)."""
    return np.hanning(_WINDOW + 1)[:-1]


@functools.cache
def _filters(mels: int) -> NDArray[np.float64]:
    """Triangles of equal area, evenly spaced in mels: (mels, BINS)."""
    top = _LINEAR_MELS + math.log(SAMPLE_RATE / 2 / _LINEAR_HZ) / _LOG_STEP
    mel = np.linspace(0.0, top, mels + 2)
    above = _LINEAR_HZ * np.exp(_LOG_STEP * (mel - _LINEAR_MELS))
    edges = np.where(mel < _LINEAR_MELS, _HZ_PER_MEL * mel, above)
    slopes = edges[:, np.newaxis] - np.linspace(0.0, SAMPLE_RATE / 2, _BINS)
    widths = np.diff(edges)[:, np.newaxis]
    rising, falling = -slopes[:-2] / widths[:-1], slopes[2:] / widths[1:]
    areas = 2.0 / (edges[2:] - edges[:-2])
    return np.maximum(0.0, np.minimum(rising, falling)) * areas[:, np.newaxis]
