"""RWKV-7 "Goose": no attention, but a memory for each head, which each token corrects.

Source: "RWKV-7 Goose with Expressive Dynamic State Evolution" (Peng et al., 2025), and the model
`rwkv7` of flash-linear-attention (2025).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.config import MAX_LAYERS, ConfigError
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.recurrent_fields import UNLIMITED_CONTEXT
from hearthd.models.decoder.layers import DecoderModel
from hearthd.models.decoder.recurrent.rwkv7 import ChannelMixer, Rwkv7Config, TimeMixer
from hearthd.models.decoder.tensor_names import GGUF_NAMES, GroupedRows, TensorNames
from hearthd.models.dsl import nn

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.kv_cache import LayerCache, StateRows
    from hearthd.models.dsl.graph import Tensor


class Rwkv7Block(nn.Module):
    """One layer: a memory and an MLP, each after a norm."""

    def __init__(self, config: Rwkv7Config, index: int) -> None:
        self.input_layernorm = nn.LayerNorm(config.hidden, config.norm_eps)
        self.self_attn = TimeMixer(config, is_first=index == 0)
        self.post_attention_layernorm = nn.LayerNorm(config.hidden, config.norm_eps)
        self.mlp = ChannelMixer(config)

    def __call__(self, h: Tensor, first: Tensor | None, cache: LayerCache) -> tuple[Tensor, Tensor]:
        """(N, E) -> (N, E), and the values of the first layer, which is `first`."""
        mixed, first = self.self_attn(self.input_layernorm(h), first, cache)
        h = h + mixed
        return h + self.mlp(self.post_attention_layernorm(h), cache), first


class Rwkv7(DecoderModel):
    """Blocks after a norm of the embeddings."""

    config: Rwkv7Config
    layers: list[Rwkv7Block]  # type: ignore[assignment]  # they share the first one's values

    def __init__(self, config: Rwkv7Config) -> None:
        super().__init__(config, [])
        self.layers = [Rwkv7Block(config, index) for index in range(config.layers)]
        self.embed_norm = nn.LayerNorm(config.hidden, config.norm_eps)
        self.norm = nn.LayerNorm(config.hidden, config.norm_eps)

    @override
    def embed(self, tokens: Tensor) -> Tensor:
        return self.embed_norm(super().embed(tokens))

    @override
    def __call__(
        self, tokens: Tensor, positions: Tensor, caches: list[LayerCache], h: Tensor | None = None
    ) -> Tensor:
        h, first = self.embed(tokens) if h is None else h, None
        for block, cache in zip(self.layers, caches, strict=True):
            h, first = block(h, first, cache)
        return self.norm(h)

    @override
    def states(self, _: int) -> tuple[StateRows, ...]:
        return self.config.states


def from_hugging_face(data: ConfigJson) -> Rwkv7Config:
    """Read config.json."""
    # How flash-linear-attention computes. No table of positions limits the context.
    data.ignore("attn_mode", "fuse_cross_entropy", "fuse_linear_cross_entropy", "fuse_norm")
    data.ignore("hidden_ratio", "max_position_embeddings", "use_l2warp")
    data.fixed(attn=None, hidden_act="sqrelu", norm_bias=True, norm_first=True)
    hidden, width = data.size("hidden_size"), data.size("head_dim", default=64)
    data.fixed(num_heads=hidden // width)
    layers = data.size("num_hidden_layers", limit=MAX_LAYERS)
    data.fixed(value_dim=[hidden] * layers)
    return _config(
        hidden,
        width,
        layers=layers,
        ffn=data.size("intermediate_size", default=4 * hidden),
        max_context=UNLIMITED_CONTEXT,
        vocab_size=data.size("vocab_size"),
        norm_eps=data.number("norm_eps"),
        tied=data.flag("tie_word_embeddings", default=False),
        decay_rank=data.size("decay_low_rank_dim"),
        rate_rank=data.size("a_low_rank_dim"),
        value_rank=data.size("v_low_rank_dim"),
        gate_rank=data.size("gate_low_rank_dim"),
    )


def from_gguf(data: GgufMetadata) -> Rwkv7Config:
    """Read GGUF metadata, which have 0 heads."""
    data.ignore("attention.head_count", "vocab_size")
    data.fixed("token_shift_count", 2)
    return _config(
        data.size("embedding_length"),
        data.size("wkv.head_size"),
        layers=data.size("block_count", limit=MAX_LAYERS),
        ffn=data.size("feed_forward_length"),
        max_context=data.size("context_length", default=UNLIMITED_CONTEXT),
        vocab_size=data.vocabulary_rows,
        norm_eps=data.epsilon("layer_norm"),
        tied=not data.has_tensor("output.weight"),
        decay_rank=data.size("attention.decay_lora_rank"),
        rate_rank=data.size("attention.iclr_lora_rank"),
        value_rank=data.size("attention.value_residual_mix_lora_rank"),
        gate_rank=data.size("attention.gate_lora_rank"),
    )


def _config(hidden: int, width: int, **fields: Any) -> Rwkv7Config:
    """The shape of a model with heads of this width."""
    if hidden % width:
        raise ConfigError(f"head_dim: got {width}, which does not divide {hidden} columns")
    heads = hidden // width
    return Rwkv7Config(
        hidden=hidden, heads=heads, kv_heads=heads, head_dim=width, rope_base=1e4, **fields
    )


# By the letters of the projections in files.
_LOW_RANK = {"decay": "w", "rate": "a", "first_share": "v", "gate": "g"}
_FIRST_SHARE = ("a_proj", "b_proj", "b_proj.bias")
ARCHITECTURE = Architecture(
    name="rwkv7",
    config=Rwkv7Config,
    model_types=("rwkv7", "rwkv7_fla"),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Rwkv7,
    tensors=TensorNames(
        gguf={
            **GGUF_NAMES,
            "embed_norm": "token_embd_norm",
            "post_attention_layernorm": "attn_norm_2",
            **{
                f"self_attn.{part}.{matrix}": f"time_mix_{letter}{number}"
                for part, letter in _LOW_RANK.items()
                for matrix, number in {"a_proj": 1, "b_proj": 2}.items()
            },
            **{
                f"self_attn.{part}.b_proj.bias": f"time_mix_{_LOW_RANK[part]}0.weight"
                for part in ("decay", "rate", "first_share")
            },
            "self_attn.r_proj": "time_mix_receptance",
            "self_attn.k_proj": "time_mix_key",
            "self_attn.v_proj": "time_mix_value",
            "self_attn.o_proj": "time_mix_output",
            "self_attn.output_norm": "time_mix_ln",
            "self_attn.probe_scale": "time_mix_k_k",
            "self_attn.key_rate": "time_mix_k_a",
            "self_attn.bonus": "time_mix_r_k",
            "mlp.mix": "channel_mix_lerp_k",
            "mlp.up_proj": "channel_mix_key",
            "mlp.down_proj": "channel_mix_value",
        },
        folder={
            "embed_tokens": "embeddings",
            "embed_norm": "layers.0.pre_norm",
            "input_layernorm": "attn_norm",
            "post_attention_layernorm": "ffn_norm",
            **{f"self_attn.{letter}_mix.weight": f"attn.x_{letter}" for letter in "rwkvag"},
            **{f"self_attn.{letter}_proj": f"attn.{letter}_proj" for letter in "rkvo"},
            **{
                f"self_attn.{part}.{matrix}": f"attn.{letter}_lora.lora.{number}"
                for part, letter in _LOW_RANK.items()
                for matrix, number in {"a_proj": 0, "b_proj": 2}.items()
            },
            "self_attn.output_norm": "attn.g_norm",
            "self_attn.probe_scale.weight": "attn.k_k",
            "self_attn.key_rate.weight": "attn.k_a",
            "self_attn.bonus.weight": "attn.r_k",
            "mlp.mix.weight": "ffn.x_k",
            "mlp.up_proj": "ffn.key",
            "mlp.down_proj": "ffn.value",
        },
        grouped=(
            GroupedRows(
                gguf="time_mix_lerp_fused",
                parts=tuple(f"self_attn.{letter}_mix" for letter in "rwkvag"),
                shape=lambda _: (1, (1,) * 6),
            ),
        ),
        # Files have one of the first layer too, which is not used.
        optional=tuple(f"self_attn.first_share.{part}" for part in _FIRST_SHARE),
    ),
)
