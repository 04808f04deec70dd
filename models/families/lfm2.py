"""LFM2: attention in some layers, short convolutions in the others.

Source: "LFM2 Technical Report" (2025). The state of a convolution, its last inputs, is in a ring of
rows by position, as keys and values are: what saves, restores and forgets those works for it too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.config import ConfigError
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import (
    DecoderConfig,
    from_config_json,
    from_gguf_metadata,
)
from hearthd.models.decoder.layers import MLP, Block, DecoderModel, NormedAttention
from hearthd.models.decoder.tensor_names import GGUF_NAMES, TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.kv_cache import LayerCache
    from hearthd.models.decoder.layers import Layer, RopeTable
    from hearthd.models.dsl.graph import Tensor


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    """The shape of a model.

    taps     inputs that a convolution sums, the token's own included
    attends  whether each layer has attention
    """

    by_layer = (*DecoderConfig.by_layer, "attends")

    taps: int
    attends: tuple[bool, ...]

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden % 2:
            raise ConfigError(f"hidden_size: expected an even number, got {self.hidden}")


class Taps(nn.Module):
    """The weights of a convolution of each channel: (E, taps), the newest input last."""

    def __init__(self, channels: int, taps: int) -> None:
        self.weight = nn.parameter(channels, taps, dtype=DType.F32)

    def __call__(self, inputs: list[Tensor]) -> Tensor:
        """The inputs (N, E) of the token and of earlier tokens -> their weighted sum (N, E)."""
        last = self.weight.shape[1] - 1
        total = inputs[0] * self._tap(last, inputs[0])
        for steps, x in enumerate(inputs[1:], 1):
            total = total + x * self._tap(last - steps, x)
        return total

    def _tap(self, index: int, x: Tensor) -> Tensor:
        tap = f.flatten(f.narrow(self.weight, 1, index, index + 1))
        return f.along_axes(tap, x, (0,))


class ShortConv(nn.Module):
    """out(C * convolution(B * x)), where one projection gives B, C and x."""

    def __init__(self, config: Config) -> None:
        self.in_proj = nn.Linear(config.hidden, 3 * config.hidden)
        self.conv = Taps(config.hidden, config.taps)
        self.conv_out = nn.Linear(config.hidden, config.hidden)

    def __call__(self, x: Tensor, _: RopeTable | None, cache: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        width, y = x.shape[1], self.in_proj(x)
        before, after, inner = (f.narrow(y, 1, i * width, (i + 1) * width) for i in range(3))
        new = before * inner
        old = cache.previous(new, self.conv.weight.shape[1] - 1)
        return self.conv_out(after * self.conv([new, *old]))


class Lfm2(DecoderModel):
    """Blocks with attention or a convolution."""

    config: Config

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(config, [self.block(layer) for layer in range(config.layers)])

    def block(self, layer: int) -> Layer:
        """One layer."""
        config = self.config
        mixer = NormedAttention(config) if config.attends[layer] else ShortConv(config)
        return Block(config, mixer, self.feed_forward(layer))

    def feed_forward(self, _: int) -> Callable[[Tensor], Tensor]:
        """What follows attention or the convolution in a layer."""
        return MLP(self.config)

    @override
    def cache_width(self, layer: int) -> int:
        """The width of each of the two caches of a layer: a convolution keeps halves of inputs."""
        return super().cache_width(layer) if self.config.attends[layer] else self.config.hidden // 2

    @override
    def cache_heads(self, layer: int) -> int:
        return super().cache_heads(layer) if self.config.attends[layer] else 0


def _fields(fields: dict[str, Any], taps: int, attends: tuple[bool, ...]) -> dict[str, Any]:
    windows = tuple(None if is_attention else taps for is_attention in attends)
    return {**fields, "taps": taps, "attends": attends, "windows": windows}


def fields_from_hugging_face(data: ConfigJson) -> dict[str, Any]:
    """The fields of `Config` from config.json; raises ConfigError."""
    data.fixed(conv_bias=False, block_use_swiglu=True, use_pos_enc=True)
    data.ignore(
        "block_dim", "block_mlp_init_scale", "block_norm_eps", "block_out_init_scale",
        "block_use_xavier_init", "conv_dim", "conv_dim_out", "conv_use_xavier_init", "num_heads",
    )  # fmt: skip
    data.assume(
        rms_norm_eps=data.number("norm_eps", default=1e-5),
        tie_word_embeddings=data.flag("tie_embedding", default=True),
        rope_theta=1_000_000.0,
    )
    if data.has("block_ff_dim"):
        data.assume(intermediate_size=data.size("block_ff_dim"))
    fields = from_config_json(data)
    multiple = data.size("block_multiple_of", default=256)
    factor = data.number("block_ffn_dim_multiplier", default=1.0)
    if data.flag("block_auto_adjust_ff_dim", default=True):
        wide = int(factor * int(2 * fields["ffn"] / 3))
        fields["ffn"] = -(-wide // multiple) * multiple
    everywhere = range(fields["layers"])
    indices = data.counts("full_attn_idxs", default=everywhere)
    usual = ["full_attention" if layer in indices else "conv" for layer in everywhere]
    layer_types = data.texts("layer_types", default=usual)
    if not {"full_attention", "conv"}.issuperset(layer_types):
        raise ConfigError(
            f"config.json: layer_types: got {layer_types!r:.80}, supported: full_attention, conv"
        )
    attends = tuple(layer_type == "full_attention" for layer_type in layer_types)
    return _fields(fields, data.size("conv_L_cache", default=3), attends)


def fields_from_gguf(data: GgufMetadata) -> dict[str, Any]:
    """The fields of `Config` from GGUF metadata, in which a convolution has no key/value heads.

    Raises ConfigError.
    """
    heads = data.counts("attention.head_count_kv")
    fields = from_gguf_metadata(data, rope_base=1_000_000.0, kv_heads=max(heads, default=0) or 1)
    taps = data.size("shortconv.l_cache")
    return _fields(fields, taps, tuple(count > 0 for count in heads))


ARCHITECTURE = Architecture(
    name="lfm2",
    config=Config,
    model_types=("lfm2",),
    read_config_json=lambda data: Config(**fields_from_hugging_face(data)),
    read_gguf=lambda data: Config(**fields_from_gguf(data)),
    model=Lfm2,
    tensors=TensorNames(
        gguf={
            **GGUF_NAMES,
            "self_attn.in_proj": "shortconv.in_proj",
            "self_attn.conv": "shortconv.conv",
            "self_attn.conv_out": "shortconv.out_proj",
            "norm": "token_embd_norm",
        },
        folder={
            "input_layernorm": "operator_norm",
            "post_attention_layernorm": "ffn_norm",
            "self_attn.o_proj": "self_attn.out_proj",
            "self_attn.q_norm": "self_attn.q_layernorm",
            "self_attn.k_norm": "self_attn.k_layernorm",
            "self_attn.in_proj": "conv.in_proj",
            "self_attn.conv": "conv.conv",
            "self_attn.conv_out": "conv.out_proj",
            "mlp.gate_proj": "feed_forward.w1",
            "mlp.up_proj": "feed_forward.w3",
            "mlp.down_proj": "feed_forward.w2",
            "norm": "embedding_norm",
        },
    ),
)
