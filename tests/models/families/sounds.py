"""A prompt with sounds, and what transformers computes with the cases that read them.

python -m tests.models.families.sounds
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.models.families.cases import CASES
from tests.models.families.image_cases import GEMMA4_SQUARES, GEMMA4_TOWERS
from tests.models.families.images import Recorded

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
ANSWER = 12


def frames_of(name: str) -> list[NDArray[np.float32]]:
    """The frames of each sound, f32 (T, width)."""
    rng, width = np.random.default_rng(11), _WIDTHS[name]
    return [rng.standard_normal((count, width)).astype(np.float32) for count in FRAMES[name]]


def recorded(name: str) -> Recorded:
    """The recording of a case: `rows` has those of all sounds, one after the other."""
    with np.load(FILE) as file:
        return Recorded(*(file[f"{name}.{field}"] for field in Recorded._fields))


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
        rows = result.pooler_output[result.attention_mask]
        logits = model(**inputs).logits[0, -1]
        options = {"do_sample": False, "max_new_tokens": ANSWER, "eos_token_id": None}
        answer = model.generate(**inputs, **options)[0, len(PROMPT) :]
    return Recorded(rows.numpy(), logits.numpy(), answer.numpy().astype(np.int32))


def main() -> None:
    """Record the cases."""
    from tests.models.families import oracle

    arrays: dict[str, Any] = {}
    for name in NAMES:
        with tempfile.TemporaryDirectory() as folder:
            oracle.save_pretrained(CASES[name], Path(folder))
            values = computed(name, Path(folder))._asdict()
            arrays |= {f"{name}.{field}": array for field, array in values.items()}
    np.savez_compressed(FILE, **arrays)


if __name__ == "__main__":
    main()
