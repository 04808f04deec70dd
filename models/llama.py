"""Llama: layers, and the names of its tensors in files.

Source: "Llama 2: Open Foundation and Fine-Tuned Chat Models" (2023) and the reference
implementation meta-llama/llama. SmolLM2 and many others are of this architecture.
In shape comments `N` is sequences x tokens, `E` the hidden width, `H` query heads, `G` key/value
heads, `D` the width of a head, `V` the vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from models.dsl import functions as f
from models.dsl import nn
from models.program import StoredTensor, gguf_name

if TYPE_CHECKING:
    from models.dsl.graph import Tensor
    from models.kv_cache import LayerCache
    from models.llama_config import Config

    # Cosine and sine of every position's angles, each f32 (N, D / 2).
    RopeTable: TypeAlias = tuple[Tensor, Tensor]


class Attention(nn.Module):
    """Grouped-query attention with rotary positions."""

    def __init__(self, config: Config) -> None:
        self.width = config.head_dim
        heads, groups = config.heads * self.width, config.kv_heads * self.width
        self.q_proj = nn.Linear(config.hidden, heads)
        self.k_proj = nn.Linear(config.hidden, groups)
        self.v_proj = nn.Linear(config.hidden, groups)
        self.o_proj = nn.Linear(heads, config.hidden)

    def __call__(self, x: Tensor, rope: RopeTable, cache: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        query = f.rope(f.split_heads(self.q_proj(x), self.width), *rope)  # (N, H, D)
        key = f.rope(f.split_heads(self.k_proj(x), self.width), *rope)  # (N, G, D)
        value = f.split_heads(self.v_proj(x), self.width)  # (N, G, D)
        return self.o_proj(cache.attend(query, key, value, scale=self.width**-0.5))


class MLP(nn.Module):
    """down(silu(gate(x)) * up(x)): SwiGLU (Shazeer, 2020)."""

    def __init__(self, config: Config) -> None:
        self.gate_proj = nn.Linear(config.hidden, config.ffn)
        self.up_proj = nn.Linear(config.hidden, config.ffn)
        self.down_proj = nn.Linear(config.ffn, config.hidden)

    def __call__(self, x: Tensor) -> Tensor:
        """(N, E) -> (N, E)."""
        return self.down_proj(f.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """One layer: attention and MLP, each normalised before."""

    def __init__(self, config: Config) -> None:
        self.input_layernorm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.mlp = MLP(config)

    def __call__(self, h: Tensor, rope: RopeTable, cache: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        x = self.input_layernorm(h)
        h = h + self.self_attn(x, rope, cache)
        x = self.post_attention_layernorm(h)
        return h + self.mlp(x)


class Llama(nn.Module):
    """The whole model; the output head is a matrix of its own, or the embedding table."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden)
        self.layers = [Block(config) for _ in range(config.layers)]
        self.norm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.lm_head = None if config.tied else nn.Linear(config.hidden, config.vocab_size)

    def __call__(self, tokens: Tensor, positions: Tensor, caches: list[LayerCache]) -> Tensor:
        """Tokens i32 (N,) at positions i32 (N,) -> normalised hidden states (N, E)."""
        config = self.config
        rope = f.rope_table(
            positions, config.head_dim, base=config.rope_base, factor=config.rope_factor
        )
        h = self.embed_tokens(tokens)
        for block, cache in zip(self.layers, caches, strict=True):
            h = block(h, rope, cache)
        return self.norm(h)

    def logits(self, x: Tensor) -> Tensor:
        """Normalised hidden states (N, E) -> logits (N, V)."""
        return self.embed_tokens.logits(x) if self.lm_head is None else self.lm_head(x)

    def window(self, _: int) -> None:
        """Every layer sees all keys."""


# --- names in files

_GGUF_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "embed_tokens": "token_embd",
    "norm": "output_norm",
    "lm_head": "output",
}


def stored_tensor(
    config: Config, parameter: str, _: tuple[str, ...], *, gguf: bool
) -> StoredTensor:
    """Where a parameter lies in a file.

    In GGUF files of this architecture the rows of queries and keys are in another order: llama.cpp
    rotates the pairs (2i, 2i + 1), and its converter puts them side by side. Here, as in Hugging
    Face's files, a pair is (i, i + D/2).
    """
    if gguf:
        rotated = parameter.endswith(("q_proj.weight", "k_proj.weight"))
        name = gguf_name(parameter, _GGUF_NAMES)
        return StoredTensor(name, interleaved=config.head_dim if rotated else 0)
    return StoredTensor(parameter if parameter.startswith("lm_head.") else f"model.{parameter}")


def is_other_part(tensor: str) -> bool:
    """Whether a tensor is not a weight: old files store the rotary frequencies."""
    return tensor.endswith("rotary_emb.inv_freq")
