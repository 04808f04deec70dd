"""Llama: layers, and the names of its tensors in files.

Source: "Llama 2: Open Foundation and Fine-Tuned Chat Models" (2023) and the reference
implementation meta-llama/llama. SmolLM2 and many others are of this architecture.
In shape comments `N` is sequences x tokens, `E` the hidden width, `H` query heads, `G` key/value
heads, `D` the width of a head, `V` the vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from models import decoder
from models.dsl import functions as f
from models.dsl import nn, ops
from models.program import STORAGE, Program, ProgramOptions, StoredTensor, gguf_name

if TYPE_CHECKING:
    from models.decoder import KVCache, RopeTable, Span
    from models.dsl.graph import Tensor
    from models.llama_config import Config


class Attention(nn.Module):
    """Grouped-query attention with rotary positions and a cache."""

    def __init__(self, config: Config, storage: nn.Storage) -> None:
        self.config = config
        heads, groups, width = config.heads, config.kv_heads, config.head_dim
        self.qkv_proj = nn.Linear(config.hidden, (heads + 2 * groups) * width, storage)
        self.o_proj = nn.Linear(heads * width, config.hidden, storage)

    def __call__(
        self, x: Tensor, rope: RopeTable, spans: list[Span], caches: list[KVCache]
    ) -> tuple[Tensor, list[KVCache]]:
        """x (N, E) holds the new tokens of each sequence, one sequence after the other."""
        config = self.config
        heads = decoder.split_heads(self.qkv_proj(x), config.head_dim)  # (N, H + 2 G, D)
        query, key, value = f.split(  # (N, H, D), (N, G, D), (N, G, D)
            heads, (config.heads, config.kv_heads, config.kv_heads), axis=1
        )
        query, key = f.rope(query, *rope), f.rope(key, *rope)
        scale = config.head_dim**-0.5
        mixed, caches = decoder.attend(query, key, value, spans, caches, scale=scale)
        return self.o_proj(mixed), caches


class MLP(nn.Module):
    """down(silu(gate(x)) * up(x)): SwiGLU (Shazeer, 2020)."""

    def __init__(self, config: Config, storage: nn.Storage) -> None:
        self.gate_proj = nn.Linear(config.hidden, config.ffn, storage)
        self.up_proj = nn.Linear(config.hidden, config.ffn, storage)
        self.down_proj = nn.Linear(config.ffn, config.hidden, storage)

    def __call__(self, x: Tensor) -> Tensor:
        """(N, E) -> (N, E)."""
        return self.down_proj(f.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """One layer: attention and MLP, each normalised before."""

    def __init__(self, config: Config, storage: nn.Storage) -> None:
        self.input_layernorm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.self_attn = Attention(config, storage)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.mlp = MLP(config, storage)

    def __call__(
        self, h: Tensor, rope: RopeTable, spans: list[Span], caches: list[KVCache]
    ) -> tuple[Tensor, list[KVCache]]:
        """h (N, E) -> (N, E), and the caches with the new tokens in them."""
        attended, caches = self.self_attn(self.input_layernorm(h), rope, spans, caches)
        h = h + attended
        return h + self.mlp(self.post_attention_layernorm(h)), caches


class Llama(nn.Module):
    """The whole model; the output head is a matrix of its own, or the embedding table."""

    def __init__(self, config: Config, options: ProgramOptions) -> None:
        storage = STORAGE[options.precision]
        self.config = config
        self.options = options
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden, storage)
        self.layers = [Block(config, storage) for _ in range(config.layers)]
        self.norm = nn.RMSNorm(config.hidden, config.norm_eps)
        untied = nn.Embedding(config.vocab_size, config.hidden, storage)
        self.lm_head = None if config.tied else untied

    def __call__(
        self, tokens: Tensor, starts: list[Tensor], caches: list[list[KVCache]], keys: int
    ) -> tuple[Tensor, list[list[KVCache]]]:
        """See models/decoder.py: i32 (N,) -> (N, E), and the caches."""
        config = self.config
        each = tokens.shape[0] // len(starts)
        positions = ops.concatenate(*(decoder.count_up(start, each) for start in starts), axis=0)
        rope = f.rope_table(
            positions, config.head_dim, base=config.rope_base, factor=config.rope_factor
        )
        spans = [decoder.span(start, each, None, keys, self.options) for start in starts]
        h = self.embed_tokens(tokens)
        updated = []
        for block, layer_caches in zip(self.layers, caches, strict=True):
            h, layer_caches = block(h, rope, spans, layer_caches)
            updated.append(layer_caches)
        return self.norm(h), updated

    def window(self, _: int) -> None:
        """Every layer sees all keys."""

    def logits(self, x: Tensor, exact: Tensor | None = None) -> Tensor:
        """Hidden state (N, E), normalised -> logits (N, V)."""
        head = self.embed_tokens if self.lm_head is None else self.lm_head
        return head.logits(x, exact)


def program(config: Config, options: ProgramOptions) -> Program:
    """Trace every entry point."""
    return decoder.program(Llama(config, options))


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
    """Whether a tensor is none of the weights: old files keep the rotary frequencies."""
    return tensor.endswith("rotary_emb.inv_freq")
