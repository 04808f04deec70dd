"""Refact in PyTorch, by modeling_gpt_refact.py of its models: transformers has no such model.

In shape comments `T` is tokens, `E` the hidden width.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from safetensors.numpy import save_file
from torch.nn.functional import silu
from typing_extensions import override

from tests.models.families.bailing_torch import BailingMoeV2
from tests.models.families.cases import random_tensors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

MODEL_TYPE = "gpt_refact"
_FFN = 256  # of a model that is at most 96 wide


def shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors in a folder, by their names."""
    hidden, vocabulary = config["n_embd"], config["vocab_size"]
    width = hidden // config["n_head"]
    found: dict[str, tuple[int, ...]] = {"transformer.ln_f.weight": (hidden,)}
    found |= dict.fromkeys(("transformer.wte.weight", "lm_head.weight"), (vocabulary, hidden))
    parts = {
        "ln_1": (hidden,), "ln_2": (hidden,), "attn.q": (hidden, hidden),
        "attn.kv": (2 * width, hidden), "attn.c_proj": (hidden, hidden),
        "mlp.gate_up_proj": (2 * _FFN, hidden), "mlp.c_proj": (hidden, _FFN),
    }  # fmt: skip
    for layer in range(config["n_layer"]):
        found |= {f"transformer.h.{layer}.{part}.weight": parts[part] for part in parts}
    return found


class Refact(BailingMoeV2):
    """A model of these tensors."""

    @override
    def logits(self, tokens: Sequence[int]) -> torch.Tensor:
        h = self.tensors["transformer.wte.weight"][list(tokens)]
        for layer in range(self.config["n_layer"]):
            block = f"transformer.h.{layer}"
            h = h + self._attention(self._norm(h, f"{block}.ln_1"), f"{block}.attn")
            both = self._linear(self._norm(h, f"{block}.ln_2"), f"{block}.mlp.gate_up_proj")
            gate, up = both.chunk(2, -1)
            h = h + self._linear(silu(gate) * up, f"{block}.mlp.c_proj")
        return self._linear(self._norm(h, "transformer.ln_f"), "lm_head")

    @override
    def _attention(self, x: torch.Tensor, module: str) -> torch.Tensor:
        """(T, E) -> (T, E)."""
        (count, hidden), heads = x.shape, self.config["n_head"]
        width = hidden // heads
        query = self._linear(x, f"{module}.q").view(count, heads, width).transpose(0, 1)
        key, value = self._linear(x, f"{module}.kv").chunk(2, -1)
        slopes = 2.0 ** (-8.0 / heads * torch.arange(1, heads + 1))
        scores = torch.matmul(query, key.T) * width**-0.5
        scores = scores + slopes[:, None, None] * torch.arange(count)
        later = torch.ones(count, count, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(later, -torch.inf).softmax(-1)
        mixed = torch.matmul(weights, value).transpose(0, 1).reshape(count, hidden)
        return self._linear(mixed, f"{module}.c_proj")


def model(config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> Refact:
    """The model of a configuration."""
    return Refact({**config, "rms_norm_eps": config["layer_norm_epsilon"]}, tensors)


def save(config: Mapping[str, Any], folder: Path) -> None:
    """Write config.json and random tensors."""
    names = {"model_type": MODEL_TYPE, "architectures": ["GPTRefactForCausalLM"]}
    (folder / "config.json").write_text(json.dumps({**names, **config}), encoding="utf-8")
    tensors = random_tensors(shapes(config))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
