"""A prompt with sounds, and what transformers computes with a case that reads them.

python -m tests.models.families.sounds
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.models.families.cases import CASES
from tests.models.families.image_cases import GEMMA4_TOWERS
from tests.models.families.images import Recorded

if TYPE_CHECKING:
    from numpy.typing import NDArray

FILE = Path(__file__).parents[2] / "golden" / "sounds.npz"
NAME = "gemma4-sound-towers"
SOUND: int = GEMMA4_TOWERS["audio_token_id"]
_MELS: int = GEMMA4_TOWERS["audio_config"]["subsampling_conv_channels"][0]
# Frames of each sound. Only the second one ends with a whole row.
FRAMES = (61, 4, 30)
COUNTS = tuple(-(-frames // 4) for frames in FRAMES)
# A sound first, two side by side, and one before the last token.
PROMPT = (
    *(SOUND,) * COUNTS[0], 5, 17, 80, *(SOUND,) * COUNTS[1], 7, *(SOUND,) * COUNTS[2], 33,
)  # fmt: skip
ANSWER = 12


def spectrograms() -> list[NDArray[np.float32]]:
    """The spectrogram of each sound, f32 (T, mels)."""
    rng = np.random.default_rng(11)
    return [rng.standard_normal((frames, _MELS)).astype(np.float32) for frames in FRAMES]


def recorded() -> Recorded:
    """The recording: `rows` has those of all sounds, one after the other."""
    with np.load(FILE) as file:
        return Recorded(*(file[field] for field in Recorded._fields))


def computed(folder: Path) -> Recorded:
    """What transformers computes with the model in a folder."""
    import torch

    from tests.models.families import oracle

    model = oracle.load(folder)
    features = np.zeros((len(FRAMES), max(FRAMES), _MELS), np.float32)
    inside = np.arange(max(FRAMES)) < np.array(FRAMES)[:, np.newaxis]
    for row, spectrogram in zip(features, spectrograms(), strict=True):
        row[: len(spectrogram)] = spectrogram
    read = {
        "input_features": torch.tensor(features), "input_features_mask": torch.tensor(inside),
    }  # fmt: skip
    ids = torch.tensor([PROMPT])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), **read}
    with torch.no_grad():
        result = model.model.get_audio_features(**read)
        rows = result.pooler_output[result.attention_mask]
        logits = model(**inputs).logits[0, -1]
        options = {"do_sample": False, "max_new_tokens": ANSWER, "eos_token_id": None}
        answer = model.generate(**inputs, **options)[0, len(PROMPT) :]
    return Recorded(rows.numpy(), logits.numpy(), answer.numpy().astype(np.int32))


def main() -> None:
    """Record the case."""
    from tests.models.families import oracle

    with tempfile.TemporaryDirectory() as folder:
        oracle.save_pretrained(CASES[NAME], Path(folder))
        arrays: dict[str, Any] = computed(Path(folder))._asdict()
    np.savez_compressed(FILE, **arrays)


if __name__ == "__main__":
    main()
