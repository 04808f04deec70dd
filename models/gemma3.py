"""Gemma 3 (text): layers, and the names of its tensors in files.

Source: "Gemma 3 Technical Report" (2025) and the reference implementation google/gemma_pytorch.
In shape comments `N` is sequences x tokens, `E` the hidden width, `H` query heads, `G` key/value
heads, `D` the width of a head.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from models import decoder
from models.dsl import functions as f
from models.dsl import nn, ops
from models.program import STORAGE, Program, ProgramOptions, StoredTensor, gguf_name

if TYPE_CHECKING:
    from models.decoder import KVCache, RopeTable, Span
    from models.dsl.graph import Tensor
    from models.gemma3_config import Config


class Attention(nn.Module):
    """Grouped-query attention with normalised queries and keys, rotary positions and a cache."""

    def __init__(self, config: Config, layer: int, options: ProgramOptions) -> None:
        storage = STORAGE[options.precision]
        self.config = config
        self.kernels = options.kernels
        self.is_global = config.is_global(layer)
        heads, groups, width = config.heads, config.kv_heads, config.head_dim
        self.qkv_proj = nn.Linear(config.hidden, (heads + 2 * groups) * width, storage)
        self.o_proj = nn.Linear(heads * width, config.hidden, storage)
        self.q_norm = nn.RMSNorm(width, config.norm_eps)
        self.k_norm = nn.RMSNorm(width, config.norm_eps)

    def __call__(
        self, x: Tensor, rope: RopeTable, spans: list[Span], caches: list[KVCache]
    ) -> tuple[Tensor, list[KVCache]]:
        """x (N, E) holds the new tokens of each sequence, one sequence after the other."""
        config = self.config
        heads = decoder.split_heads(self.qkv_proj(x), config.head_dim)  # (N, H + 2 G, D)
        queries, keys = config.heads, config.heads + config.kv_heads
        query = self._rotated(heads, 0, queries, self.q_norm, rope)  # (N, H, D)
        key = self._rotated(heads, queries, keys, self.k_norm, rope)  # (N, G, D)
        value = f.narrow(heads, 1, keys, keys + config.kv_heads)  # (N, G, D)
        mixed, caches = decoder.attend(
            query, key, value, spans, caches, scale=self.config.query_scale
        )
        return self.o_proj(mixed), caches

    def _rotated(
        self, heads: Tensor, start: int, stop: int, norm: nn.RMSNorm, rope: RopeTable
    ) -> Tensor:
        return decoder.rotated(heads, start, stop, norm, rope, kernels=self.kernels)


class MLP(nn.Module):
    """down(gelu(gate(x)) * up(x))."""

    def __init__(self, config: Config, options: ProgramOptions) -> None:
        storage = STORAGE[options.precision]
        self.gate_proj = nn.Linear(config.hidden, config.ffn, storage)
        self.up_proj = nn.Linear(config.hidden, config.ffn, storage)
        self.down_proj = nn.Linear(config.ffn, config.hidden, storage)

    def __call__(self, x: Tensor) -> Tensor:
        """(N, E) -> (N, E)."""
        return self.down_proj(f.gelu_tanh(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """One layer: attention and MLP, each normalised before and after."""

    def __init__(self, config: Config, layer: int, options: ProgramOptions) -> None:
        self.kernels = options.kernels
        self.input_layernorm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.self_attn = Attention(config, layer, options)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.pre_feedforward_layernorm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.mlp = MLP(config, options)
        self.post_feedforward_layernorm = nn.RMSNorm(config.hidden, config.norm_eps)

    def __call__(
        self,
        h: Tensor,
        x: Tensor,
        following: nn.RMSNorm,
        rope: RopeTable,
        spans: list[Span],
        caches: list[KVCache],
    ) -> tuple[Tensor, Tensor, list[KVCache]]:
        """h (N, E), and x, which is h as this layer's first norm leaves it.

        Returns both for `following`, the norm of what comes next, and the caches with the new
        tokens in them.
        """
        y, caches = self.self_attn(x, rope, spans, caches)
        h, x = self._add(h, y, self.post_attention_layernorm, self.pre_feedforward_layernorm)
        h, x = self._add(h, self.mlp(x), self.post_feedforward_layernorm, following)
        return h, x, caches

    def _add(
        self, h: Tensor, y: Tensor, after: nn.RMSNorm, before: nn.RMSNorm
    ) -> tuple[Tensor, Tensor]:
        return decoder.residual(h, y, after, before, kernels=self.kernels)


class Gemma3(nn.Module):
    """The whole model; the embedding table is also the output head."""

    def __init__(self, config: Config, options: ProgramOptions) -> None:
        storage = STORAGE[options.precision]
        self.config = config
        self.options = options
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden, storage)
        self.layers = [Block(config, layer, options) for layer in range(config.layers)]
        self.norm = nn.RMSNorm(config.hidden, config.norm_eps)

    def __call__(
        self, tokens: Tensor, starts: list[Tensor], caches: list[list[KVCache]], keys: int
    ) -> tuple[Tensor, list[list[KVCache]]]:
        """See models/decoder.py: i32 (N,) -> (N, E), and the caches."""
        each = tokens.shape[0] // len(starts)
        positions = [decoder.count_up(start, each) for start in starts]
        h = self.embed_tokens(tokens) * math.sqrt(self.config.hidden)
        everywhere = ops.concatenate(*positions, axis=0)
        ropes = {
            kind: f.rope_table(everywhere, self.config.head_dim, base=base, factor=factor)
            for kind, base, factor in (
                (False, self.config.local_rope_base, 1.0),
                (True, self.config.global_rope_base, self.config.global_rope_factor),
            )
        }
        spans = {
            kind: [decoder.span(start, each, window, keys, self.options) for start in starts]
            for kind, window in ((False, self.config.window), (True, None))
        }
        first, *others = (block.input_layernorm for block in self.layers)
        x, updated = first(h), []
        for block, following, own in zip(self.layers, [*others, self.norm], caches, strict=True):
            kind = block.self_attn.is_global
            h, x, own = block(h, x, following, ropes[kind], spans[kind], own)
            updated.append(own)
        return x, updated

    def window(self, layer: int) -> int | None:
        """Keys that a layer sees; None for all."""
        return None if self.config.is_global(layer) else self.config.window

    def logits(self, x: Tensor, exact: Tensor | None = None) -> Tensor:
        """Hidden state (N, E), normalised -> logits (N, V)."""
        return self.embed_tokens.logits(x, exact)


def program(config: Config, options: ProgramOptions) -> Program:
    """Trace every entry point."""
    return decoder.program(Gemma3(config, options))


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
    found = [prefix + parameter for prefix in _HUGGING_FACE_PREFIXES if prefix + parameter in names]
    return StoredTensor(found[0] if found else f"model.{parameter}", offset)


def is_other_part(tensor: str) -> bool:
    """Whether a tensor belongs to a part of the model that Hearth does not run (vision)."""
    return tensor.startswith(_NOT_TEXT)
