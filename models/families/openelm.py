"""OpenELM: normalized heads, and other numbers of heads and widths of MLPs in each layer.

Source: "OpenELM" (Apple, 2024).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.models.config import ConfigError
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import (
    DecoderConfig,
    from_config_json,
    from_gguf_metadata,
)
from hearthd.models.decoder.layers import MLP, Block, DecoderModel, FusedAttention
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl import nn

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor

_EPS = 1e-6  # of norms, which config.json does not say


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    """The shape of a model, whose `heads`, `kv_heads` and `ffn` are the largest of a layer.

    query_heads, key_heads, ffns  of each layer
    """

    by_layer = (*DecoderConfig.by_layer, "query_heads", "key_heads", "ffns")

    query_heads: tuple[int, ...]
    key_heads: tuple[int, ...]
    ffns: tuple[int, ...]

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        for queries, keys in zip(self.query_heads, self.key_heads, strict=True):
            if queries % keys:
                raise ConfigError(f"{queries} heads cannot share {keys} key/value heads")

    @override
    def layer(self, index: int) -> Config:
        return replace(
            self,
            heads=self.query_heads[index],
            kv_heads=self.key_heads[index],
            ffn=self.ffns[index],
        )


class NormedFusedAttention(FusedAttention):
    """Attention with one projection, that normalizes each head of queries and keys."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config)
        self.q_norm = nn.RMSNorm(config.head_dim, config.norm_eps)
        self.k_norm = nn.RMSNorm(config.head_dim, config.norm_eps)

    @override
    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = super().heads(x)
        return self.q_norm(query), self.k_norm(key), value


class OpenElm(DecoderModel):
    """Llama's blocks, each of its own shape."""

    def __init__(self, config: Config) -> None:
        shapes = map(config.layer, range(config.layers))
        blocks = [Block(shape, NormedFusedAttention(shape), MLP(shape)) for shape in shapes]
        super().__init__(config, blocks)


def _rounded(width: float, divisor: int) -> int:
    """The multiple of the divisor next to a width, and above nine tenths of it."""
    nearest = max(divisor, int(width + divisor / 2) // divisor * divisor)
    return nearest + divisor * (nearest < 0.9 * width)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    data.rename(
        max_context_length="max_position_embeddings",
        model_dim="hidden_size",
        num_transformer_layers="num_hidden_layers",
        rope_freq_constant="rope_theta",
        share_input_output_layers="tie_word_embeddings",
    )
    data.fixed(
        activation_fn_name="swish", ffn_with_glu=True, normalization_layer_name="rms_norm",
        normalize_qk_projections=True,
    )  # fmt: skip
    data.ignore("num_gqa_groups", "qkv_multipliers", "rope_max_length")
    query_heads, key_heads = data.counts("num_query_heads"), data.counts("num_kv_heads")
    divisor, hidden = data.size("ffn_dim_divisor", default=256), data.size("hidden_size")
    ffns = [_rounded(factor * hidden, divisor) for factor in data.numbers("ffn_multipliers")]
    data.assume(
        num_attention_heads=max(query_heads, default=0),
        num_key_value_heads=max(key_heads, default=0),
        rms_norm_eps=_EPS,
    )
    return Config(
        **from_config_json(data, ffn=max(ffns, default=0)),
        query_heads=tuple(query_heads),
        key_heads=tuple(key_heads),
        ffns=tuple(ffns),
    )


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata."""
    keys = ("attention.head_count", "attention.head_count_kv", "feed_forward_length")
    query_heads, key_heads, ffns = map(data.counts, keys)
    fields = from_gguf_metadata(
        data,
        heads=max(query_heads, default=0),
        kv_heads=max(key_heads, default=0),
        ffn=max(ffns, default=0),
    )
    return Config(
        **fields, query_heads=tuple(query_heads), key_heads=tuple(key_heads), ffns=tuple(ffns)
    )


ARCHITECTURE = Architecture(
    name="openelm",
    config=Config,
    model_types=("openelm",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=OpenElm,
    tensors=TensorNames(
        prefixes=("transformer.",),
        folder={
            "input_layernorm": "attn_norm",
            **{f"self_attn.{part}": f"attn.{part}" for part in ("qkv_proj", "q_norm", "k_norm")},
            "self_attn.o_proj": "attn.out_proj",
            "post_attention_layernorm": "ffn_norm",
            "mlp.down_proj": "ffn.proj_2",
            "embed_tokens": "token_embeddings",
        },
        joined={"ffn.proj_1": ("mlp.gate_proj", "mlp.up_proj")},
    ),
)
