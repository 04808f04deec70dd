"""Gemma 3 (text): layers, and the names of its tensors in files.

Source: "Gemma 3 Technical Report" (2025) and the reference implementation google/gemma_pytorch.
In shape comments `N` is sequences x tokens, `E` the hidden width, `H` query heads, `G` key/value
heads, `D` the width of a head.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

from models.dsl import functions as f
from models.dsl import nn
from models.program import StoredTensor, gguf_name

if TYPE_CHECKING:
    from models.dsl.graph import Tensor
    from models.gemma3_config import Config
    from models.kv_cache import LayerCache

    # Cosine and sine of every position's angles, each f32 (N, D / 2).
    RopeTable: TypeAlias = tuple[Tensor, Tensor]


class Attention(nn.Module):
    """Grouped-query attention with normalised queries and keys, and rotary positions."""

    def __init__(self, config: Config) -> None:
        self.width, self.scale = config.head_dim, config.query_scale
        heads, groups = config.heads * self.width, config.kv_heads * self.width
        self.q_proj = nn.Linear(config.hidden, heads)
        self.k_proj = nn.Linear(config.hidden, groups)
        self.v_proj = nn.Linear(config.hidden, groups)
        self.q_norm = nn.RMSNorm(self.width, config.norm_eps)
        self.k_norm = nn.RMSNorm(self.width, config.norm_eps)
        self.o_proj = nn.Linear(heads, config.hidden)

    def __call__(self, x: Tensor, rope: RopeTable, cache: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        query = f.split_heads(self.q_proj(x), self.width)  # (N, H, D)
        key = f.split_heads(self.k_proj(x), self.width)  # (N, G, D)
        value = f.split_heads(self.v_proj(x), self.width)  # (N, G, D)
        query = f.rope(self.q_norm(query), *rope)
        key = f.rope(self.k_norm(key), *rope)
        return self.o_proj(cache.attend(query, key, value, scale=self.scale))


class MLP(nn.Module):
    """down(gelu(gate(x)) * up(x))."""

    def __init__(self, config: Config) -> None:
        self.gate_proj = nn.Linear(config.hidden, config.ffn)
        self.up_proj = nn.Linear(config.hidden, config.ffn)
        self.down_proj = nn.Linear(config.ffn, config.hidden)

    def __call__(self, x: Tensor) -> Tensor:
        """(N, E) -> (N, E)."""
        return self.down_proj(f.gelu_tanh(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """One layer: attention and MLP, each normalised before and after."""

    def __init__(self, config: Config) -> None:
        self.input_layernorm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.pre_feedforward_layernorm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.mlp = MLP(config)
        self.post_feedforward_layernorm = nn.RMSNorm(config.hidden, config.norm_eps)

    def __call__(self, h: Tensor, rope: RopeTable, cache: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        x = self.input_layernorm(h)
        x = self.self_attn(x, rope, cache)
        h = h + self.post_attention_layernorm(x)
        x = self.pre_feedforward_layernorm(h)
        x = self.mlp(x)
        return h + self.post_feedforward_layernorm(x)


class Gemma3(nn.Module):
    """The whole model; the embedding table is also the output head."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden)
        self.layers = [Block(config) for _ in range(config.layers)]
        self.norm = nn.RMSNorm(config.hidden, config.norm_eps)

    def __call__(self, tokens: Tensor, positions: Tensor, caches: list[LayerCache]) -> Tensor:
        """Tokens i32 (N,) at positions i32 (N,) -> normalised hidden states (N, E)."""
        config = self.config
        sliding = f.rope_table(positions, config.head_dim, base=config.local_rope_base)
        everywhere = f.rope_table(
            positions,
            config.head_dim,
            base=config.global_rope_base,
            factor=config.global_rope_factor,
        )
        h = self.embed_tokens(tokens) * math.sqrt(config.hidden)
        for layer, (block, cache) in enumerate(zip(self.layers, caches, strict=True)):
            h = block(h, everywhere if config.is_global(layer) else sliding, cache)
        return self.norm(h)

    def logits(self, x: Tensor) -> Tensor:
        """Normalised hidden states (N, E) -> logits (N, V)."""
        return self.embed_tokens.logits(x)

    def window(self, layer: int) -> int | None:
        """Keys that a token sees in a layer, itself included; None for all of them."""
        return None if self.config.is_global(layer) else self.config.window


# --- names in files

_GGUF_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "post_feedforward_layernorm": "post_ffw_norm",
    "embed_tokens": "token_embd",
    "norm": "output_norm",
}
# The larger models come with a vision tower, and with the text model one level down.
_HUGGING_FACE_PREFIXES = ("model.", "model.language_model.", "language_model.model.")
_NOT_TEXT = (
    "model.vision_tower.",
    "vision_tower.",
    "multi_modal_projector.",
    "model.multi_modal_projector.",
)


def stored_tensor(_: Config, parameter: str, names: tuple[str, ...], *, gguf: bool) -> StoredTensor:
    """Where a parameter lies in a file with these tensor names.

    A norm multiplies by 1 + w. GGUF files store 1 + w, Hugging Face's store w.
    """
    if gguf:
        return StoredTensor(gguf_name(parameter, _GGUF_NAMES))
    offset = 1.0 if parameter.endswith("norm.weight") else 0.0
    stored_names = [
        prefix + parameter for prefix in _HUGGING_FACE_PREFIXES if prefix + parameter in names
    ]
    return StoredTensor(stored_names[0] if stored_names else f"model.{parameter}", offset)


def is_other_part(tensor: str) -> bool:
    """Whether a tensor belongs to a part of the model that Hearth does not run (vision)."""
    return tensor.startswith(_NOT_TEXT)
