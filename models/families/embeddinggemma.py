"""EmbeddingGemma: Gemma 3 whose tokens see both directions, and dense layers after the mean.

Source: "EmbeddingGemma: Powerful and Lightweight Text Representations" (2025).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from hearthd.models.config import ConfigError
from hearthd.models.dsl import nn
from hearthd.models.encoder.encoder_architecture import EncoderArchitecture
from hearthd.models.encoder.texts import both_sides
from hearthd.models.families.gemma3 import GEMMA_NAMES, Gemma3, fields_from_gguf, text_fields
from hearthd.models.families.gemma3 import Config as Gemma3Config

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.encoder.texts import Texts

_DENSE = ("2_Dense", "3_Dense")


@dataclass(frozen=True, kw_only=True)
class Config(Gemma3Config):
    """The shape of a model. A token sees the tokens at distances below a layer's window.

    dense  the widths after each of the dense layers
    """

    dense: tuple[int, ...] = ()


class EmbeddingGemma(Gemma3):
    """The mean of the hidden states, through dense layers."""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        widths = (config.hidden, *config.dense)
        self.dense = [nn.Linear(inputs, outputs) for inputs, outputs in pairwise(widths)]

    def encode(self, texts: Texts) -> Tensor:
        """Texts -> their vectors (B, W)."""
        layers = [texts.layer(self.window(layer)) for layer in range(self.config.layers)]
        h = self(texts.tokens, texts.positions, layers)
        x = texts.pooled(h, self.config.pooling)
        for dense in self.dense:
            x = dense(x)
        return x


def _dense_width(module: ConfigJson) -> int:
    module.fixed(bias=False, activation_function="torch.nn.modules.linear.Identity")
    module.fixed(module_input_name="sentence_embedding", module_output_name="sentence_embedding")
    module.ignore("in_features")
    return module.size("out_features")


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json, and the configurations of the dense layers."""
    if not data.flag("use_bidirectional_attention", default=False):
        raise ConfigError("config.json: use_bidirectional_attention = False, supported is True")
    fields = text_fields(data, bidirectional=True)
    modules = [data.section(key) for name in _DENSE if data.has(key := f"{name}/config.json")]
    dense = tuple(_dense_width(module) for module in modules)
    return Config(**fields | {"windows": both_sides(fields["windows"]), "dense": dense})


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata."""
    data.require_both_directions()
    fields = fields_from_gguf(data)
    dense = [name for name in ("dense_2", "dense_3") if data.has_tensor(f"{name}.weight")]
    for name in dense:
        data.size(f"{name}_feat_in")
    widths = tuple(data.size(f"{name}_feat_out") for name in dense)
    return Config(**fields | {"windows": both_sides(fields["windows"]), "dense": widths})


ARCHITECTURE = EncoderArchitecture(
    name="gemma-embedding",
    config=Config,
    model_types=("gemma3_text",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=EmbeddingGemma,
    tensors=replace(
        GEMMA_NAMES,
        gguf={**GEMMA_NAMES.gguf, "dense.0": "dense_2", "dense.1": "dense_3"},
        folder={f"dense.{index}": f"{name}.linear" for index, name in enumerate(_DENSE)},
    ),
)
