"""Record what transformers computes with the Whisper of tests/baker/small_whisper.py.

pip install -e ".[families]"
python -m tests.golden.record_whisper
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from tests.baker.small_whisper import (
    CONTEXT,
    GOLDEN,
    GOLDEN_SECONDS,
    LANGUAGES,
    MELS,
    RATE,
    STATES,
    VOCABULARY,
    noise,
    small_whisper,
)

# transformers fills the last window, which ends behind the sound, with other values.
_LAST_START = GOLDEN_SECONDS - 1
_WIDE_MELS = 128  # of large-v3


def main() -> None:
    """Write spectrograms, logits and segments."""
    with tempfile.TemporaryDirectory() as parent:
        folder = small_whisper(Path(parent, "weights"))
        model = transformers.WhisperForConditionalGeneration.from_pretrained(folder).eval()
    sound = noise(GOLDEN_SECONDS)
    window = _spectrogram(sound[: RATE * 2 // 3], MELS, padding="max_length")
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, CONTEXT)
    with torch.no_grad():
        logits = model(window, decoder_input_ids=torch.tensor(tokens)[None]).logits[0]
        whole = _spectrogram(sound, MELS, padding="longest")
        languages = [int(model.detect_language(part)[0]) for part in whole.split(2 * STATES, 2)]
        segments = model.generate(
            whole,
            attention_mask=torch.ones(1, whole.shape[-1], dtype=torch.long),
            language="en",
            task="transcribe",
            return_timestamps=True,
            return_segments=True,
            condition_on_prev_tokens=True,
            temperature=0.0,
        )["segments"][0]
    kept = [segment for segment in segments if float(segment["start"]) < _LAST_START]
    arrays: dict[str, Any] = {
        "spectrogram": window[0].numpy(),
        "wide": _spectrogram(sound[:RATE], _WIDE_MELS, padding="max_length")[0].numpy()[::8],
        "tokens": tokens.astype(np.int32),
        "logits": logits.numpy()[:: CONTEXT // 8],
        "languages": np.array([id_ - 258 for id_ in languages], np.int32),
        "times": np.array([[float(each["start"]), float(each["end"])] for each in kept]),
    }
    assert max(arrays["languages"]) < len(LANGUAGES)
    for index, segment in enumerate(kept):
        arrays[f"segment_{index}"] = segment["tokens"].numpy().astype(np.int32)
    np.savez_compressed(GOLDEN, **arrays)


def _spectrogram(sound: Any, mels: int, *, padding: str) -> torch.Tensor:
    extractor = transformers.WhisperFeatureExtractor(feature_size=mels, chunk_length=1)
    features = extractor(
        sound, sampling_rate=RATE, return_tensors="pt", truncation=False, padding=padding
    )
    result: torch.Tensor = features["input_features"]
    return result


if __name__ == "__main__":
    main()
