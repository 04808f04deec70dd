"""Mamba-2 alone: every layer is a recurrence, without attention and without an MLP.

Source: "Transformers are SSMs" (Dao and Gu, 2024), and Codestral Mamba (Mistral, 2024).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.config import ConfigError
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.recurrent_fields import (
    recurrent_fields,
    recurrent_fields_from_gguf,
)
from hearthd.models.decoder.recurrent import mamba2
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.families import nemotron_h
from hearthd.models.families.nemotron_h import MAMBA, Config, NemotronH

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    data.ignore("chunk_size", "time_step_rank")
    data.fixed(norm_before_gate=False, rms_norm=True)
    data.unlimited("time_step_limit")
    heads, width = data.size("num_heads", default=128), data.size("head_dim", default=64)
    fields = recurrent_fields(data)
    inner = data.size("expand", default=2) * fields["hidden"]
    if heads * width != inner:
        raise ConfigError(
            f"config.json: num_heads: got {heads} heads of {width}, expected {inner} columns"
        )
    return Config(
        **fields,
        kinds=(MAMBA,) * fields["layers"],
        ssm_heads=heads,
        ssm_width=width,
        ssm_groups=data.size("n_groups", default=8),
        ssm_state=data.size("state_size", default=128),
        taps=data.size("conv_kernel", default=4),
    )


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata."""
    fields = recurrent_fields_from_gguf(data) | mamba2.gguf_fields(data)
    return Config(**fields, kinds=(MAMBA,) * fields["layers"])


_, _FOLDER = mamba2.tensor_names("mixer", "mixer")
ARCHITECTURE = Architecture(
    name="mamba2",
    config=Config,
    model_types=("mamba2",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=NemotronH,
    tensors=TensorNames(
        gguf=nemotron_h.ARCHITECTURE.tensors.gguf,
        folder={
            **_FOLDER,
            "input_layernorm": "norm",
            "embed_tokens": "embeddings",
            "norm": "norm_f",
        },
        prefixes=("backbone.", "model.backbone."),
        logarithms=("mixer.rates",),
    ),
)
