"""Ling 2.0 in PyTorch, by modeling_bailing_moe_v2.py of its models: transformers has no such model.

In shape comments `T` is tokens, `E` the hidden width, `D` the width of a head, `X` experts.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.numpy import save_file
from safetensors.torch import load_file
from torch.nn.functional import linear, silu

from tests.models.families.cases import random_tensors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Shapes = dict[str, tuple[int, ...]]

MODEL_TYPE = "bailing_moe"
_PARTS = ("gate_proj", "up_proj", "down_proj")


def shapes(config: Mapping[str, Any]) -> Shapes:
    """The shapes of the tensors in a folder, by their names."""
    hidden, width = config["hidden_size"], config["head_dim"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    found: Shapes = {"model.norm.weight": (hidden,)}
    found |= dict.fromkeys(
        ("model.word_embeddings.weight", "lm_head.weight"), (config["vocab_size"], hidden)
    )
    for layer in range(config["num_hidden_layers"]):
        block = f"model.layers.{layer}"
        norms = ("input_layernorm", "post_attention_layernorm")
        found |= {f"{block}.{norm}.weight": (hidden,) for norm in norms}
        attention = f"{block}.attention"
        rows = (heads + 2 * kv_heads) * width
        found[f"{attention}.query_key_value.weight"] = (rows, hidden)
        found |= {f"{attention}.{part}_layernorm.weight": (width,) for part in ("query", "key")}
        found[f"{attention}.dense.weight"] = (hidden, heads * width)
        found |= _feed_forward(config, f"{block}.mlp", layer)
    return found


def _feed_forward(config: Mapping[str, Any], module: str, layer: int) -> Shapes:
    hidden, width = config["hidden_size"], config["moe_intermediate_size"]
    if layer < config["first_k_dense_replace"]:
        return _mlp(module, hidden, config["intermediate_size"])
    experts = config["num_experts"]
    found: Shapes = {
        f"{module}.gate.weight": (experts, hidden), f"{module}.gate.expert_bias": (experts,),
        **_mlp(f"{module}.shared_experts", hidden, width * config["num_shared_experts"]),
    }  # fmt: skip
    for expert in range(experts):
        found |= _mlp(f"{module}.experts.{expert}", hidden, width)
    return found


def _mlp(module: str, hidden: int, width: int) -> Shapes:
    extents = ((width, hidden), (width, hidden), (hidden, width))
    return {f"{module}.{part}.weight": shape for part, shape in zip(_PARTS, extents, strict=True)}


class BailingMoeV2:
    """A model of these tensors."""

    def __init__(self, config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> None:
        self.config, self.tensors = config, tensors

    def logits(self, tokens: Sequence[int]) -> torch.Tensor:
        """After each token (T, V)."""
        h = self.tensors["model.word_embeddings.weight"][list(tokens)]
        for layer in range(self.config["num_hidden_layers"]):
            block = f"model.layers.{layer}"
            x = self._norm(h, f"{block}.input_layernorm")
            h = h + self._attention(x, f"{block}.attention")
            x = self._norm(h, f"{block}.post_attention_layernorm")
            is_dense = layer < self.config["first_k_dense_replace"]
            h = h + (self._mlp if is_dense else self._mixture)(x, f"{block}.mlp")
        return self._linear(self._norm(h, "model.norm"), "lm_head")

    def _linear(self, x: torch.Tensor, module: str) -> torch.Tensor:
        return linear(x, self.tensors[f"{module}.weight"])

    def _norm(self, x: torch.Tensor, module: str) -> torch.Tensor:
        variance = x.pow(2).mean(-1, keepdim=True)
        normalized = x * torch.rsqrt(variance + self.config["rms_norm_eps"])
        return normalized * self.tensors[f"{module}.weight"]

    def _mlp(self, x: torch.Tensor, module: str) -> torch.Tensor:
        gate, up, down = (f"{module}.{part}" for part in _PARTS)
        return self._linear(silu(self._linear(x, gate)) * self._linear(x, up), down)

    def _attention(self, x: torch.Tensor, module: str) -> torch.Tensor:
        heads, groups = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        count, width = x.shape[0], self.config["head_dim"]
        joined = self._linear(x, f"{module}.query_key_value").view(count, heads + 2 * groups, width)
        query, key, value = joined.transpose(0, 1).split([heads, groups, groups])
        query = self._rotated(self._norm(query, f"{module}.query_layernorm"))
        key = self._rotated(self._norm(key, f"{module}.key_layernorm"))
        key, value = (part.repeat_interleave(heads // groups, 0) for part in (key, value))
        scores = torch.matmul(query, key.transpose(1, 2)) * width**-0.5
        later = torch.ones(count, count, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(later, -torch.inf).softmax(-1)
        mixed = torch.matmul(weights, value).transpose(0, 1).reshape(count, heads * width)
        return self._linear(mixed, f"{module}.dense")

    def _rotated(self, x: torch.Tensor) -> torch.Tensor:
        """Heads (H, T, D) whose first columns are turned by their positions."""
        width = int(x.shape[-1] * self.config["partial_rotary_factor"])
        exponents = torch.arange(0, width, 2, dtype=torch.float32) / width
        angles = torch.arange(x.shape[1])[:, None] * self.config["rope_theta"] ** -exponents
        angles = torch.cat([angles, angles], -1)
        turning, still = x[..., :width], x[..., width:]
        first, second = turning.chunk(2, -1)
        turned = turning * angles.cos() + torch.cat([-second, first], -1) * angles.sin()
        return torch.cat([turned, still], -1)

    def _mixture(self, x: torch.Tensor, module: str) -> torch.Tensor:
        scores = torch.sigmoid(self._linear(x, f"{module}.gate"))
        chosen = self._chosen(scores + self.tensors[f"{module}.gate.expert_bias"])
        factors = scores.gather(1, chosen)
        factors = factors / (factors.sum(-1, keepdim=True) + 1e-20)
        factors = factors * self.config["routed_scaling_factor"]
        rows = [
            sum(
                factor * self._mlp(row, f"{module}.experts.{expert}")
                for factor, expert in zip(of_row, experts, strict=True)
            )
            for row, of_row, experts in zip(x, factors, chosen.tolist(), strict=True)
        ]
        return torch.stack(rows) + self._mlp(x, f"{module}.shared_experts")

    def _chosen(self, scores: torch.Tensor) -> torch.Tensor:
        """The experts of each token, from the groups with the largest sums of two scores."""
        by_group = scores.view(scores.shape[0], self.config["n_group"], -1)
        groups = by_group.topk(2, -1)[0].sum(-1).topk(self.config["topk_group"], -1)[1]
        outside = torch.ones(by_group.shape[:2], dtype=torch.bool).scatter(1, groups, False)
        inside = by_group.masked_fill(outside[..., None], -torch.inf).flatten(1)
        return inside.topk(self.config["num_experts_per_tok"], -1)[1]


def save(config: Mapping[str, Any], folder: Path) -> None:
    """Write config.json and random tensors."""
    names = {"model_type": MODEL_TYPE, "architectures": ["BailingMoeV2ForCausalLM"]}
    (folder / "config.json").write_text(json.dumps({**names, **config}), encoding="utf-8")
    tensors = random_tensors(shapes(config))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def is_in(folder: Path) -> bool:
    """Whether a folder has such a model."""
    config = _config(folder)
    return config["model_type"] == MODEL_TYPE and "n_group" in config


def logits(folder: Path, tokens: Sequence[int]) -> NDArray[np.float32]:
    """The logits after each token: f32 (T, V)."""
    tensors = load_file(folder / "model.safetensors")
    result: Any = BailingMoeV2(_config(folder), tensors).logits(tokens).numpy()
    return np.asarray(result)


def _config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return config
