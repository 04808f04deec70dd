"""StarCoder 1 and SantaCoder: GPT-2 whose query heads share one key/value head.

Source: "StarCoder: may the source be with you!" (2023).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import DecoderConfig, from_gguf_metadata
from hearthd.models.decoder.tensor_names import JOINED_HEADS, TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.families import gpt2
from hearthd.models.families.gpt2 import Gpt2

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson

_TANH = ("gelu_new", "gelu_pytorch_tanh")  # names of the approximation


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    """The shape of a model; `exact_gelu` says whether its activation is not approximated."""

    exact_gelu: bool = False


class StarCoder(Gpt2):
    """GPT-2's blocks."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, f.gelu if config.exact_gelu else f.gelu_tanh)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    data.fixed(multi_query=True)
    data.ignore("attention_softmax_in_fp32", "scale_attention_softmax_in_fp32")
    # Of the first implementation's server.
    data.ignore(
        "inference_runner", "max_batch_size", "max_sequence_length", "pad_key_length",
        "pre_allocate_kv_cache", "validate_runner_input",
    )  # fmt: skip
    activation = data.choice("activation_function", ("gelu", *_TANH), default=_TANH[1])
    fields = gpt2.fields_from_hugging_face(data) | {"kv_heads": 1}
    return Config(**fields, exact_gelu=activation == "gelu")


_OF_GPT2 = gpt2.ARCHITECTURE.tensors
ARCHITECTURE = Architecture(
    name="starcoder",
    config=Config,
    model_types=("gpt_bigcode",),
    read_config_json=from_hugging_face,
    read_gguf=lambda data: Config(**from_gguf_metadata(data)),
    model=StarCoder,
    tensors=TensorNames(
        gguf=_OF_GPT2.gguf,
        prefixes=_OF_GPT2.prefixes,
        layers=_OF_GPT2.layers,
        folder=_OF_GPT2.folder,
        masks=_OF_GPT2.masks,
        grouped=(JOINED_HEADS, replace(JOINED_HEADS, folder="attn.c_attn")),
    ),
)
