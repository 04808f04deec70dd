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
IMAGES = 4
# The rows of LLaVA 1.6 in a prompt, by their numbers in a square: all of it, and then a tile with
# the same pixels. The last row of a square ends a line.
_LINES = (*range(ROWS), 0, 1, ROWS, 2, 3, ROWS)


def order_of(name: str) -> tuple[int, ...]:
    """The rows of an image of a case in a prompt, by their numbers in the rows of a square."""
    return _LINES if CASES[name].config == "LlavaNextConfig" else tuple(range(ROWS))


def prompt_of(name: str) -> tuple[int, ...]:
    """An image first, two with a token between them, and one before the last token."""
    rows = (IMAGE,) * len(order_of(name))
    return (*rows, 5, 17, 80, *rows, 7, *rows, 41, 2, 9, *rows, 33)


def pixels(name: str) -> NDArray[np.float32]:
    """Normalized pixels of the images for a case, f32 (IMAGES, 3, S, S)."""
    rng, side = np.random.default_rng(11), CASES[name].tower["vision_config"]["image_size"]
    values = rng.uniform(-1, 1, (IMAGES, 3, SIDE, SIDE)).astype(np.float32)
    return np.ascontiguousarray(values[..., :side, :side])


def recorded(name: str) -> Recorded:
    """The recording of a case; `rows` are f32 (IMAGES, rows of an image, E)."""
    return read_recording(FILE, name)


def computed(name: str, folder: Path) -> Recorded:
    """What transformers computes with the model in a folder."""
    import torch

    from tests.models.families import oracle

    model = oracle.load(folder)
    ids = torch.tensor([prompt_of(name)])
    read = {"pixel_values": torch.from_numpy(pixels(name))}
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if model.config.model_type == "idefics3":
        read["pixel_values"] = read["pixel_values"][None]
    elif model.config.model_type == "gemma3":
        inputs["token_type_ids"] = (inputs["input_ids"] == IMAGE).long()
    elif model.config.model_type == "llava_next":
        squares = read["pixel_values"]
        read["pixel_values"] = torch.stack([squares, squares], dim=1)
        read["image_sizes"] = torch.tensor([squares.shape[2:]] * IMAGES)
    with torch.no_grad():
        rows = torch.cat([*model.get_image_features(**read).pooler_output])
        rows = rows * getattr(model.config.text_config, "embedding_multiplier", 1.0)
        return with_answer(model, inputs | read, rows.reshape(IMAGES, len(order_of(name)), -1))


if __name__ == "__main__":
    record(FILE, NAMES, computed, sys.argv[1:])
