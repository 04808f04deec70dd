"""An encoder of the BERT type whose tokens have rotary positions, in place of a table of them.

`N` is texts x tokens, `E` the hidden width, `B` texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.decoder.layers import FusedAttention, rope_table
from hearthd.models.decoder.tensor_names import GGUF_NAMES
from hearthd.models.dsl import nn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from hearthd.models.decoder.config.decoder_config import DecoderConfig
    from hearthd.models.decoder.kv_cache import LayerCache
    from hearthd.models.decoder.layers import RopeTable
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.encoder.texts import Texts

ROTARY_GGUF_NAMES: Mapping[str, str] = {
    **GGUF_NAMES,
    "embed_types": "token_types",
    "norm": "token_embd_norm",
    "attention_norm": "attn_output_norm",
    "output_norm": "layer_output_norm",
}


class RotaryBlock(nn.Module):
    """One layer: attention and MLP, each added to its input and normalized."""

    def __init__(self, config: DecoderConfig, mlp: Callable[[Tensor], Tensor]) -> None:
        self.self_attn = FusedAttention(config)
        self.attention_norm = nn.LayerNorm(config.hidden, config.norm_eps)
        self.mlp = mlp
        self.output_norm = nn.LayerNorm(config.hidden, config.norm_eps)

    def __call__(self, h: Tensor, rope: RopeTable, text: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        h = self.attention_norm(h + self.self_attn(h, rope, text))
        return self.output_norm(h + self.mlp(h))


class RotaryEncoder(nn.Module):
    """The encoder, with the MLPs of its layers; `token_types` is None without a table of them."""

    def __init__(
        self,
        config: DecoderConfig,
        mlps: Iterable[Callable[[Tensor], Tensor]],
        *,
        token_types: int | None,
    ) -> None:
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden)
        if token_types is not None:
            self.embed_types = nn.Embedding(token_types, config.hidden)
        self.has_types = token_types is not None
        self.norm = nn.LayerNorm(config.hidden, config.norm_eps)
        self.layers = [RotaryBlock(config, mlp) for mlp in mlps]

    def encode(self, texts: Texts) -> Tensor:
        """Texts -> their vectors (B, E)."""
        rope = rope_table(self.config, texts.positions)
        h = self.embed_tokens(texts.tokens)
        if self.has_types:
            h = h + self.embed_types(texts.types)
        h = self.norm(h)
        for block in self.layers:
            h = block(h, rope, texts.layer())
        return texts.pooled(h, self.config.pooling)
