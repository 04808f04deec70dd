"""LFM3: LFM2's layers with norms after them, attention with a window, and a gate for each head.

Source: the model `lfm3` of transformers (2026). llama.cpp has no name for it yet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.models.config import ConfigError
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import (
    FULL,
    SLIDING,
    from_config_json,
    local_rope_base,
)
from hearthd.models.decoder.config.rope_scaling import Rope
from hearthd.models.decoder.layers import MLP, Attention, NormedAttention, rotated
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops
from hearthd.models.families import lfm2
from hearthd.models.families.gemma3 import GemmaBlock
from hearthd.models.families.lfm2 import Lfm2, ShortConv

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.decoder_config import DecoderConfig
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.kv_cache import LayerCache
    from hearthd.models.decoder.layers import RopeTable
    from hearthd.models.dsl.graph import Tensor

_CONV, _TAPS, _WINDOW = "conv", 7, 256


@dataclass(frozen=True, kw_only=True)
class Config(lfm2.Config):
    """The shape of a model; `rope_base` is for layers without a window.

    local_rope_base  base of the rotary positions of layers with a window
    """

    local_rope_base: float

    @property
    @override
    def local(self) -> Config:
        """The shape of the layers with a window."""
        return replace(self, **Rope(base=self.local_rope_base).fields)


class HeadGatedAttention(Attention):
    """Attention whose heads are each multiplied by a number from 0 to 1."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config)
        self.gate_proj = nn.Linear(config.hidden, config.heads)

    @override
    def __call__(self, x: Tensor, rope: RopeTable | None, cache: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        query, key, value = self.heads(x)
        mixed = cache.attend(rotated(query, rope), rotated(key, rope), value, scale=self.scale)
        heads = f.split_heads(mixed, query.shape[2])
        return self.o_proj(f.flatten(self.gated(x, heads), first=1))

    def gated(self, x: Tensor, heads: Tensor) -> Tensor:
        """Heads (N, H, D), times their factors."""
        return f.gated_heads(self.gate(x, heads), heads)

    def gate(self, x: Tensor, heads: Tensor) -> Tensor:
        """What a sigmoid makes the factors of heads (N, H, D): of the same shape."""
        return ops.broadcast(self.gate_proj(x), shape=heads.shape, axes=(0, 1))


class NormedGatedAttention(HeadGatedAttention, NormedAttention):
    """The same with normalized heads."""


class Lfm3(Lfm2):
    """Blocks with norms before and after attention or a convolution."""

    config: Config

    @override
    def block(self, layer: int) -> GemmaBlock:
        config = self.config
        mixer = NormedGatedAttention(config) if config.attends[layer] else ShortConv(config)
        return GemmaBlock(config, mixer, MLP(config))


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    data.fixed(conv_bias=False, use_attention_gate=True, use_sandwich_norm=True)
    data.assume(rms_norm_eps=data.number("norm_eps", default=1e-5), tie_word_embeddings=True)
    fields = from_config_json(data, _rope)
    usual = [_usual_kind(layer) for layer in range(fields["layers"])]
    kinds = data.texts("layer_types", default=usual)
    taps = data.size("conv_L_cache", default=_TAPS)
    windows = {FULL: None, SLIDING: data.size("sliding_window", default=_WINDOW), _CONV: taps}
    if unknown := sorted({*kinds} - windows.keys()):
        raise ConfigError(
            f"config.json: layer_types: got {unknown[0]!r:.80}, supported: {', '.join(windows)}"
        )
    return Config(
        **fields,
        taps=taps,
        attends=tuple(kind != _CONV for kind in kinds),
        windows=tuple(windows[kind] for kind in kinds),
        local_rope_base=local_rope_base(data, fields["head_dim"], fields["max_context"]),
    )


def _rope(data: ConfigJson, width: int, max_context: int) -> Rope:
    return data.rope(width, max_context, FULL)


def _usual_kind(layer: int) -> str:
    return {2: FULL, 0: SLIDING if layer else _CONV}.get(layer % 4, _CONV)


def from_gguf(_: GgufMetadata) -> Config:
    """There are no GGUF files; raises ConfigError."""
    raise ConfigError("GGUF files of LFM3 are not supported yet: bake the Hugging Face folder")


_OF_LFM2 = lfm2.ARCHITECTURE.tensors
ARCHITECTURE = Architecture(
    name="lfm3",
    config=Config,
    model_types=("lfm3",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Lfm3,
    tensors=TensorNames(
        folder={
            part: name
            for part, name in _OF_LFM2.folder.items()
            if not part.startswith(("self_attn.o", "self_attn.q", "self_attn.k"))
        }
        | {
            "post_attention_layernorm": "post_operator_norm",
            "pre_feedforward_layernorm": "ffn_norm",
            "post_feedforward_layernorm": "post_ffn_norm",
        },
    ),
)
