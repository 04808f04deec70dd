"""Phi-3.5-MoE and Phi-mini-MoE: two experts for each token.

The factor of an expert is its softmax over the experts whose scores are near its own, as in
transformers; llama.cpp normalizes a softmax over all. Source: "GRIN: GRadient-INformed
MoE" (2024) and the model `phimoe` of transformers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.config import ConfigError
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import from_config_json, from_gguf_metadata
from hearthd.models.decoder.config.gguf_metadata import LONG_DIVISORS
from hearthd.models.decoder.config.long_rope import (
    LongRopeConfig,
    long_fields,
    long_fields_from_gguf,
    read_rope,
)
from hearthd.models.decoder.experts import ExpertsConfig, MixtureOfExperts, experts_from_gguf
from hearthd.models.decoder.layers import Attention, Block, DecoderModel
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops
from hearthd.models.families import mixtral

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.config.rope_scaling import Rope
    from hearthd.models.dsl.graph import Tensor

# Of Phi-3.5-MoE: GGUF files have neither; in place of the second one they have another factor.
_NOISE, _MAGNITUDE = 0.01, 1.243163121016122
_CHOSEN = 2
_MAGNITUDES = ("short_mscale", "long_mscale")


@dataclass(frozen=True, kw_only=True)
class Config(LongRopeConfig, ExpertsConfig):
    """The shape of a model.

    noise      half of the relative distance from an expert's score within which others count
    head_bias  whether the output head adds a bias
    """

    by_layer = ExpertsConfig.by_layer

    noise: float
    head_bias: bool

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if self.experts_per_token != _CHOSEN:
            raise ConfigError(
                f"experts_per_token: got {self.experts_per_token}, supported is {_CHOSEN}"
            )


class SparseMixer(MixtureOfExperts):
    """The two best experts of a token, each with its probability among those near its score."""

    config: Config

    @override
    def routes(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(N, E) -> the factors of each token's experts f32 (N, 2), and the experts i32 (N, 2)."""
        logits = ops.barrier(self.logits(x))
        chosen = f.top_indices(logits, count=_CHOSEN)
        expert = ops.iota(shape=logits.shape, axis=1, dtype=chosen.dtype)
        remaining, factors = logits, []
        for index in f.chunk(chosen, _CHOSEN, axis=1):
            best = f.along_axes(ops.reduce_max(remaining, axes=(1,)), logits, (1,))
            factors.append(self._share(logits, remaining, best))
            of_row = f.along_axes(f.flatten(index), expert, (1,))
            is_best = ops.compare(of_row, expert, direction="EQ")
            remaining = ops.select(is_best, ops.full_like(logits, -1e30), remaining)
        return ops.concatenate(*factors, axis=1), chosen

    def _share(self, logits: Tensor, remaining: Tensor, best: Tensor) -> Tensor:
        """The probability (N, 1) of the best logits among the remaining ones (N, X) near them."""
        scale = ops.maximum(ops.absolute(logits), best)
        limit = ops.full_like(logits, 2.0 * self.config.noise)
        is_far = ops.compare((best - logits) / scale, limit, direction="GT")
        powers = ops.exponential(remaining - best)
        powers = ops.select(is_far, ops.full_like(powers, 0.0), powers)
        total = ops.reshape(ops.reduce_sum(powers, axes=(1,)), shape=(logits.shape[0], 1))
        return ops.full_like(total, 1.0) / total


class PhiMoe(DecoderModel):
    """Blocks with LayerNorm and experts."""

    def __init__(self, config: Config) -> None:
        blocks = [
            Block(config, Attention(config), SparseMixer(config), nn.LayerNorm)
            for _ in range(config.layers)
        ]
        super().__init__(config, blocks)
        self.norm = nn.LayerNorm(config.hidden, config.norm_eps)
        if not config.tied:
            self.lm_head = nn.Linear(config.hidden, config.vocab_size, bias=config.head_bias)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    data.ignore("input_jitter_noise", "output_router_logits", "router_aux_loss_coef")
    fields = from_config_json(data, _rope)
    window = data.size("sliding_window", default=None)
    rope = _rope(data, fields["head_dim"], fields["max_context"])
    return Config(
        **fields,
        **long_fields(rope, fields["max_context"]),
        **_experts(fields, window),
        experts=data.size("num_local_experts"),
        experts_per_token=data.size("num_experts_per_tok"),
        noise=data.number("router_jitter_noise", default=_NOISE),
        head_bias=data.flag("lm_head_bias", default=False),
    )


def _rope(data: ConfigJson, width: int, max_context: int) -> Rope:
    """The rotary positions, whose factors of cosines and sines must be equal in both contexts."""
    section, base = data.rope_section()
    section.fixed(partial_rotary_factor=1.0)
    rope = read_rope(data, section, base, width, max_context)
    if not rope.long_divisors:
        return rope
    short, long = (section.number(name) for name in _MAGNITUDES)
    if short != long:
        raise ConfigError(f"rope_scaling: {', '.join(_MAGNITUDES)}: got {short} and {long}")
    return replace(rope, magnitude=short)


def _experts(fields: dict[str, Any], window: int | None) -> dict[str, Any]:
    layers = fields["layers"]
    return {
        "expert_ffn": fields["ffn"],
        "routed": (True,) * layers,
        "normalized": False,
        "windows": (window,) * layers if window else (),
    }


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata."""
    fields = experts_from_gguf(data, from_gguf_metadata(data))
    fields |= long_fields_from_gguf(data, fields["head_dim"], fields["max_context"])
    if data.has_tensor(LONG_DIVISORS):
        fields["rope_magnitude"] = _MAGNITUDE
    return Config(
        **fields | _experts(fields, data.window()),
        noise=_NOISE,
        head_bias=data.has_tensor("output.bias"),
    )


ARCHITECTURE = Architecture(
    name="phimoe",
    config=Config,
    model_types=("phimoe",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=PhiMoe,
    tensors=replace(mixtral.ARCHITECTURE.tensors, interleaved=()),
)
