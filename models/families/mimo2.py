"""MiMo-V2-Flash: values narrower than keys, sinks in layers with a window, and corrected experts.

Source: the model `mimo_v2_flash` of transformers (Xiaomi, 2025).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.config import MAX_LAYERS
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import from_gguf_metadata, windows_by_type
from hearthd.models.decoder.experts import (
    EXPERT_FOLDER_NAMES,
    EXPERT_GGUF_NAMES,
    ExpertsConfig,
    feed_forward,
)
from hearthd.models.decoder.layers import Attention, Block, HeadLinear
from hearthd.models.decoder.partial_rope import partial_fields
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.decoder.two_ropes import TwoRopesConfig, TwoRopesModel, two_ropes_fields
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops
from hearthd.models.dsl.types import DType
from hearthd.models.families.glm4moe import (
    CORRECTION,
    corrected_experts,
    corrected_experts_from_gguf,
)
from hearthd.models.families.laguna import heads_by_kind

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor

_SHARE = 0.334  # of the columns of a head that turn


@dataclass(frozen=True, kw_only=True)
class Config(TwoRopesConfig, ExpertsConfig):
    """The shape of a model.

    local_kv_heads  key/value heads of layers with a window; `kv_heads` are for the others
    value_width     the width of a head of values
    value_scale     multiplies values
    """

    by_layer = ExpertsConfig.by_layer

    local_kv_heads: int
    value_width: int
    value_scale: float

    @property
    @override
    def local(self) -> Config:
        """The shape of the layers with a window."""
        turned = super().local
        assert isinstance(turned, Config)
        return replace(turned, kv_heads=self.local_kv_heads)


class NarrowValueAttention(Attention):
    """Attention whose values are narrower than keys, with a sink for each head or without."""

    def __init__(self, config: Config, *, sinks: bool) -> None:
        super().__init__(config)
        self.config, width = config, config.value_width
        self.v_proj = HeadLinear(config.hidden, config.kv_heads, width, bias=config.attention_bias)
        self.o_proj = nn.Linear(config.heads * width, config.hidden)
        self.sinks = nn.parameter(config.heads, dtype=DType.F32) if sinks else None

    @override
    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As `Attention.heads`, with zeros behind the values: a cache has heads of one width."""
        query, key, value = super().heads(x)
        behind = self.config.head_dim - self.config.value_width
        padding = ((0, 0, 0), (0, 0, 0), (0, behind, 0))
        return query, key, ops.pad(value * self.config.value_scale, padding=padding, value=0.0)

    @override
    def output(self, mixed: Tensor) -> Tensor:
        heads = f.split_heads(mixed, self.config.head_dim)
        return self.o_proj(f.flatten(f.narrow(heads, 2, 0, self.config.value_width), first=1))


class Mimo2(TwoRopesModel):
    """Blocks with experts, after some without experts."""

    config: Config

    def __init__(self, config: Config) -> None:
        blocks = []
        for layer in range(config.layers):
            sinks = bool(config.windows) and config.windows[layer] is not None
            shape = config.local if sinks else config
            attention = NarrowValueAttention(shape, sinks=sinks)
            blocks.append(Block(config, attention, feed_forward(config, layer)))
        super().__init__(config, blocks)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json, of published files or as transformers saves it."""
    data.rename(layernorm_epsilon="rms_norm_eps")
    data.fixed(add_full_attention_sink_bias=False, add_swa_attention_sink_bias=True)
    data.fixed(hybrid_block_size=None, scoring_func="sigmoid", topk_method="noaux_tc")
    data.fixed(attention_bias=False, n_shared_experts=None)
    data.ignore("attention_chunk_size")
    fields = _published(data) if data.has("hybrid_layer_pattern") else _saved(data)
    return Config(
        **corrected_experts(data, fields) | {"routed": fields["routed"], "shared_ffn": None},
        value_width=data.size("v_head_dim", limit=fields["head_dim"]),
        value_scale=data.number("attention_value_scale"),
    )


def _published(data: ConfigJson) -> dict[str, Any]:
    """The fields that published files have under other names than transformers.

    A token sees as many tokens before it as `sliding_window_size` says, and itself.
    """
    fields = partial_fields(data, _SHARE)
    data.fixed(swa_head_dim=fields["head_dim"], swa_num_attention_heads=fields["heads"])
    data.fixed(swa_v_head_dim=data.size("v_head_dim"))
    window = data.size("sliding_window", default=None)
    before = data.size("sliding_window_size", default=None)
    window = window if before is None else before + 1
    return {
        **fields,
        "local_rope_base": data.number("swa_rope_theta", default=1e4),
        "local_rotary_width": fields["rotary_width"],
        "local_kv_heads": data.size("swa_num_key_value_heads"),
        "windows": _windows(window, data.counts("hybrid_layer_pattern")),
        "routed": tuple(routed > 0 for routed in data.counts("moe_layer_freq")),
    }


def _saved(data: ConfigJson) -> dict[str, Any]:
    """The same fields as transformers saves them."""
    fields = two_ropes_fields(data)
    kinds = data.texts("mlp_layer_types", default=())
    return {
        **fields,
        "local_kv_heads": 2 * fields["kv_heads"],
        "windows": windows_by_type(data, [False] * fields["layers"]),
        "routed": tuple(kind == "sparse" for kind in kinds),
    }


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata, which have the layers that predict further tokens behind the others."""
    blocks = data.size("block_count", limit=MAX_LAYERS)
    slides = data.counts("attention.sliding_window_pattern")
    windows = _windows(data.size("attention.sliding_window"), slides)
    kinds = heads_by_kind(data.by_layer("attention.head_count_kv", blocks), windows)
    width, key_width = data.size("rope.dimension_count"), data.size("attention.key_length")
    value_width = data.size("attention.value_length", limit=key_width)
    fields = from_gguf_metadata(
        data, rope_width=width, kv_heads=kinds["heads"], value_width=value_width
    )
    fields = corrected_experts_from_gguf(data, fields)
    layers = range(fields["layers"])
    return Config(
        **fields
        | {
            "windows": windows[: len(layers)],
            "routed": tuple(data.has_tensor(f"blk.{i}.ffn_gate_inp.weight") for i in layers),
            "normalized": data.flag("expert_weights_norm", default=True),
        },
        rotary_width=width,
        local_rope_base=data.number("rope.freq_base_swa", default=fields["rope_base"]),
        local_rotary_width=width,
        local_kv_heads=kinds["local_heads"],
        value_width=value_width,
        value_scale=data.number("attention.value_scale", default=1.0),
    )


def _windows(window: int | None, slides: list[int]) -> tuple[int | None, ...]:
    """`windows` of layers that slide or not."""
    return tuple(window if slide else None for slide in slides)


ARCHITECTURE = Architecture(
    name="mimo2",
    config=Config,
    model_types=("mimo_v2_flash",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Mimo2,
    tensors=TensorNames(
        gguf={**EXPERT_GGUF_NAMES, "self_attn.sinks": "attn_sinks.weight"},
        folder={
            **EXPERT_FOLDER_NAMES,
            **CORRECTION,
            "self_attn.sinks": "self_attn.attention_sink_bias",
        },
        others=("mtp.",),
    ),
)
