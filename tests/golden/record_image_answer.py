"""Record what transformers answers about the images and sounds of tests/e2e/test_images.py.

pip install -e ".[families]" torchvision
python -m tests.golden.record_image_answer
python -m tests.golden.record_image_answer lfm2-vl
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from PIL import Image

from tests.baker import small_minicpmv
from tests.baker.small_gemma4_sound import samples
from tests.baker.small_smolvlm import pixels
from tests.e2e.image_models import FILE, LENGTH, MODELS, Item, answers
from tests.golden.image_processors import PROCESSORS
from tests.models.families import oracle
from tests.models.families.grid_images import see_each_other_within_windows
from tests.models.families.media_recording import best_tokens


def main(*names: str) -> None:
    """Write the length of the prompt and the answer of each model, or of those named."""
    with tempfile.TemporaryDirectory() as parent:
        new = {name: answer(name, Path(parent, name)) for name in names or MODELS}
    every = {**answers(), **new}
    recorded = {name: every[name] for name in MODELS}
    FILE.write_text(json.dumps(recorded) + "\n")


def _find_placeholders_in_prompts_only(model: Any) -> None:
    """Have Gemma 4 read a placeholder that it generates as its token, as llama.cpp does.

    transformers reads padding instead.
    """
    find = model.get_placeholder_mask

    def find_in_prompts(ids: Any, embedded: Any) -> Any:
        masks = find(ids, embedded)
        return masks if ids.shape[1] > 1 else tuple(map(torch.zeros_like, masks))

    model.get_placeholder_mask = find_in_prompts


def _part(item: Item) -> dict[str, str]:
    if isinstance(item, str):
        return {"type": "text", "text": item}
    return {"type": "audio" if isinstance(item, int) else "image"}


def _loaded(name: str, folder: Path) -> Any:
    """The model in a folder."""
    if name != "minicpm-v":
        return oracle.load(folder)
    model = oracle.in_pytorch(folder)
    model.config = SimpleNamespace(image_token_id=small_minicpmv.IMAGE)
    return model


def answer(name: str, folder: Path) -> dict[str, Any]:
    """The answer of one model."""
    question = MODELS[name].question
    MODELS[name].write(folder)
    reads = PROCESSORS[name](folder)
    content = [_part(item) for item in question]
    prompt = reads.apply_chat_template(
        [{"role": "user", "content": content}], add_generation_prompt=True
    )
    images = [Image.fromarray(pixels(*item)) for item in question if isinstance(item, tuple)]
    sounds = [samples(item, seed=0) for item in question if isinstance(item, int)]
    more: dict[str, Any] = {"audio": sounds} if sounds else {}
    inputs = reads(text=prompt, images=images, return_tensors="pt", **more)
    see_each_other_within_windows()
    model = _loaded(name, folder)
    if name.startswith("gemma4"):
        _find_placeholders_in_prompts_only(model.model)
    placeholders = {
        kind: getattr(model.config, f"{kind}_token_id")
        for kind, media in (("image", images), ("audio", sounds))
        if media
    }
    count = MODELS[name].placeholders
    with torch.no_grad():
        return {
            "prompt_tokens": inputs["input_ids"].shape[1],
            "answer": best_tokens(model, inputs, LENGTH).tolist(),
            "after_placeholders": {
                kind: best_tokens(model, inputs, count, generated=token).tolist()
                for kind, token in placeholders.items()
            },
        }


if __name__ == "__main__":
    main(*sys.argv[1:])
