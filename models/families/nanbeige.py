"""Nanbeige 4.2: Llama whose layers are computed several times, with a norm after each time.

Source: llama.cpp (2026), by which Nanbeige4.2-3B is computed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import (
    FULL,
    DecoderConfig,
    from_config_json,
    from_gguf_metadata,
)
from hearthd.models.decoder.tensor_names import QUERIES_AND_KEYS, TensorNames
from hearthd.models.families.llama import Llama

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.kv_cache import LayerCache
    from hearthd.models.dsl.graph import Tensor

# Parts of models of this type that Nanbeige4.2-3B does not have.
_ABSENT = (
    "enable_depth_attention", "enable_double_loop_split", "enable_h_res_identity",
    "enable_hyper_connection", "enable_mhc", "loop_share_kv", "ngram_insert_all_layers",
    "qk_layernorm",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    """The shape of a model; each layer of a file counts in `layers` as often as it is computed.

    loops        how often each layer is computed; each time has keys and values of its own
    loop_norm    whether the last norm follows each time, in place of the last time alone
    """

    loops: int
    loop_norm: bool

    @property
    def stored_layers(self) -> int:
        """The layers of a file."""
        return self.layers // self.loops


class Nanbeige(Llama):
    """Llama's blocks, several times."""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(replace(config, layers=config.stored_layers, loops=1))
        self.config = config

    @override
    def __call__(
        self, tokens: Tensor, positions: Tensor, caches: list[LayerCache], h: Tensor | None = None
    ) -> Tensor:
        """See `DecoderModel`."""
        h = self.embed(tokens) if h is None else h
        ropes, count = self.rope_tables(positions), self.config.stored_layers
        for layer, (rope, cache) in enumerate(zip(ropes, caches, strict=True)):
            if layer and layer % count == 0 and self.config.loop_norm:
                h = self.norm(h)
            h = self.layers[layer % count](h, rope, cache)
        return self.norm(h)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    data.fixed(**dict.fromkeys(_ABSENT, False))
    data.fixed(insert_ngram_layer_idx=[], loop_middle_layers=[])
    data.ignore("loop_loss_weights")
    fields, loops = from_config_json(data), data.size("num_loops", default=1)
    layers = fields["layers"]
    data.fixed(layer_types=[FULL] * layers, kv_channels=fields["head_dim"])
    return Config(
        **fields | {"layers": layers * loops},
        loops=loops,
        loop_norm=not data.flag("skip_loop_final_norm", default=False),
    )


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata."""
    fields, loops = from_gguf_metadata(data), data.size("num_loops", default=1)
    return Config(
        **fields | {"layers": fields["layers"] * loops},
        loops=loops,
        loop_norm=not data.flag("skip_loop_final_norm", default=False),
    )


ARCHITECTURE = Architecture(
    name="nanbeige",
    config=Config,
    model_types=("nanbeige",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Nanbeige,
    tensors=TensorNames(interleaved=QUERIES_AND_KEYS),
)
