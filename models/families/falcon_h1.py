"""Falcon-H1: attention and Mamba-2 side by side in every layer, with many multipliers.

Source: "Falcon-H1" (TII, 2025), and the model `falcon_h1` of transformers (2025). The
matrices in GGUF files are already multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.models.config import ConfigError
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import from_config_json, from_gguf_metadata
from hearthd.models.decoder.layers import DecoderModel
from hearthd.models.decoder.recurrent import mamba2
from hearthd.models.decoder.scaled_layers import ScaledAttention, ScaledMamba, ScaledMLP, scaled
from hearthd.models.decoder.tensor_names import GGUF_NAMES, TensorNames
from hearthd.models.dsl import nn

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.kv_cache import LayerCache, StateRows
    from hearthd.models.decoder.layers import RopeTable
    from hearthd.models.dsl.graph import Tensor


@dataclass(frozen=True, kw_only=True)
class Config(mamba2.Mamba2Config):
    """The shape of a model, and its multipliers.

    embedding_scale, logit_scale  of embeddings, and of logits
    key_scale                     of keys
    attention_scales, ssm_scales  of the inputs and the results of attention, and of Mamba-2
    ssm_input_scales              of the gates, x, B, C and the time steps
    mlp_scales                    of the gates and the results of an MLP
    normalizes_gated              whether the gated outputs of Mamba-2 are normalized
    """

    embedding_scale: float = 1.0
    logit_scale: float = 1.0
    key_scale: float = 1.0
    attention_scales: tuple[float, ...] = (1.0, 1.0)
    ssm_scales: tuple[float, ...] = (1.0, 1.0)
    ssm_input_scales: tuple[float, ...] = (1.0,) * 5
    mlp_scales: tuple[float, ...] = (1.0, 1.0)
    normalizes_gated: bool = False

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        for name, count in (("ssm_input_scales", 5), ("mlp_scales", 2)):
            if len(getattr(self, name)) != count:
                got = len(getattr(self, name))
                raise ConfigError(f"{name}: got {got} multipliers, expected {count}")

    @property
    @override
    def cached_layers(self) -> int:
        """Two for each layer: one for keys and values, and one for states."""
        return 2 * self.layers


class FalconBlock(nn.Module):
    """One layer: attention and Mamba-2 read the same rows."""

    def __init__(self, config: Config) -> None:
        self.input_layernorm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.self_attn = ScaledAttention(
            config, key_scale=config.key_scale, scales=config.attention_scales
        )
        self.mamba = ScaledMamba(
            config,
            norm=config.normalizes_gated,
            input_scales=config.ssm_input_scales,
            scales=config.ssm_scales,
        )
        self.post_attention_layernorm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.mlp = ScaledMLP(config, scales=config.mlp_scales)

    def __call__(
        self, h: Tensor, rope: RopeTable | None, rows: LayerCache, states: LayerCache
    ) -> Tensor:
        """(N, E) -> (N, E)."""
        x = self.input_layernorm(h)
        h = h + (self.self_attn(x, rope, rows) + self.mamba(x, None, states))
        return h + self.mlp(self.post_attention_layernorm(h))


class FalconH1(DecoderModel):
    """Falcon-H1's blocks, with scaled embeddings and logits."""

    config: Config
    layers: list[FalconBlock]  # type: ignore[assignment]  # each reads two caches

    def __init__(self, config: Config) -> None:
        super().__init__(config, [])
        self.layers = [FalconBlock(config) for _ in range(config.layers)]

    @override
    def embed(self, tokens: Tensor) -> Tensor:
        return scaled(super().embed(tokens), self.config.embedding_scale)

    @override
    def __call__(
        self, tokens: Tensor, positions: Tensor, caches: list[LayerCache], h: Tensor | None = None
    ) -> Tensor:
        h = self.embed(tokens) if h is None else h
        ropes = self.rope_tables(positions)
        for block, rope, *pair in zip(self.layers, ropes, caches[::2], caches[1::2], strict=True):
            h = block(h, rope, *pair)
        return self.norm(h)

    @override
    def logits(self, x: Tensor) -> Tensor:
        return super().logits(scaled(x, self.config.logit_scale))

    @override
    def window(self, _: int) -> None:
        """Every layer sees all positions."""

    @override
    def states(self, layer: int) -> tuple[StateRows, ...]:
        return self.config.states if layer % 2 else ()

    @override
    def cache_width(self, _: int) -> int:
        return super().cache_width(0)

    @override
    def cache_heads(self, _: int) -> int:
        return super().cache_heads(0)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    gates_first = not data.flag("mamba_norm_before_gate", default=True)
    normalizes = data.flag("mamba_rms_norm", default=False)
    if normalizes and not gates_first:
        raise ConfigError("config.json: mamba_norm_before_gate: got true, supported is false")
    data.fixed(mamba_conv_bias=True, mamba_proj_bias=False, projectors_bias=False)
    data.ignore("mamba_chunk_size", "mamba_expand", "num_logits_to_keep", "time_step_limit")
    data.ignore("layer_types", "mamba_use_mlp", "attn_layer_indices", "attn_rotary_emb")
    heads, inner = data.size("mamba_n_heads"), data.size("mamba_d_ssm")
    if data.size("mamba_d_head", default=inner // heads) * heads != inner:
        raise ConfigError(
            f"config.json: mamba_d_ssm: got {inner}, expected the width of {heads} heads"
        )

    def pair(name: str) -> tuple[float, float]:
        keys = (f"{name}_in_multiplier", f"{name}_out_multiplier")
        return data.number(keys[0], default=1.0), data.number(keys[1], default=1.0)

    return Config(
        **from_config_json(data),
        ssm_heads=heads,
        ssm_width=inner // heads,
        ssm_groups=data.size("mamba_n_groups", default=1),
        ssm_state=data.size("mamba_d_state", default=256),
        taps=data.size("mamba_d_conv", default=4),
        embedding_scale=data.number("embedding_multiplier", default=1.0),
        logit_scale=data.number("lm_head_multiplier", default=1.0),
        key_scale=data.number("key_multiplier", default=1.0),
        attention_scales=pair("attention"),
        ssm_scales=pair("ssm"),
        ssm_input_scales=tuple(data.numbers("ssm_multipliers")),
        mlp_scales=tuple(data.numbers("mlp_multipliers")),
        normalizes_gated=normalizes,
    )


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata."""
    normalizes = data.has_tensor("blk.0.ssm_norm.weight")
    fields = from_gguf_metadata(data) | mamba2.gguf_fields(data)
    return Config(**fields, normalizes_gated=normalizes)


_GGUF, _FOLDER = mamba2.tensor_names("mamba", "mamba")
ARCHITECTURE = Architecture(
    name="falcon-h1",
    config=Config,
    model_types=("falcon_h1",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=FalconH1,
    tensors=TensorNames(
        gguf={**GGUF_NAMES, **_GGUF, "post_attention_layernorm.weight": "ffn_norm"},
        folder={
            **_FOLDER,
            "post_attention_layernorm": "pre_ff_layernorm",
            "norm": "final_layernorm",
            **{f"mlp.{part}_proj": f"feed_forward.{part}_proj" for part in ("gate", "up", "down")},
        },
        logarithms=("mamba.rates",),
    ),
)
