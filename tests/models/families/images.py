"""Prompts with images for the cases of cases.py that have a tower, and what transformers computes.

    python -m tests.models.families.images

records all of them.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hearthd.models.catalog import ARCHITECTURES
from tests.models.families.cases import CASES
from tests.models.families.image_cases import SMOLVLM_TOWER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tests.models.families.cases import Case

FILE = Path(__file__).parents[2] / "golden" / "images.npz"


def is_grid(case: Case) -> bool:
    """Whether the model of a case reads images of any size: see grid_images.py."""
    reads = ARCHITECTURES[case.architecture].images is not None
    return reads and "image_size" not in case.tower["vision_config"]


NAMES = tuple(
    name
    for name, case in CASES.items()
    if ARCHITECTURES[case.architecture].images is not None and not is_grid(case)
)
IMAGE: int = SMOLVLM_TOWER["image_token_id"]
SIDE = 30
ROWS = 4
_ROWS = (IMAGE,) * ROWS
# An image first, two with a token between them, and one before the last token.
PROMPT = (*_ROWS, 5, 17, 80, *_ROWS, 7, *_ROWS, 41, 2, 9, *_ROWS, 33)
IMAGES = PROMPT.count(IMAGE) // ROWS
ANSWER = 12


class Recorded(NamedTuple):
    """What transformers computes.

    rows    of embeddings, by image: f32 (IMAGES, ROWS, E)
    logits  after the prompt: f32 (V,)
    answer  the greedy continuation: i32 (ANSWER,)
    """

    rows: NDArray[np.float32]
    logits: NDArray[np.float32]
    answer: NDArray[np.int32]


def pixels() -> NDArray[np.float32]:
    """Normalized pixels of the images, f32 (IMAGES, 3, SIDE, SIDE)."""
    rng = np.random.default_rng(11)
    return rng.uniform(-1, 1, (IMAGES, 3, SIDE, SIDE)).astype(np.float32)


@functools.cache
def _file() -> Mapping[str, NDArray[Any]]:
    with np.load(FILE) as file:
        return dict(file)


def recorded(name: str) -> Recorded:
    """The recording of a case."""
    return Recorded(*(_file()[f"{name}.{field}"] for field in Recorded._fields))


def computed(folder: Path) -> Recorded:
    """What transformers computes with the model in a folder."""
    import torch

    from tests.models.families import oracle

    model = oracle.load(folder)
    inputs = {
        "input_ids": torch.tensor([PROMPT]),
        "attention_mask": torch.ones((1, len(PROMPT)), dtype=torch.long),
        "pixel_values": torch.from_numpy(pixels()),
    }
    if model.config.model_type == "idefics3":
        inputs["pixel_values"] = inputs["pixel_values"][None]
    else:
        inputs["token_type_ids"] = (inputs["input_ids"] == IMAGE).long()
    with torch.no_grad():
        rows = torch.cat([*model.get_image_features(inputs["pixel_values"]).pooler_output])
        rows = rows.reshape(IMAGES, ROWS, -1)
        logits = model(**inputs).logits[0, -1]
        options = {"do_sample": False, "max_new_tokens": ANSWER, "eos_token_id": None}
        answer = model.generate(**inputs, **options)[0, len(PROMPT) :]
    return Recorded(rows.numpy(), logits.numpy(), answer.numpy().astype(np.int32))


def main() -> None:
    """Record every case."""
    from tests.models.families import oracle

    arrays: dict[str, Any] = {}
    for name in NAMES:
        with tempfile.TemporaryDirectory() as folder:
            oracle.save_pretrained(CASES[name], Path(folder))
            values = computed(Path(folder))._asdict()
            arrays |= {f"{name}.{field}": array for field, array in values.items()}
    np.savez_compressed(FILE, **arrays)


if __name__ == "__main__":
    main()
