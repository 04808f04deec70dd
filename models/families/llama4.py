"""Llama 4 (text): experts of half of the layers or of all, and layers without positions.

Three of four layers attend within chunks of positions, which are not cut here: a context is at most
one chunk long. Source: the model `llama4` of transformers (2025).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.config import ConfigError
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import (
    FULL,
    from_config_json,
    from_gguf_metadata,
    not_every_nth,
)
from hearthd.models.decoder.experts import (
    EXPERT_GGUF_NAMES,
    ExpertsConfig,
    MixtureOfExperts,
    experts_from_gguf,
)
from hearthd.models.decoder.layers import (
    MLP,
    Attention,
    Block,
    DecoderModel,
    normalized,
    rope_table,
    rotated,
)
from hearthd.models.decoder.tensor_names import QUERIES_AND_KEYS, TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.functions.routing import SIGMOID
from hearthd.models.families import mistral3, smollm3
from hearthd.models.families.mistral3 import query_scale

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.kv_cache import LayerCache
    from hearthd.models.decoder.layers import RopeTable
    from hearthd.models.dsl.graph import Tensor

_PERIOD = 4  # every fourth layer has no positions, and attends to the whole context
_CHUNK, _GROWTH = 8192, 0.1
_CHUNKED = "chunked_attention"
_MAVERICK = 128  # its experts: files do not say that its heads are not normalized
_ROUTER: dict[str, Any] = {"scores": SIGMOID, "normalized": False}
_IGNORED = (  # about training
    "for_llm_compressor", "output_router_logits", "router_aux_loss_coef", "router_jitter_noise",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Config(ExpertsConfig, smollm3.Config, mistral3.Config):
    """The shape of a model.

    normed_heads      whether heads with positions are normalized after rotation
    original_context  at position p it counts as p + 1 does in `mistral3.Config`, in layers without
                      positions
    """

    by_layer = (*ExpertsConfig.by_layer, "rotated")

    normed_heads: bool

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if self.experts_per_token != 1:
            raise ConfigError(f"experts_per_token: got {self.experts_per_token}, supported is 1")


class Llama4Attention(Attention):
    """Attention with normalized heads, or without positions and with growing queries."""

    def __init__(self, config: Config, *, turns: bool) -> None:
        super().__init__(config)
        self.turns, self.normed_heads, self.eps = turns, config.normed_heads, config.norm_eps

    @override
    def __call__(self, x: Tensor, rope: RopeTable | None, cache: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        query, key, value = self.heads(x)
        if self.turns:
            query, key = rotated(query, rope), rotated(key, rope)
            if self.normed_heads:
                query, key = normalized(query, self.eps), normalized(key, self.eps)
        elif rope is not None and rope.query_scale is not None:
            query = query * ops.broadcast(rope.query_scale, shape=query.shape, axes=(0,))
        return self.output(cache.attend(query, key, value, scale=self.scale))


class ScaledInputExperts(MixtureOfExperts):
    """An expert for each token, whose factor multiplies its inputs, and a shared MLP."""

    @override
    def __call__(self, x: Tensor) -> Tensor:
        """(N, E) -> (N, E)."""
        factors, chosen = self.routes(x)
        scaled = x * f.along_axes(f.flatten(factors), x, (1,))
        mixed = ops.barrier(self.experts(scaled, f.flatten(chosen)))
        return mixed if self.shared_experts is None else mixed + self.shared_experts(x)


class Llama4(DecoderModel):
    """Blocks with an expert for each token, or an MLP."""

    config: Config

    def __init__(self, config: Config) -> None:
        blocks = [
            Block(
                config,
                Llama4Attention(config, turns=config.rotated[layer]),
                ScaledInputExperts(config) if config.routed[layer] else MLP(config),
            )
            for layer in range(config.layers)
        ]
        super().__init__(config, blocks)

    @override
    def rope_tables(self, positions: Tensor) -> list[RopeTable | None]:
        """For each layer, the rotary table of positions i32 (N,)."""
        scale = query_scale(self.config, positions + 1)
        table = rope_table(self.config, positions)._replace(query_scale=scale)
        return [table] * self.config.layers


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json, in which a 1 in `no_rope_layers` means rotary positions."""
    data = data.text_section(tied=None)
    data.ignore(*_IGNORED)
    fields = from_config_json(data, ffn=data.size("intermediate_size_mlp"))
    layers, width = range(fields["layers"]), data.size("intermediate_size")
    period = data.size("no_rope_layer_interval", default=_PERIOD)
    usual = [int(turns) for turns in not_every_nth(period, len(layers))]
    turning = data.counts("no_rope_layers", default=usual) or usual
    chunk = data.size("attention_chunk_size", default=None)
    data.fixed(layer_types=[_CHUNKED if chunk and turns else FULL for turns in turning])
    step = data.size("interleave_moe_layer_step", default=1)
    routed = data.counts("moe_layers", default=[*layers[step - 1 :: step]])
    growth = data.number("attn_scale", default=_GROWTH)
    return Config(
        **fields | {"max_context": min(fields["max_context"], chunk or fields["max_context"])},
        **_ROUTER,
        experts=data.size("num_local_experts"),
        experts_per_token=data.size("num_experts_per_tok"),
        expert_ffn=width,
        shared_ffn=width,
        routed=tuple(layer in routed for layer in layers),
        rotated=tuple(map(bool, turning)),
        normed_heads=data.flag("use_qk_norm", default=True),
        query_growth=growth if data.flag("attn_temperature_tuning", default=True) else None,
        original_context=data.size("floor_scale", default=_CHUNK),
    )


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata, which do not say the layers without positions."""
    fields = experts_from_gguf(data, from_gguf_metadata(data))
    fields |= {"max_context": min(fields["max_context"], _CHUNK)}
    return Config(
        **fields | {"shared_ffn": fields["expert_ffn"]},
        **_ROUTER,
        rotated=tuple(not_every_nth(_PERIOD, fields["layers"])),
        normed_heads=fields["experts"] != _MAVERICK,
        query_growth=_GROWTH,
        original_context=_CHUNK,
    )


_PARTS = ("gate_proj", "up_proj", "down_proj")
_SHARED = {f"mlp.shared_experts.{part}": f"feed_forward.shared_expert.{part}" for part in _PARTS}
ARCHITECTURE = Architecture(
    name="llama4",
    config=Config,
    model_types=("llama4", "llama4_text"),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Llama4,
    tensors=TensorNames(
        gguf=EXPERT_GGUF_NAMES,
        interleaved=QUERIES_AND_KEYS,
        folder_interleaved=True,
        prefixes=("model.", "", "language_model.model.", "model.language_model."),
        others=("vision_model.", "multi_modal_projector."),
        folder={
            "mlp.gate": "feed_forward.router",
            "mlp.experts.gate_up_proj": "feed_forward.experts.gate_up_proj",
            "mlp.experts.down_proj": "feed_forward.experts.down_proj",
            **{f"mlp.{part}": f"feed_forward.{part}" for part in _PARTS},
            **_SHARED,
        },
        joined={"mlp.experts.gate_up_proj": ("mlp.experts.gate_proj", "mlp.experts.up_proj")},
        transposed=("mlp.experts.gate_up_proj", "mlp.experts.down_proj"),
    ),
)
