"""Qwen3.5 (text): three of four layers are gated delta nets, the others gated attention.

Source: "Gated Delta Networks" (Yang et al., 2024), and the model `qwen3_5` of transformers (2026).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.config import ConfigError
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config import rope_scaling
from hearthd.models.decoder.config.decoder_config import (
    FULL,
    from_config_json,
    from_gguf_metadata,
    not_every_nth,
)
from hearthd.models.decoder.drafting.mtp import MtpConfig, MtpLayer
from hearthd.models.decoder.layers import (
    MLP,
    Block,
    DecoderModel,
    GatedAttention,
    rope_table,
)
from hearthd.models.decoder.partial_rope import PartialRopeConfig, turning_share
from hearthd.models.decoder.recurrent.delta_net import (
    DeltaNetConfig,
    GatedDeltaNet,
    delta_net_from_gguf,
)
from hearthd.models.decoder.tensor_names import GGUF_NAMES, TensorNames

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.config.rope_scaling import Rope
    from hearthd.models.decoder.kv_cache import StateRows
    from hearthd.models.decoder.layers import Layer, RopeTable
    from hearthd.models.dsl.graph import Tensor

_LINEAR = "linear_attention"
_PERIOD = 4  # every fourth layer has attention


@dataclass(frozen=True, kw_only=True)
class Config(DeltaNetConfig, MtpConfig, PartialRopeConfig):
    """The shape of a model."""


class Qwen35(DecoderModel):
    """Blocks with a gated delta net or attention."""

    config: Config

    def __init__(self, config: Config) -> None:
        mixers: list[Layer] = [
            GatedAttention(config) if attends else GatedDeltaNet(config)
            for attends in config.attends
        ]
        blocks = [Block(config, mixer, self.feed_forward(config)) for mixer in mixers]
        super().__init__(config, blocks)
        block = Block(config, GatedAttention(config), self.feed_forward(config))
        self.mtp = MtpLayer(config, block) if config.mtp else None

    def feed_forward(self, config: Config) -> Callable[[Tensor], Tensor]:
        """What follows the mixer of a layer."""
        return MLP(config)

    @override
    def rope_tables(self, positions: Tensor) -> list[RopeTable | None]:
        table = self.attention_rope(positions)
        return [table if attends else None for attends in self.config.attends]

    def attention_rope(self, positions: Tensor) -> RopeTable:
        """The rotary table of layers with attention, for positions i32 (N,)."""
        return rope_table(self.config, positions, self.config.rotary_width)

    @override
    def states(self, layer: int) -> tuple[StateRows, ...]:
        return () if self.config.attends[layer] else self.config.states


def fields_from_hugging_face(text: ConfigJson) -> dict[str, Any]:
    """The fields of `Config` from the section of the text model; raises ConfigError."""
    text.ignore("mamba_ssm_dtype", "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings")
    text.fixed(attn_output_gate=True, mlp_only_layers=[], output_gate_type="swish")
    fields = from_config_json(text, lambda *arguments: _rope(*arguments)[1])
    layers = fields["layers"]
    period = text.size("full_attention_interval", default=_PERIOD)
    usual = [_LINEAR if linear else FULL for linear in not_every_nth(period, layers)]
    layer_types = text.texts("layer_types", default=usual)
    if not {FULL, _LINEAR}.issuperset(layer_types):
        raise ConfigError(
            f"config.json: layer_types: got {layer_types!r:.80}, supported: {_LINEAR}, {FULL}"
        )
    return {
        **fields,
        "attends": tuple(layer_type == FULL for layer_type in layer_types),
        "rotary_width": _rope(text, fields["head_dim"], fields["max_context"])[0],
        "key_heads": text.size("linear_num_key_heads", default=16),
        "value_heads": text.size("linear_num_value_heads", default=32),
        "key_width": text.size("linear_key_head_dim", default=128),
        "value_width": text.size("linear_value_head_dim", default=128),
        "taps": text.size("linear_conv_kernel_dim", default=4),
    }


def _rope(data: ConfigJson, head_dim: int, max_context: int) -> tuple[int, Rope]:
    """The columns of a head that turn, and how. Of a text, all three positions of M-RoPE agree."""
    section, base = data.rope_section()
    section.ignore("mrope_section", "mrope_interleaved")
    width = int(head_dim * turning_share(data, usual=0.25))
    return width, rope_scaling.read(section, base, width, max_context)


def fields_from_gguf(data: GgufMetadata, ffn: int | None = None) -> dict[str, Any]:
    """The fields of `Config` from GGUF metadata; raises ConfigError.

    A layer that predicts further tokens follows the others. `ffn` is the width of MLPs, where the
    metadata do not say it.
    """
    width = data.size("rope.dimension_count")
    data.ignore("rope.dimension_sections")
    fields = from_gguf_metadata(data, rope_base=10_000_000.0, rope_width=width, ffn=ffn)
    period = data.size("full_attention_interval", default=_PERIOD)
    usual = not_every_nth(period, fields["layers"])
    linear = data.flags_by_layer("attention.recurrent_layers", usual)
    fields["layers"] -= data.count("nextn_predict_layers", default=0)
    attends = tuple(not flag for flag in linear[: fields["layers"]])
    if True in attends:
        of_attention = f"blk.{attends.index(True)}.attn_q.bias"
        fields["attention_bias"] = fields["output_bias"] = data.has_tensor(of_attention)
    return {**fields, **delta_net_from_gguf(data), "attends": attends, "rotary_width": width}


_MIXER = {
    "in_proj_qkv": "attn_qkv",
    "in_proj_z": "attn_gate",
    "in_proj_b": "ssm_beta",
    "in_proj_a": "ssm_alpha",
    "conv1d": "ssm_conv1d",
    "dt": "ssm_dt",
    "output_rms": "ssm_norm",
    "out_proj": "ssm_out",
}
ARCHITECTURE = Architecture(
    name="qwen35",
    config=Config,
    model_types=("qwen3_5_text", "qwen3_5"),
    read_config_json=lambda data: Config(**fields_from_hugging_face(data.text_section(tied=None))),
    read_gguf=lambda data: Config(**fields_from_gguf(data)),
    model=Qwen35,
    tensors=TensorNames(
        gguf={
            **GGUF_NAMES,
            "post_attention_layernorm": "post_attention_norm",
            **{f"self_attn.{ours}": theirs for ours, theirs in _MIXER.items()},
            "self_attn.rates.weight": "ssm_a",
        },
        folder={
            **{f"self_attn.{name}": f"linear_attn.{name}" for name in _MIXER},
            "self_attn.output_rms": "linear_attn.norm",
            "self_attn.dt.bias": "linear_attn.dt_bias",
            "self_attn.rates.weight": "linear_attn.A_log",
        },
        prefixes=("model.", "", "model.language_model."),
        norm_offset=1.0,
        logarithms=("self_attn.rates",),
        others=("mtp.", "visual."),
    ),
)
