"""Granite 4 H: Granite's blocks, most of them with Mamba-2 in place of attention.

Source: "Granite 4.0" (IBM, 2025), and the model `granitemoehybrid` of transformers (2025). No layer
has positions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.config import ConfigError
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import FULL, from_config_json
from hearthd.models.decoder.layers import MLP
from hearthd.models.decoder.recurrent import mamba2
from hearthd.models.families import granite
from hearthd.models.families.granite import Granite, GraniteBlock

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.kv_cache import StateRows
    from hearthd.models.dsl.graph import Tensor

_ATTENTION = {"attention", FULL}
_MAMBA = {"mamba", "linear_attention"}  # the second is what transformers 5 writes


@dataclass(frozen=True, kw_only=True)
class Config(granite.Config, mamba2.Mamba2Config):
    """The shape of a model; `attends` says of each layer whether it has attention."""

    by_layer = (*mamba2.Mamba2Config.by_layer, "attends")

    attends: tuple[bool, ...]

    @override
    def rotates(self, _: int) -> bool:
        return False


class GraniteHybrid(Granite):
    """Blocks with Mamba-2 or attention."""

    config: Config

    def __init__(self, config: Config) -> None:
        blocks = [
            GraniteBlock(
                config, self.feed_forward(config), None if attends else mamba2.Mamba2(config)
            )
            for attends in config.attends
        ]
        super().__init__(config, blocks)

    def feed_forward(self, config: Config) -> Callable[[Tensor], Tensor]:
        """What follows attention or Mamba-2 in a layer."""
        return MLP(config)

    @override
    def states(self, layer: int) -> tuple[StateRows, ...]:
        return () if self.config.attends[layer] else self.config.states


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    data.fixed(num_local_experts=0)
    data.ignore("num_experts_per_tok", "output_router_logits", "router_aux_loss_coef")
    fields = fields_from_hugging_face(data)
    return Config(**fields | {"ffn": data.size("shared_intermediate_size")})


def fields_from_hugging_face(data: ConfigJson) -> dict[str, Any]:
    """The fields of `Config` from config.json; raises ConfigError."""
    data.fixed(
        normalization_function="rmsnorm", position_embedding_type="nope", mamba_conv_bias=True,
        mamba_proj_bias=False,
    )  # fmt: skip
    # No published file limits the time steps.
    data.ignore("init_method", "mamba_chunk_size", "time_step_limit")
    fields = from_config_json(data)
    layer_types = data.texts("layer_types", default=["mamba"] * fields["layers"])
    if unknown := set(layer_types) - _ATTENTION - _MAMBA:
        raise ConfigError(
            f"config.json: layer_types: got {min(unknown)!r:.80}, supported: mamba, attention"
        )
    heads = data.size("mamba_n_heads", default=128)
    inner = data.size("mamba_expand", default=2) * fields["hidden"]
    width = data.size("mamba_d_head", default=max(1, inner // heads))
    if heads * width != inner:
        raise ConfigError(
            f"config.json: mamba_n_heads: got {heads} heads of {width}, expected {inner} columns"
        )
    return {
        **fields,
        **granite.multipliers(data),
        "attends": tuple(layer_type in _ATTENTION for layer_type in layer_types),
        "ssm_heads": heads,
        "ssm_width": width,
        "ssm_groups": data.size("mamba_n_groups", default=1),
        "ssm_state": data.size("mamba_d_state", default=256),
        "taps": data.size("mamba_d_conv", default=4),
    }


def fields_from_gguf(data: GgufMetadata) -> dict[str, Any]:
    """The fields of `Config` from GGUF metadata, where a layer of Mamba-2 has 0 key/value heads.

    Raises ConfigError.
    """
    heads = data.counts("attention.head_count_kv")
    fields = granite.fields_from_gguf(data, kv_heads=max(heads, default=0) or 1)
    attends = tuple(count > 0 for count in heads)
    if True in attends:
        of_attention = f"blk.{attends.index(True)}.attn_q.bias"
        fields["attention_bias"] = fields["output_bias"] = data.has_tensor(of_attention)
    return {**fields, **mamba2.gguf_fields(data), "attends": attends}


_GGUF, _FOLDER = mamba2.tensor_names("self_attn", "mamba")
_OF_GRANITE = granite.ARCHITECTURE.tensors
ARCHITECTURE = Architecture(
    name="granitehybrid",
    config=Config,
    model_types=(granite.GRANITE_4,),
    read_config_json=from_hugging_face,
    read_gguf=lambda data: Config(**granite.without_experts(data, fields_from_gguf(data))),
    model=GraniteHybrid,
    tensors=replace(
        _OF_GRANITE,
        gguf={**_OF_GRANITE.gguf, **_GGUF},
        folder=_FOLDER,
        logarithms=("self_attn.rates",),
    ),
)
