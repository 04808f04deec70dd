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
    return _logits(_model(folder, torch.float32), tokens)


def exact_logits(folder: Path, tokens: Sequence[int]) -> NDArray[np.float64]:
    """As `logits`, computed in f64, of a model with the usual rotary angles: f64 (T, V).

    transformers computes the angles in f32 also for a model in f64. These are exact.
    """
    model = _model(folder, torch.float64)
    config = model.config
    assert config.rope_parameters["rope_type"] == "default"
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
    angles = torch.arange(len(tokens))[:, None] * config.rope_parameters["rope_theta"] ** -exponents
    both = torch.cat([angles, angles], dim=1)[None]
    model.model.rotary_emb.forward = lambda *_, **__: (both.cos(), both.sin())
    return _logits(model, tokens)


def _model(folder: Path, dtype: torch.dtype) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager"
    ).eval()


def _logits(model: Any, tokens: Sequence[int]) -> NDArray[Any]:
    with torch.no_grad():
        result: Any = model(torch.tensor([list(tokens)])).logits[0].numpy()
    return np.asarray(result)
