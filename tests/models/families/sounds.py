"""A prompt with sounds, and what transformers computes with the cases that read them.

python -m tests.models.families.sounds
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tests.models.families.image_cases import GEMMA4_SQUARES, GEMMA4_TOWERS
from tests.models.families.media_recording import Recorded, read_recording, record, with_answer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

FILE = Path(__file__).parents[2] / "golden" / "sounds.npz"
TOWER, UNIFIED = "gemma4-sound-towers", "gemma4-unified-blocks"
NAMES = (TOWER, UNIFIED)
SOUND: int = GEMMA4_TOWERS["audio_token_id"]
COUNTS = (16, 1, 8)  # rows of each sound
# Frames of each sound, and values of a frame. Of the tower only the second one ends with a whole
# row of four frames.
FRAMES: Mapping[str, tuple[int, ...]] = {TOWER: (61, 4, 30), UNIFIED: COUNTS}
_WIDTHS: Mapping[str, int] = {
    TOWER: GEMMA4_TOWERS["audio_config"]["subsampling_conv_channels"][0],
    UNIFIED: GEMMA4_SQUARES["audio_config"]["audio_embed_dim"],
}
# A sound first, two side by side, and one before the last token.
PROMPT = (
    *(SOUND,) * COUNTS[0], 5, 17, 80, *(SOUND,) * COUNTS[1], 7, *(SOUND,) * COUNTS[2], 33,
)  # fmt: skip


def frames_of(name: str) -> list[NDArray[np.float32]]:
    """The frames of each sound, f32 (T, width)."""
    rng, width = np.random.default_rng(11), _WIDTHS[name]
    return [rng.standard_normal((count, width)).astype(np.float32) for count in FRAMES[name]]


def recorded(name: str) -> Recorded:
    """The recording of a case: `rows` has the rows of all sounds, one after the other."""
    return read_recording(FILE, name)


def computed(name: str, folder: Path) -> Recorded:
    """What transformers computes with the model in a folder."""
    import torch

    from tests.models.families import oracle

    model = oracle.load(folder)
    counts = FRAMES[name]
    features = np.zeros((len(counts), max(counts), _WIDTHS[name]), np.float32)
    inside = np.arange(max(counts)) < np.array(counts)[:, np.newaxis]
    for row, frames in zip(features, frames_of(name), strict=True):
        row[: len(frames)] = frames
    read = {
        "input_features": torch.tensor(features), "input_features_mask": torch.tensor(inside),
    }  # fmt: skip
    ids = torch.tensor([PROMPT])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), **read}
    with torch.no_grad():
        result = model.model.get_audio_features(**read)
        return with_answer(model, inputs, result.pooler_output[result.attention_mask])


if __name__ == "__main__":
    record(FILE, NAMES, computed)
