"""Gemma 3 in plain NumPy, in float64, over a whole sequence at once: no cache, no DSL.

Written from "Gemma 3 Technical Report" and google/gemma_pytorch. `Mistakes` are the ways in which
ports of it have gone wrong: with one of them the result must differ from ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hearthd.models.families.gemma3 import Config

    Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Mistakes:
    """What to do wrong; nothing by default."""

    window_ignored: bool = False
    window_change: int = 0
    layer_shift: int = 0
    scale: float | None = None
    embedding_scale: float | None = None
    norm_offset: float = 0.0
    query_norm: bool = True
    key_norm: bool = True
    value_norm: bool = False
    key_norm_after_rope: bool = False
    interleaved: bool = False
    rotary_part: float = 1.0
    one_rope_base: bool = False
    rope_factor: bool = True
    rope_factor_everywhere: bool = False
    heads_interleaved: bool = False
    heads_reshaped: bool = False
    cache_frozen: bool = False
    post_norms: bool = True
    activation: str = "gelu"


RIGHT = Mistakes()


def forward(
    config: Config, weights: Mapping[str, Array], tokens: Sequence[int], wrong: Mistakes = RIGHT
) -> Array:
    """The logits after every token: (T, V)."""
    table = weights["embed_tokens.weight"].astype(np.float64)
    logits: Array = hidden(config, weights, tokens, wrong) @ table.T
    return logits


def hidden(
    config: Config, weights: Mapping[str, Array], tokens: Sequence[int], wrong: Mistakes = RIGHT
) -> Array:
    """The normalized hidden state after every token: (T, E)."""
    w = {name: array.astype(np.float64) for name, array in weights.items()}
    scale = wrong.embedding_scale or math.sqrt(config.hidden)
    h = w["embed_tokens.weight"][list(tokens)] * scale
    for layer in range(config.layers):
        layer_weights = {
            name.removeprefix(f"layers.{layer}."): array
            for name, array in w.items()
            if name.startswith(f"layers.{layer}.")
        }

        def norm(x: Array, name: str, layer_weights: Mapping[str, Array] = layer_weights) -> Array:
            return rms_norm(x, layer_weights[f"{name}.weight"] + wrong.norm_offset, config.norm_eps)

        mixed = attention(config, layer, layer_weights, norm(h, "input_layernorm"), wrong)
        h = h + (norm(mixed, "post_attention_layernorm") if wrong.post_norms else mixed)
        x = norm(h, "pre_feedforward_layernorm")
        gate = x @ layer_weights["mlp.gate_proj.weight"].T
        gate = gelu(gate) if wrong.activation == "gelu" else gate / (1 + np.exp(-gate))
        x = gate * (x @ layer_weights["mlp.up_proj.weight"].T)
        x = x @ layer_weights["mlp.down_proj.weight"].T
        h = h + (norm(x, "post_feedforward_layernorm") if wrong.post_norms else x)
    return rms_norm(h, w["norm.weight"] + wrong.norm_offset, config.norm_eps)


def attention(
    config: Config, layer: int, w: Mapping[str, Array], x: Array, wrong: Mistakes
) -> Array:
    """(T, E) -> (T, E)."""
    tokens, width, groups = len(x), config.head_dim, config.kv_heads
    window = config.windows[(layer + wrong.layer_shift) % config.layers]
    is_global = window is None

    def heads(name: str) -> Array:
        flat = x @ w[f"self_attn.{name}.weight"].T
        if wrong.heads_reshaped:
            return flat.reshape(-1, tokens, width).transpose(1, 0, 2)
        return flat.reshape(tokens, -1, width)

    def norm(x: Array, name: str) -> Array:
        return rms_norm(x, w[f"self_attn.{name}.weight"] + wrong.norm_offset, config.norm_eps)

    query, key, value = heads("q_proj"), heads("k_proj"), heads("v_proj")  # (T, H or G, D)
    if wrong.query_norm:
        query = norm(query, "q_norm")
    if wrong.key_norm and not wrong.key_norm_after_rope:
        key = norm(key, "k_norm")
    if wrong.value_norm:
        value = rms_norm(value, np.ones(width), config.norm_eps)
    query, key = (rotate(config, part, is_global, wrong) for part in (query, key))
    if wrong.key_norm_after_rope:
        key = norm(key, "k_norm")
    heads_per_group = config.heads // groups
    of = [
        h % groups if wrong.heads_interleaved else h // heads_per_group for h in range(config.heads)
    ]
    scale = config.query_scale if wrong.scale is None else wrong.scale
    scores = np.einsum("qhd,khd->hqk", query, key[:, of]) * scale
    q, k = np.indices((tokens, tokens))
    seen = (k == q) if wrong.cache_frozen else (k <= q)
    if window is not None and not wrong.window_ignored:
        seen &= k > q - (window + wrong.window_change)
    scores = np.where(seen, scores, -np.inf)
    shares = np.exp(scores - scores.max(axis=2, keepdims=True))
    shares /= shares.sum(axis=2, keepdims=True)
    mixed = np.einsum("hqk,khd->qhd", shares, value[:, of]).reshape(tokens, -1)
    result: Array = mixed @ w["self_attn.o_proj.weight"].T
    return result


def rotate(config: Config, x: Array, is_global: bool, wrong: Mistakes) -> Array:
    """Rotary positions: pairs (i, i + D/2) turn by position * base^(-2i/D)."""
    tokens, _, width = x.shape
    base = config.rope_base if is_global else config.local_rope_base
    if wrong.one_rope_base:
        base = config.rope_base
    factor = config.rope_factor if is_global and wrong.rope_factor else 1.0
    if wrong.rope_factor_everywhere:
        factor = config.rope_factor
    turning = int(width * wrong.rotary_part)
    frequencies = base ** (-np.arange(0, turning, 2) / turning) / factor
    turn = np.exp(1j * np.outer(np.arange(tokens), frequencies))[:, None, :]  # (T, 1, D/2)
    result = x.copy()
    if wrong.interleaved:
        pairs = (x[..., 0::2] + 1j * x[..., 1::2]) * turn
        result[..., 0::2], result[..., 1::2] = pairs.real, pairs.imag
        return result
    half = turning // 2
    pairs = (x[..., :half] + 1j * x[..., half:turning]) * turn
    result[..., :half], result[..., half:turning] = pairs.real, pairs.imag
    return result


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    return np.asarray(x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps) * weight)


def gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))
