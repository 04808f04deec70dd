"""Random models saved by transformers, and what transformers computes with them."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file
from safetensors.torch import load_file
from torch.overrides import TorchFunctionMode

from hearthd.baker.weights.safetensors import SafetensorsSource
from tests.models.families import (
    bailing_torch,
    minicpmv_torch,
    openelm_torch,
    refact_torch,
    torch_models,
    ultravox_torch,
)
from tests.models.families.autumn_cases import IN_TORCH
from tests.models.families.cases import SMALL, random_tensors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tests.models.families.cases import Case

logging.getLogger("transformers").setLevel(logging.ERROR)
transformers.utils.logging.disable_progress_bar()
# A part of Mistral3ForConditionalGeneration, which no AutoModel finds by its configuration.
transformers.AutoModelForCausalLM.register(
    transformers.Mistral4Config, transformers.Mistral4ForCausalLM, exist_ok=True
)


# Models that transformers does not have, by their `model_type`.
_IN_PYTORCH: Mapping[str, Any] = {
    minicpmv_torch.MODEL_TYPE: minicpmv_torch.model,
    openelm_torch.MODEL_TYPE: openelm_torch.model,
    refact_torch.MODEL_TYPE: refact_torch.model,
    ultravox_torch.MODEL_TYPE: ultravox_torch.model,
}
# Modules that write such models, by the configurations' classes that published files name.
_WRITTEN: Mapping[str, Any] = {
    "GPTRefactConfig": refact_torch,
    "MiniCPMVConfig": minicpmv_torch,
    "OpenELMConfig": openelm_torch,
    "UltravoxConfig": ultravox_torch,
}


def save_pretrained(case: Case, folder: Path) -> None:
    """Save the case's model, with random weights, as transformers does."""
    if case.config == "BailingMoeV2Config":
        bailing_torch.save({**SMALL, **case.arguments}, folder)
        return
    if case.config == IN_TORCH:
        torch_models.save({**SMALL, **case.arguments}, folder)
        return
    if case.config in _WRITTEN:
        _WRITTEN[case.config].save({**case.arguments, **case.tower}, folder)
        return
    kind = getattr(transformers, case.config)
    usual = {key: SMALL[key] for key in SMALL if not isinstance(getattr(kind, key, None), property)}
    arguments = {**usual, **case.arguments}
    if case.tower:
        arguments = {"text_config": arguments, **case.tower}
    config = kind(**arguments)
    _auto_class(config).from_config(config).save_pretrained(folder)
    source = SafetensorsSource(folder)
    shapes = {name: source.shape(name) for name in source.names()}
    for name in (name for name in shapes if name.endswith(case.transposed)):
        *outer, rows, columns = shapes[name]
        shapes[name] = (*outer, columns, rows)
    tensors = random_tensors(shapes)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


class _ExactProducts(TorchFunctionMode):  # type: ignore[misc]
    """Computes products of matrices of f32 in f64, and rounds the results to f32.

    The order of PyTorch's sums in f32 depends on the CPU: logits of gemma4 differed by 2.9e-5 of
    the largest.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in (torch.nn.functional.linear, torch.matmul):
            return func(*args, **kwargs)
        is_f32 = [isinstance(one, torch.Tensor) and one.dtype == torch.float32 for one in args]
        wide = [one.double() if f32 else one for one, f32 in zip(args, is_f32, strict=True)]
        result = func(*wide, **kwargs)
        return result.float() if any(is_f32) else result


def logits(folder: Path, tokens: Sequence[int]) -> NDArray[np.float32]:
    """The logits after each token: f32 (T, V)."""
    with _ExactProducts():
        if bailing_torch.is_in(folder):
            return bailing_torch.logits(folder, tokens)
        if torch_models.is_in(folder):
            return torch_models.logits(folder, tokens)
        described = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if described["model_type"] in _IN_PYTORCH:
            return np.asarray(in_pytorch(folder).logits(tokens).numpy())
        return _logits(load(folder), tokens)


def in_pytorch(folder: Path) -> Any:
    """The model in a folder, which transformers does not have."""
    described = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    model = _IN_PYTORCH[described["model_type"]]
    return model(described, load_file(folder / "model.safetensors"))


def exact_logits(folder: Path, tokens: Sequence[int]) -> NDArray[np.float64]:
    """As `logits`, computed in f64, of a model with the usual rotary angles: f64 (T, V).

    transformers computes the angles in f32 also for a model in f64. These are exact.
    """
    model = load(folder, torch.float64)
    config = model.config
    assert config.rope_parameters["rope_type"] == "default"
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
    angles = torch.arange(len(tokens))[:, None] * config.rope_parameters["rope_theta"] ** -exponents
    both = torch.cat([angles, angles], dim=1)[None]
    model.model.rotary_emb.forward = lambda *_, **__: (both.cos(), both.sin())
    return _logits(model, tokens)


def load(folder: Path, dtype: torch.dtype = torch.float32) -> Any:
    """The model in a folder, for inference.

    Raises ValueError for tensors by other names: transformers would draw their weights anew.
    """
    auto_class = _auto_class(transformers.AutoConfig.from_pretrained(folder))
    model, report = auto_class.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager", output_loading_info=True
    )
    for kind in ("missing_keys", "unexpected_keys"):
        if names := report[kind]:
            raise ValueError(f"{folder}: {kind}: {', '.join(sorted(names))}")
    return model.eval()


def _auto_class(config: Any) -> Any:
    if hasattr(config, "vision_config"):
        return transformers.AutoModelForImageTextToText
    if hasattr(config, "audio_config"):
        return transformers.AutoModelForMultimodalLM
    return transformers.AutoModelForCausalLM


def _logits(model: Any, tokens: Sequence[int]) -> NDArray[Any]:
    with torch.no_grad():
        result: Any = model(torch.tensor([list(tokens)])).logits[0].numpy()
    return np.asarray(result)
