"""The configuration of Gemma 3n, and how it is read."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.config import MAX_LAYERS, ConfigError
from hearthd.models.decoder.config.decoder_config import (
    FULL,
    from_config_json,
    from_gguf_metadata,
    local_rope_base,
    not_every_nth,
    windows_by_type,
)
from hearthd.models.decoder.config.gemma_config import gemma_keys
from hearthd.models.decoder.gemma4_config import Gemma4Config

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata

_PERIOD = 5  # every fifth layer attends to the whole context
_SPARSITY, _SPARSE_LAYERS = 0.95, 10  # where a file does not say them


@dataclass(frozen=True, kw_only=True)
class Gemma3nConfig(Gemma4Config):
    """The shape of a model.

    streams      S, hidden states of a token; layers read the first
    laurel_rank  the rank of the layer beside attention
    layer_vocab  tokens that have embeddings for each layer; the others have token 0's
    deviations   for each layer, the standard deviations that inputs of its MLP's activation are
                 above their mean: the others become 0. None: all inputs are kept
    """

    by_layer = (*Gemma4Config.by_layer, "deviations")

    layer_embedding: int
    streams: int
    laurel_rank: int
    layer_vocab: int
    deviations: tuple[float | None, ...]

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if self.streams < 2:
            raise ConfigError(f"altup_num_inputs: got {self.streams}, expected at least 2")


def from_hugging_face(data: ConfigJson) -> Gemma3nConfig:
    """Read config.json; raises ConfigError."""
    data = data.text_section()
    gemma_keys(data)
    data.fixed(attention_bias=False, altup_active_idx=0, altup_correct_scale=True)
    # Of training; and the scale of queries, which is 1 whatever the key says.
    data.ignore("altup_coef_clip", "altup_lr_multiplier", "query_pre_attn_scalar")
    data.assume(rope_theta=1_000_000.0)
    layers = data.size("num_hidden_layers", limit=MAX_LAYERS)
    ffns = data.by_layer("intermediate_size", layers)
    fields = from_config_json(
        data, lambda data, width, most: data.rope(width, most, FULL), ffn=ffns[0]
    )
    usual = [_SPARSITY if layer < _SPARSE_LAYERS < layers else 0.0 for layer in range(layers)]
    shares = data.factors("activation_sparsity_pattern", default=usual)
    if not all(share == 0 or 0.5 < share < 1 for share in shares):
        raise ConfigError(
            "config.json: activation_sparsity_pattern: expected 0, or numbers above 0.5 and below "
            f"1, got {shares!r:.80}"
        )
    return Gemma3nConfig(
        **fields,
        **_local(fields, local_rope_base(data, fields["head_dim"], fields["max_context"])),
        windows=windows_by_type(data, not_every_nth(_PERIOD, layers)),
        layer_embedding=data.size("hidden_size_per_layer_input", default=256),
        caching_layers=layers - data.count("num_kv_shared_layers", default=15),
        ffns=tuple(ffns),
        logit_cap=data.number("final_logit_softcapping", default=None),
        streams=data.size("altup_num_inputs", default=4),
        laurel_rank=data.size("laurel_rank", default=64),
        layer_vocab=data.size("vocab_size_per_layer_input", default=262144),
        deviations=tuple(NormalDist().inv_cdf(share) if share else None for share in shares),
    )


def from_gguf(data: GgufMetadata) -> Gemma3nConfig:
    """Read GGUF metadata; raises ConfigError."""
    layers = data.size("block_count", limit=MAX_LAYERS)
    ffns = data.by_layer("feed_forward_length", layers)
    fields = from_gguf_metadata(data, rope_base=1_000_000.0, ffn=ffns[0])
    if data.count("altup.active_idx", default=0):
        raise ConfigError("gemma3n.altup.active_idx: supported is 0")
    return Gemma3nConfig(
        **fields,
        **_local(fields, data.number("rope.freq_base_swa", default=10_000.0)),
        windows=data.windows_by_layer(layers, _PERIOD),
        layer_embedding=data.size("embedding_length_per_layer_input"),
        caching_layers=layers - data.count("attention.shared_kv_layers", default=15),
        ffns=tuple(ffns),
        logit_cap=data.number("final_logit_softcapping", default=30.0),
        streams=data.size("altup.num_inputs"),
        laurel_rank=data.rows("blk.0.laurel_l.weight"),
        layer_vocab=data.rows("per_layer_token_embd.weight"),
        deviations=_deviations(data.factors("activation_sparsity_scale", default=())),
    )


def _local(fields: dict[str, Any], base: float) -> dict[str, Any]:
    """The shape of layers with a window: only their positions differ."""
    return {"local_head_dim": fields["head_dim"], "local_rope_base": base}


def _deviations(factors: Sequence[float]) -> tuple[float | None, ...]:
    """`deviations` of a GGUF file, where all inputs are those above the mean less infinity."""
    return tuple(None if factor == -float("inf") else factor for factor in factors)
