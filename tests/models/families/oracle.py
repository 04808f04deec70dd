"""Random models saved by transformers, and what transformers computes with them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file

from baker.weights.safetensors import SafetensorsSource
from tests.models.families.cases import SMALL, random_tensors

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tests.models.families.cases import Case

logging.getLogger("transformers").setLevel(logging.ERROR)
transformers.utils.logging.disable_progress_bar()


def save_pretrained(case: Case, folder: Path) -> None:
    """Save the case's model, with random weights, as transformers does."""
    config = getattr(transformers, case.config)(**{**SMALL, **case.arguments})
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    source = SafetensorsSource(folder)
    tensors = random_tensors({name: source.shape(name) for name in source.names()})
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def logits(folder: Path, tokens: Sequence[int]) -> NDArray[np.float32]:
    """The logits after each token: f32 (T, V)."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    with torch.no_grad():
        result: Any = model.eval()(torch.tensor([list(tokens)])).logits[0].numpy()
    return np.asarray(result)
