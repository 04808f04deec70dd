"""DeciLM and Nemotron-NAS: Llama with other key/value heads in each layer, or without some parts.

Source: "Puzzle: Distillation-Based NAS for Inference-Optimized LLMs" (2024), and the model `deci`
of llama.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.config import MAX_LAYERS, ConfigError
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import (
    DecoderConfig,
    from_config_json,
    from_gguf_metadata,
)
from hearthd.models.decoder.layers import MLP, Attention, DecoderModel
from hearthd.models.decoder.tensor_names import GGUF_NAMES, QUERIES_AND_KEYS, TensorNames
from hearthd.models.dsl import nn

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.kv_cache import LayerCache
    from hearthd.models.decoder.layers import Layer, RopeTable
    from hearthd.models.dsl.graph import Tensor

_MULTIPLE = 256  # of the widths of MLPs that config.json has as factors


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    """The shape of a model, whose `kv_heads` and `ffn` are the largest of a layer.

    key_heads  for each layer, its key/value heads; None: it has no attention
    linear     whether a layer without attention has a matrix in its place
    ffns       for each layer, the width of its MLP; None: it has none
    """

    by_layer = (*DecoderConfig.by_layer, "key_heads", "linear", "ffns")

    key_heads: tuple[int | None, ...]
    linear: tuple[bool, ...]
    ffns: tuple[int | None, ...]

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        for keys in self.key_heads:
            if keys is not None and self.heads % keys:
                raise ConfigError(f"{self.heads} heads cannot share {keys} key/value heads")

    @override
    def layer(self, index: int) -> Config:
        keys, ffn = self.key_heads[index], self.ffns[index]
        return replace(self, kv_heads=keys or self.kv_heads, ffn=ffn or self.ffn)


class MatrixMixer(nn.Module):
    """A matrix in place of attention."""

    def __init__(self, config: DecoderConfig) -> None:
        self.linear_attn = nn.Linear(config.hidden, config.hidden)

    def __call__(self, x: Tensor, _: RopeTable | None, __: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        return self.linear_attn(x)


class PartialBlock(nn.Module):
    """One layer: attention and MLP, each normalized before, or without some of them."""

    def __init__(self, config: DecoderConfig, self_attn: Layer | None, mlp: MLP | None) -> None:
        def norm(part: object) -> nn.RMSNorm | None:
            return None if part is None else nn.RMSNorm(config.hidden, config.norm_eps)

        self.input_layernorm, self.self_attn = norm(self_attn), self_attn
        self.post_attention_layernorm, self.mlp = norm(mlp), mlp

    def __call__(self, h: Tensor, rope: RopeTable | None, cache: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        if self.self_attn is not None and self.input_layernorm is not None:
            h = h + self.self_attn(self.input_layernorm(h), rope, cache)
        if self.mlp is not None and self.post_attention_layernorm is not None:
            h = h + self.mlp(self.post_attention_layernorm(h))
        return h


class Deci(DecoderModel):
    """Llama's blocks, some without attention or MLP."""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config, [self._block(config, layer) for layer in range(config.layers)])

    @staticmethod
    def _block(config: Config, layer: int) -> PartialBlock:
        shape = config.layer(layer)
        mixer: Layer | None = None
        if config.key_heads[layer] is not None:
            mixer = Attention(shape)
        elif config.linear[layer]:
            mixer = MatrixMixer(shape)
        return PartialBlock(shape, mixer, None if config.ffns[layer] is None else MLP(shape))

    @override
    def cache_width(self, layer: int) -> int:
        return 0 if self.config.key_heads[layer] is None else super().cache_width(layer)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json: of DeciLM, or of Nemotron with `block_configs`."""
    layers = data.size("num_hidden_layers", limit=MAX_LAYERS)
    heads, hidden = data.size("num_attention_heads"), data.size("hidden_size")
    if not data.has("block_configs"):
        data.assume(num_key_value_heads=heads)
        keys = data.by_layer("num_key_value_heads_per_layer", layers)
        return _config(from_config_json(data, ffn=None) | {"kv_heads": max(keys)}, keys)
    key_heads, linear, ffns = [], [], []
    for block in data.objects("block_configs"):
        attention, mlp = block.section("attention"), block.section("ffn")
        attention.fixed(num_sink_tokens=None, sparsify=None, unshifted_sink=None)
        attention.fixed(use_prefill_window_in_sink_attention=None, window_length=None)
        mlp.fixed(replace_with_linear=False, sparsify=None)
        group = attention.size("n_heads_in_group", default=None)
        factor = mlp.number("ffn_mult", default=None)
        attention.fixed(no_op=group is None and not attention.flag(_LINEAR, default=False))
        mlp.fixed(no_op=factor is None)
        key_heads.append(heads // group if group else 0)
        linear.append(attention.flag(_LINEAR, default=False))
        ffns.append(-(-int(2 * factor * hidden / 3) // _MULTIPLE) * _MULTIPLE if factor else 0)
    data.assume(num_key_value_heads=max(key_heads, default=0) or heads)
    return _config(from_config_json(data, ffn=max(ffns, default=0)), key_heads, linear, ffns)


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata. A layer with query heads alone has a matrix in place of attention."""
    layers = data.size("block_count", limit=MAX_LAYERS)
    names = ("attention.head_count", "attention.head_count_kv", "feed_forward_length")
    heads, key_heads, ffns = (data.by_layer(name, layers, least=0) for name in names)
    fields = from_gguf_metadata(
        data, heads=max(heads), kv_heads=max(key_heads) or max(heads), ffn=max(ffns)
    )
    linear = [queries > 0 and not keys for queries, keys in zip(heads, key_heads, strict=True)]
    return _config(fields, key_heads, linear, ffns)


def _config(
    fields: dict[str, Any],
    key_heads: list[int],
    linear: list[bool] | None = None,
    ffns: list[int] | None = None,
) -> Config:
    """The shape of a model; 0 heads or columns are none."""
    return Config(
        **fields,
        key_heads=tuple(keys or None for keys in key_heads),
        linear=tuple(linear or [False] * len(key_heads)),
        ffns=tuple(ffn or None for ffn in ffns or [fields["ffn"]] * len(key_heads)),
    )


_LINEAR = "replace_with_linear"
ARCHITECTURE = Architecture(
    name="deci",
    config=Config,
    model_types=("deci", "nemotron-nas"),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Deci,
    tensors=TensorNames(
        gguf={**GGUF_NAMES, "self_attn.linear_attn": "attn_output"}, interleaved=QUERIES_AND_KEYS
    ),
)
