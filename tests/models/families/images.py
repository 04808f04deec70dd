"""Prompts with images for the cases of cases.py that have a tower, and what transformers computes.

    python -m tests.models.families.images
    python -m tests.models.families.images internvl-internvl

records all of them, or those named.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.catalog import ARCHITECTURES
from tests.models.families.cases import CASES
from tests.models.families.image_cases import SMOLVLM_TOWER
from tests.models.families.media_recording import Recorded, read_recording, record, with_answer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.models.families.cases import Case

FILE = Path(__file__).parents[2] / "golden" / "images.npz"


def is_grid(case: Case) -> bool:
    """Whether the model of a case reads images of any size: see grid_images.py."""
    architecture = ARCHITECTURES[case.architecture]
    if architecture.images is None:
        return False
    # A tower with a table of positions has an image size, too.
    return "image_size" not in case.tower["vision_config"] or hasattr(
        architecture.model, "read_patches"
    )


NAMES = tuple(
    name
    for name, case in CASES.items()
    if ARCHITECTURES[case.architecture].images is not None and not is_grid(case)
)
IMAGE: int = SMOLVLM_TOWER["image_token_id"]
SIDE = 30  # of the largest image
ROWS = 4
_ROWS = (IMAGE,) * ROWS
# An image first, two with a token between them, and one before the last token.
PROMPT = (*_ROWS, 5, 17, 80, *_ROWS, 7, *_ROWS, 41, 2, 9, *_ROWS, 33)
IMAGES = PROMPT.count(IMAGE) // ROWS


def pixels(name: str) -> NDArray[np.float32]:
    """Normalized pixels of the images for a case, f32 (IMAGES, 3, S, S)."""
    rng, side = np.random.default_rng(11), CASES[name].tower["vision_config"]["image_size"]
    values = rng.uniform(-1, 1, (IMAGES, 3, SIDE, SIDE)).astype(np.float32)
    return np.ascontiguousarray(values[..., :side, :side])


def recorded(name: str) -> Recorded:
    """The recording of a case; `rows` are f32 (IMAGES, ROWS, E)."""
    return read_recording(FILE, name)


def computed(name: str, folder: Path) -> Recorded:
    """What transformers computes with the model in a folder."""
    import torch

    from tests.models.families import oracle

    model = oracle.load(folder)
    inputs = {
        "input_ids": torch.tensor([PROMPT]),
        "attention_mask": torch.ones((1, len(PROMPT)), dtype=torch.long),
        "pixel_values": torch.from_numpy(pixels(name)),
    }
    if model.config.model_type == "idefics3":
        inputs["pixel_values"] = inputs["pixel_values"][None]
    elif model.config.model_type == "gemma3":
        inputs["token_type_ids"] = (inputs["input_ids"] == IMAGE).long()
    with torch.no_grad():
        rows = torch.cat([*model.get_image_features(inputs["pixel_values"]).pooler_output])
        return with_answer(model, inputs, rows.reshape(IMAGES, ROWS, -1))


if __name__ == "__main__":
    record(FILE, NAMES, computed, sys.argv[1:])
