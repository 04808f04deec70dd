"""OpenELM in PyTorch, by modeling_openelm.py of its models: transformers has no such model.

In shape comments `T` is tokens, `E` the hidden width.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from safetensors.numpy import save_file
from torch.nn.functional import linear, silu
from typing_extensions import override

from tests.models.families.bailing_torch import BailingMoeV2
from tests.models.families.cases import random_tensors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

MODEL_TYPE = "openelm"


def shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors in a folder, by their names."""
    hidden, width = config["model_dim"], config["head_dim"]
    found = {
        "transformer.token_embeddings.weight": (config["vocab_size"], hidden),
        "transformer.norm.weight": (hidden,),
    }
    rows = zip(config["num_query_heads"], config["num_kv_heads"], _ffns(config), strict=True)
    for layer, (queries, keys, ffn) in enumerate(rows):
        parts = {
            "attn_norm": (hidden,), "ffn_norm": (hidden,), "attn.q_norm": (width,),
            "attn.k_norm": (width,), "attn.qkv_proj": ((queries + 2 * keys) * width, hidden),
            "attn.out_proj": (hidden, queries * width), "ffn.proj_1": (2 * ffn, hidden),
            "ffn.proj_2": (hidden, ffn),
        }  # fmt: skip
        found |= {f"transformer.layers.{layer}.{part}.weight": parts[part] for part in parts}
    return found


def _ffns(config: Mapping[str, Any]) -> list[int]:
    """The widths of the MLPs, which are multiples of the divisor."""
    return [int(factor * config["model_dim"]) for factor in config["ffn_multipliers"]]


class OpenElm(BailingMoeV2):
    """A model of these tensors."""

    @override
    def logits(self, tokens: Sequence[int]) -> torch.Tensor:
        table = self.tensors["transformer.token_embeddings.weight"]
        h = table[list(tokens)]
        for layer in range(len(self.config["num_kv_heads"])):
            block = f"transformer.layers.{layer}"
            heads, groups = (self.config[f"num_{kind}_heads"][layer] for kind in ("query", "kv"))
            x = self._norm(h, f"{block}.attn_norm")
            h = h + self._attend(x, f"{block}.attn", heads, groups)
            both = self._linear(self._norm(h, f"{block}.ffn_norm"), f"{block}.ffn.proj_1")
            gate, up = both.chunk(2, -1)
            h = h + self._linear(silu(gate) * up, f"{block}.ffn.proj_2")
        return linear(self._norm(h, "transformer.norm"), table)

    def _attend(self, x: torch.Tensor, module: str, heads: int, groups: int) -> torch.Tensor:
        """(T, E) -> (T, E)."""
        count, width = x.shape[0], self.config["head_dim"]
        joined = self._linear(x, f"{module}.qkv_proj").view(count, heads + 2 * groups, width)
        query, key, value = joined.transpose(0, 1).split([heads, groups, groups])
        query = self._rotated(self._norm(query, f"{module}.q_norm"))
        key = self._rotated(self._norm(key, f"{module}.k_norm"))
        key, value = (part.repeat_interleave(heads // groups, 0) for part in (key, value))
        scores = torch.matmul(query, key.transpose(1, 2)) * width**-0.5
        later = torch.ones(count, count, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(later, -torch.inf).softmax(-1)
        mixed = torch.matmul(weights, value).transpose(0, 1).reshape(count, heads * width)
        return self._linear(mixed, f"{module}.out_proj")


def model(config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> OpenElm:
    """The model of a configuration."""
    fixed = {"rms_norm_eps": 1e-6, "partial_rotary_factor": 1.0}
    return OpenElm({**config, **fixed, "rope_theta": config["rope_freq_constant"]}, tensors)


def save(config: Mapping[str, Any], folder: Path) -> None:
    """Write config.json and random tensors."""
    names = {"model_type": MODEL_TYPE, "architectures": ["OpenELMForCausalLM"]}
    (folder / "config.json").write_text(json.dumps({**names, **config}), encoding="utf-8")
    save_file(random_tensors(shapes(config)), folder / "model.safetensors", {"format": "pt"})
