"""Nemotron-H: layers that are each Mamba-2, attention without positions, or an MLP.

Source: "Nemotron-H" (NVIDIA, 2025), and the model `nemotron_h` of transformers (2026).
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
from hearthd.models.decoder.layers import Attention, DecoderModel
from hearthd.models.decoder.recurrent import mamba2
from hearthd.models.decoder.tensor_names import GGUF_NAMES, QUERIES_AND_KEYS, TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.kv_cache import LayerCache, StateRows
    from hearthd.models.decoder.layers import Layer, RopeTable
    from hearthd.models.dsl.graph import Tensor

MAMBA, ATTENTION, MLP = "mamba", "attention", "mlp"
# What a layer is in `layers_block_type`, and in `hybrid_override_pattern` of older files.
KINDS = {
    "linear_attention": MAMBA, "mamba": MAMBA, "full_attention": ATTENTION, "attention": ATTENTION,
    "mlp": MLP, "M": MAMBA, "*": ATTENTION, "-": MLP,
}  # fmt: skip
# About experts, training, and layers that predict further tokens.
_IGNORED = (
    "moe_intermediate_size", "moe_latent_size", "moe_shared_expert_intermediate_size",
    "moe_shared_expert_overlap", "n_group", "n_routed_experts", "n_shared_experts",
    "norm_topk_prob", "num_experts_per_tok", "output_router_logits", "routed_scaling_factor",
    "topk_group", "chunk_size", "expand", "hidden_dropout", "initializer_range",
    "mamba_ssm_cache_dtype", "num_logits_to_keep", "rescale_prenorm_residual", "residual_in_fp32",
    "sliding_window", "time_step_floor", "time_step_limit", "time_step_max", "time_step_min",
    "time_step_rank", "use_mamba_kernels", "mtp_hybrid_override_pattern", "mtp_layers_block_type",
    "num_nextn_predict_layers",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Config(mamba2.Mamba2Config):
    """The shape of a model; `kinds` says of each layer whether it is MAMBA, ATTENTION or MLP."""

    by_layer = (*mamba2.Mamba2Config.by_layer, "kinds")

    kinds: tuple[str, ...]

    @override
    def rotates(self, _: int) -> bool:
        return False


class SquaredMLP(nn.Module):
    """down(relu(up(x))^2) (So et al., 2021)."""

    def __init__(self, config: DecoderConfig) -> None:
        self.up_proj = nn.Linear(config.hidden, config.ffn, bias=config.mlp_bias)
        self.down_proj = nn.Linear(config.ffn, config.hidden, bias=config.mlp_bias)

    def __call__(self, x: Tensor, *_: object) -> Tensor:
        """(N, E) -> (N, E)."""
        return self.down_proj(f.squared_relu(self.up_proj(x)))


_LAYERS: dict[str, type[mamba2.Mamba2 | Attention | SquaredMLP]] = {
    MAMBA: mamba2.Mamba2,
    ATTENTION: Attention,
    MLP: SquaredMLP,
}


class NemotronBlock(nn.Module):
    """One layer: h + mixer(norm(h))."""

    def __init__(self, config: Config, mixer: Layer) -> None:
        self.input_layernorm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.mixer = mixer

    def __call__(self, h: Tensor, rope: RopeTable | None, cache: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        return h + self.mixer(self.input_layernorm(h), rope, cache)


class NemotronH(DecoderModel):
    """Blocks with one mixer each."""

    config: Config

    def __init__(self, config: Config) -> None:
        mixers = (self.mixer(config, kind) for kind in config.kinds)
        super().__init__(config, [NemotronBlock(config, mixer) for mixer in mixers])

    def mixer(self, config: Config, kind: str) -> Layer:
        """The mixer of a layer."""
        return _LAYERS[kind](config)

    @override
    def cache_width(self, layer: int) -> int:
        return super().cache_width(layer) if self.config.kinds[layer] == ATTENTION else 0

    @override
    def states(self, layer: int) -> tuple[StateRows, ...]:
        return self.config.states if self.config.kinds[layer] == MAMBA else ()


def _kinds(data: ConfigJson, kinds: Mapping[str, str]) -> tuple[str, ...]:
    """What each layer is, by the names in files; raises ConfigError."""
    pattern = data.text("hybrid_override_pattern", default="")
    names = data.texts("layers_block_type", default=list(pattern))
    for name in names:
        if name not in kinds:
            raise ConfigError(
                f"config.json: layers_block_type: got {name!r:.80}, supported: "
                f"{', '.join(dict.fromkeys(kinds.values()))}"
            )
    return tuple(kinds[name] for name in names)


def fields_from_hugging_face(data: ConfigJson, names: Mapping[str, str] = KINDS) -> dict[str, Any]:
    """The fields of `Config` from config.json, with `names` of layers; raises ConfigError."""
    data.fixed(
        mlp_hidden_act="relu2", mamba_hidden_act="silu", use_conv_bias=True, use_bias=False,
        mamba_proj_bias=False,
    )  # fmt: skip
    data.ignore(*_IGNORED)
    data.rename(attention_head_dim="head_dim")
    kinds = _kinds(data, names)
    eps = data.number("layer_norm_epsilon", default=1e-5)
    data.assume(num_hidden_layers=len(kinds), rms_norm_eps=eps)
    return {
        **from_config_json(data),
        "kinds": kinds,
        "ssm_heads": data.size("mamba_num_heads"),
        "ssm_width": data.size("mamba_head_dim"),
        "ssm_groups": data.size("n_groups"),
        "ssm_state": data.size("ssm_state_size"),
        "taps": data.size("conv_kernel", default=4),
    }


def fields_from_gguf(data: GgufMetadata) -> dict[str, Any]:
    """The fields of `Config` from GGUF metadata; raises ConfigError.

    A layer of Mamba-2 has 0 key/value heads and an MLP width of 0. A layer that predicts further
    tokens follows the others.
    """
    heads, widths = (data.counts(key) for key in ("attention.head_count_kv", "feed_forward_length"))
    fields: dict[str, Any] = from_gguf_metadata(
        data,
        kv_heads=max(heads, default=0) or 1,
        ffn=max(widths, default=0) or 1,
        rope_width=data.size("rope.dimension_count", default=2),
    )
    fields["layers"] -= data.count("nextn_predict_layers", default=0)
    sizes = list(zip(heads, widths, strict=False))[: fields["layers"]]
    kinds = tuple(ATTENTION if count else MLP if width else MAMBA for count, width in sizes)
    for kind, field, of_layer in (
        (ATTENTION, "attention_bias", "attn_q"),
        (ATTENTION, "output_bias", "attn_output"),
        (MLP, "mlp_bias", "ffn_up"),
    ):
        if kind in kinds:
            fields[field] = data.has_tensor(f"blk.{kinds.index(kind)}.{of_layer}.bias")
    return {**fields, **mamba2.gguf_fields(data), "kinds": kinds}


_GGUF, _FOLDER = mamba2.tensor_names("mixer", "mixer")
_OF_ATTENTION = {f"mixer.{part}_proj": f"self_attn.{part}_proj" for part in "qkvo"}
_OF_MLP = {f"mixer.{part}_proj": f"mlp.{part}_proj" for part in ("up", "down")}
_OF_MODEL = {"input_layernorm": "norm", "embed_tokens": "embeddings", "norm": "norm_f"}
ARCHITECTURE = Architecture(
    name="nemotron_h",
    config=Config,
    model_types=("nemotron_h",),
    read_config_json=lambda data: Config(**fields_from_hugging_face(data)),
    read_gguf=lambda data: Config(**fields_from_gguf(data)),
    model=NemotronH,
    tensors=TensorNames(
        gguf={
            **GGUF_NAMES,
            **_GGUF,
            **{ours: GGUF_NAMES[usual] for ours, usual in (_OF_ATTENTION | _OF_MLP).items()},
        },
        folder={**_FOLDER, **_OF_MODEL},
        prefixes=("backbone.", "model."),
        interleaved=tuple(name.replace("self_attn", "mixer") for name in QUERIES_AND_KEYS),
        logarithms=("mixer.rates",),
        others=("mtp.",),
    ),
)
