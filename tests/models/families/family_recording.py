"""What transformers computed with the models of cases.py: a folder's contents, and some logits."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import load_file, save_file

from tests.models.families.cases import TOKENS, random_tensors
from tests.models.families.packed_tensors import packed_tensors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tests.models.families.cases import Case

FILE = Path(__file__).parents[2] / "golden" / "families.npz"
# The positions of the recorded logits.
ROWS = [0, 59, 180, len(TOKENS) - 1]
# The cases that are recorded exactly, too: the usual rotary angles.
EXACT = (
    "llama-llama",
    "llama-tied",
    "llama-one_group",
    "llama-all_groups",
    "llama-biases",
    "llama-mistral",
    "llama-mistral_window",
)


@dataclass(frozen=True, kw_only=True)
class Recording:
    """One case.

    config  config.json
    shapes  the shapes of the tensors that transformers computes with: see packed_tensors.py
    greedy  the most likely token after each of TOKENS
    logits  after the tokens at ROWS, f32 (len(ROWS), V)
    exact   the same, computed in f64 with exact rotary angles and then rounded; for EXACT
    """

    config: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    greedy: list[int]
    logits: NDArray[np.float32]
    exact: NDArray[np.float32] | None = None


@functools.cache
def _file() -> Mapping[str, NDArray[Any]]:
    with np.load(FILE) as file:
        return dict(file)


def recorded_names() -> list[str]:
    """The cases that have a recording."""
    return [name.removesuffix(".folder") for name in _file() if name.endswith(".folder")]


def recorded(name: str) -> Recording:
    """The recording of a case."""
    folder = json.loads(str(_file()[f"{name}.folder"]))
    return Recording(
        config=folder["config"],
        shapes={tensor: tuple(shape) for tensor, shape in folder["shapes"].items()},
        greedy=_file()[f"{name}.greedy"].tolist(),
        logits=_file()[f"{name}.logits"],
        exact=_file().get(f"{name}.exact"),
    )


def write(recordings: Mapping[str, Recording]) -> None:
    """Write the file."""
    arrays: dict[str, Any] = {}
    for name, one in recordings.items():
        folder = {"config": one.config, "shapes": one.shapes}
        arrays[f"{name}.folder"] = np.array(json.dumps(folder))
        arrays[f"{name}.greedy"] = np.array(one.greedy, np.int32)
        arrays[f"{name}.logits"] = one.logits
        if one.exact is not None:
            arrays[f"{name}.exact"] = one.exact
    np.savez_compressed(FILE, **arrays)


def publish(case: Case, folder: Path) -> None:
    """Have config.json in a folder that transformers saved say what a published one says."""
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) | case.published
    config = {key: value for key, value in config.items() if value is not None}
    if case.published:
        path.write_text(json.dumps(config), encoding="utf-8")
        tensors = folder / "model.safetensors"
        save_file({**packed_tensors(load_file(tensors), config)}, tensors)


def write_folder(recording: Recording, folder: Path) -> None:
    """The Hugging Face folder, without a tokenizer."""
    (folder / "config.json").write_text(json.dumps(recording.config), encoding="utf-8")
    tensors = packed_tensors(random_tensors(recording.shapes), recording.config)
    save_file({**tensors}, folder / "model.safetensors")
