"""Whisper in NumPy against transformers; `python -m tests.golden.record_whisper` records it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from hearthd.runtime.media.log_mel import HOP, MARGIN, log_mel
from hearthd.server.speech.alignment import first_states
from tests.baker.small_whisper import (
    CONTEXT,
    GOLDEN,
    GOLDEN_SECONDS,
    MELS,
    RATE,
    STATES,
    WORD_TIMES,
    noise,
)
from tests.server.speech.listeners import NumpyListener

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

FRAMES = 2 * STATES


@pytest.fixture(scope="module")
def golden() -> Mapping[str, Any]:
    with np.load(GOLDEN) as arrays:
        return dict(arrays)


def test_spectrograms_are_those_of_transformers(golden: Mapping[str, Any]) -> None:
    """Of a sound that is shorter than the window, and with the mels of large-v3."""
    sound = noise(GOLDEN_SECONDS)
    short = log_mel(sound[: RATE * 2 // 3], mels=MELS, frames=FRAMES)
    assert np.abs(short - golden["spectrogram"]).max() < 1e-5
    wide = log_mel(sound[:RATE], mels=128, frames=FRAMES)[::8, : FRAMES - 2]
    assert np.abs(wide - golden["wide"][:, : FRAMES - 2]).max() < 1e-5


@pytest.mark.parametrize("position", [HOP, 40 * HOP])
def test_a_later_window_has_the_frames_of_the_whole_sound(position: int) -> None:
    """Also at the second frame, whose samples begin before the sound."""
    sound = noise(2.0)
    whole = log_mel(sound, mels=MELS, frames=2 * FRAMES)
    lead = min(position, MARGIN)
    part = log_mel(sound[position - lead :], mels=MELS, frames=FRAMES, lead=lead)
    first = position // HOP
    assert np.abs(part - whole[:, first : first + FRAMES]).max() < 1e-5


def test_logits_are_those_of_transformers(golden: Mapping[str, Any], tmp_path: Path) -> None:
    """After single tokens, and after a prefill of several whose last ones are padding."""
    listener = NumpyListener(tmp_path)
    listener.hear(golden["spectrogram"])
    tokens = golden["tokens"].tolist()
    step = CONTEXT // len(golden["logits"])
    for index, expected in enumerate(golden["logits"]):
        begin = max(0, (index - 1) * step + 1)
        logits = listener.read(tokens[begin : index * step + 1], begin)
        assert np.abs(logits - expected).max() < 1e-4


def test_tokens_are_spoken_when_transformers_says(
    golden: Mapping[str, Any], tmp_path: Path
) -> None:
    """Without alignment heads in its files: the heads of the upper half of the layers."""
    with np.load(WORD_TIMES) as expected:
        attention, starts = expected["attention"], expected["starts"]
        tokens, skipped = expected["tokens"].tolist(), int(expected["skipped"])
    listener = NumpyListener(tmp_path, prefill=16)
    listener.hear(golden["spectrogram"])
    listener.read(tokens, 0)
    scores = listener.align(tokens)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    assert np.abs(weights - attention).max() < 1e-5
    assert first_states(scores, skipped=skipped).tolist() == starts.tolist()
