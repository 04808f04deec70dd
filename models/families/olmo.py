"""OLMo 1 and 1.7: Llama with LayerNorm without parameters; queries, keys and values are clipped.

Source: "OLMo: Accelerating the Science of Language Models" (2024).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import (
    DecoderConfig,
    from_config_json,
    from_gguf_metadata,
)
from hearthd.models.decoder.layers import MLP, Attention, Block, DecoderModel
from hearthd.models.decoder.tensor_names import QUERIES_AND_KEYS, TensorNames
from hearthd.models.dsl import functions as f

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    """The shape of a model; `clip` bounds queries, keys and values; None: they are not bounded."""

    clip: float | None


class ClippedAttention(Attention):
    """Attention whose heads have no values above a bound, or below the negative one."""

    def __init__(self, config: DecoderConfig, clip: float | None) -> None:
        super().__init__(config)
        self.clip = clip

    @override
    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(N, E) -> queries (N, H, D), keys and values (N, G, D), before rotation."""
        query, key, value = super().heads(x)
        if self.clip is None:
            return query, key, value
        bounds = -self.clip, self.clip
        return f.clamp(query, *bounds), f.clamp(key, *bounds), f.clamp(value, *bounds)


class Olmo(DecoderModel):
    """Llama's blocks with such norms and such attention."""

    def __init__(self, config: Config) -> None:
        blocks = [
            Block(config, ClippedAttention(config, config.clip), MLP(config), _norm)
            for _ in range(config.layers)
        ]
        super().__init__(config, blocks)
        self.norm = _norm(config.hidden, config.norm_eps)


def _norm(_: int, eps: float) -> Callable[[Tensor], Tensor]:
    return partial(f.layer_norm, eps=eps)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    data.assume(rms_norm_eps=1e-5)
    return Config(**from_config_json(data), clip=data.number("clip_qkv", default=None))


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata."""
    clip = data.number("attention.clamp_kqv", default=None)
    return Config(**from_gguf_metadata(data), clip=clip)


ARCHITECTURE = Architecture(
    name="olmo",
    config=Config,
    model_types=("olmo",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Olmo,
    tensors=TensorNames(interleaved=QUERIES_AND_KEYS),
)
