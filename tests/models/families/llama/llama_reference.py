"""Llama in plain NumPy, in float64, over a whole sequence at once: no cache, no DSL.

Written from "Llama 2" and meta-llama/llama, whose own order of queries and keys it takes: a pair
that is rotated together is (2i, 2i + 1), as in GGUF files. `Mistakes` are the ways in which ports
of it have gone wrong: with one of them the result must differ from ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hearthd.models.decoder.config.decoder_config import DecoderConfig as Config

    Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Mistakes:
    """What to do wrong; nothing by default."""

    split_half: bool = False
    keys_not_rotated: bool = False
    rope_base: float | None = None
    rope_factor: bool = True
    eps: float | None = None
    input_norm: bool = True
    post_attention_norm: bool = True
    last_norm: bool = True
    norm_offset: float = 0.0
    embedding_scale: float = 1.0
    scale: float | None = None
    heads_interleaved: bool = False
    window: int | None = None
    gate_and_up_swapped: bool = False
    gelu: bool = False
    tied: bool = False


RIGHT = Mistakes()


def file_order(config: Config, weights: Mapping[str, Array]) -> dict[str, Array]:
    """Our weights with the rows of queries and keys as meta-llama and GGUF files have them."""
    width = config.head_dim
    order = [i // 2 + (i % 2) * (width // 2) for i in range(width)]

    def interleaved(array: Array) -> Array:
        heads = array.reshape(-1, width, array.shape[1])
        return np.asarray(heads[:, order].reshape(array.shape))

    return {
        name: interleaved(array) if "q_proj" in name or "k_proj" in name else array
        for name, array in weights.items()
    }


def hidden(
    config: Config, weights: Mapping[str, Array], tokens: Sequence[int], wrong: Mistakes = RIGHT
) -> Array:
    """The normalized hidden state after every token (T, E), for weights in `file_order`."""
    w = {name: array.astype(np.float64) for name, array in weights.items()}
    h = w["embed_tokens.weight"][list(tokens)] * wrong.embedding_scale

    def norm(x: Array, name: str) -> Array:
        eps = config.norm_eps if wrong.eps is None else wrong.eps
        root = np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)
        return np.asarray(x / root * (w[name] + wrong.norm_offset))

    for layer in range(config.layers):
        at = f"layers.{layer}"
        x = norm(h, f"{at}.input_layernorm.weight") if wrong.input_norm else h
        h = h + attention(config, w, f"{at}.self_attn", x, wrong)
        x = norm(h, f"{at}.post_attention_layernorm.weight") if wrong.post_attention_norm else h
        gate, up = (x @ w[f"{at}.mlp.{name}_proj.weight"].T for name in ("gate", "up"))
        if wrong.gate_and_up_swapped:
            gate, up = up, gate
        active = gate / (1 + np.exp(-gate))
        if wrong.gelu:
            active = 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))
        h = h + (active * up) @ w[f"{at}.mlp.down_proj.weight"].T
    return norm(h, "norm.weight") if wrong.last_norm else h


def forward(
    config: Config, weights: Mapping[str, Array], tokens: Sequence[int], wrong: Mistakes = RIGHT
) -> Array:
    """The logits after every token: (T, V)."""
    tied = config.tied or wrong.tied
    head = weights["embed_tokens.weight" if tied else "lm_head.weight"].astype(np.float64)
    logits: Array = hidden(config, weights, tokens, wrong) @ head.T
    return logits


def attention(config: Config, w: Mapping[str, Array], at: str, x: Array, wrong: Mistakes) -> Array:
    """(T, E) -> (T, E)."""
    tokens, width, groups = len(x), config.head_dim, config.kv_heads
    query, key, value = (
        (x @ w[f"{at}.{name}_proj.weight"].T).reshape(tokens, -1, width) for name in "qkv"
    )
    query = rotate(config, query, wrong)
    key = key if wrong.keys_not_rotated else rotate(config, key, wrong)
    heads_per_group = config.heads // groups
    of = [
        h % groups if wrong.heads_interleaved else h // heads_per_group for h in range(config.heads)
    ]
    scale = width**-0.5 if wrong.scale is None else wrong.scale
    scores = np.einsum("qhd,khd->hqk", query, key[:, of]) * scale
    q, k = np.indices((tokens, tokens))
    seen = (k <= q) if wrong.window is None else (k <= q) & (k > q - wrong.window)
    scores = np.where(seen, scores, -np.inf)
    shares = np.exp(scores - scores.max(axis=2, keepdims=True))
    shares /= shares.sum(axis=2, keepdims=True)
    mixed = np.einsum("hqk,khd->qhd", shares, value[:, of]).reshape(tokens, -1)
    result: Array = mixed @ w[f"{at}.o_proj.weight"].T
    return result


def rotate(config: Config, x: Array, wrong: Mistakes) -> Array:
    """Rotary positions: pairs (2i, 2i + 1) turn by position * base^(-2i/D) / factor."""
    tokens, _, width = x.shape
    base = config.rope_base if wrong.rope_base is None else wrong.rope_base
    factor = config.rope_factor if wrong.rope_factor else 1.0
    frequencies = base ** (-np.arange(0, width, 2) / width) / factor
    turn = np.exp(1j * np.outer(np.arange(tokens), frequencies))[:, None, :]  # (T, 1, D/2)
    first, second = (slice(0, None, 2), slice(1, None, 2))
    if wrong.split_half:
        first, second = (slice(0, width // 2), slice(width // 2, None))
    pairs = (x[..., first] + 1j * x[..., second]) * turn
    result = np.empty_like(x)
    result[..., first], result[..., second] = pairs.real, pairs.imag
    return result
