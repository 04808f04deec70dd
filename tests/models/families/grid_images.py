"""Prompts with images of several sizes, and what transformers computes for cases that read them.

    python -m tests.models.families.grid_images

records all of them.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.models.families.cases import CASES
from tests.models.families.image_cases import QWEN_TOWER
from tests.models.families.images import Recorded, is_grid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

FILE = Path(__file__).parents[2] / "golden" / "grid_images.npz"
GRID_NAMES = tuple(name for name, case in CASES.items() if is_grid(case))
IMAGE, PATCH, MERGED = QWEN_TOWER["image_token_id"], QWEN_TOWER["vision_config"]["patch_size"], 2
START, END = QWEN_TOWER["vision_start_token_id"], QWEN_TOWER["vision_end_token_id"]
# Rows and columns of the rows of embeddings of each image.
GRIDS = ((2, 3), (1, 1), (3, 5), (1, 4))
_TEXTS = ((), (5, 17, 80), (), (7, 41, 2, 9), (33,))
ANSWER = 12


def _prompt() -> tuple[int, ...]:
    """An image first, two side by side, and one before the last token."""
    ids = [*_TEXTS[0]]
    for (rows, columns), text in zip(GRIDS, _TEXTS[1:], strict=True):
        ids += [START, *(IMAGE,) * (rows * columns), END, *text]
    return tuple(ids)


PROMPT = _prompt()


def pixels() -> list[NDArray[np.uint8]]:
    """The images, u8 (H, W, 3)."""
    rng, side = np.random.default_rng(11), PATCH * MERGED
    return [
        rng.integers(0, 256, (rows * side, columns * side, 3), np.uint8) for rows, columns in GRIDS
    ]


@functools.cache
def _file() -> Mapping[str, NDArray[Any]]:
    with np.load(FILE) as file:
        return dict(file)


def recorded(name: str) -> Recorded:
    """The recording of a case: `rows` has those of all images, one after the other."""
    return Recorded(*(_file()[f"{name}.{field}"] for field in Recorded._fields))


def computed(folder: Path) -> Recorded:
    """What transformers computes with the model in a folder, and the pixels of its processor."""
    import torch
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (
        Qwen2VLImageProcessorPil,
    )

    from tests.models.families import oracle

    model = oracle.load(folder)
    half = [0.5] * 3
    processor = Qwen2VLImageProcessorPil(
        patch_size=PATCH, merge_size=MERGED, image_mean=half, image_std=half, do_resize=False
    )
    read = processor(pixels(), return_tensors="pt")
    ids = torch.tensor([PROMPT])
    inputs = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "mm_token_type_ids": (ids == IMAGE).int(),
        **read,
    }
    with torch.no_grad():
        rows = torch.cat([*model.get_image_features(**read).pooler_output])
        logits = model(**inputs).logits[0, -1]
        options = {"do_sample": False, "max_new_tokens": ANSWER, "eos_token_id": None}
        answer = model.generate(**inputs, **options)[0, len(PROMPT) :]
    return Recorded(rows.numpy(), logits.numpy(), answer.numpy().astype(np.int32))


def main() -> None:
    """Record every case."""
    from tests.models.families import oracle

    arrays: dict[str, Any] = {}
    for name in GRID_NAMES:
        with tempfile.TemporaryDirectory() as folder:
            oracle.save_pretrained(CASES[name], Path(folder))
            values = computed(Path(folder))._asdict()
            arrays |= {f"{name}.{field}": array for field, array in values.items()}
    np.savez_compressed(FILE, **arrays)


if __name__ == "__main__":
    main()
