"""Mamba and Falcon Mamba: every layer is a recurrence, without attention and without an MLP.

Source: "Mamba" (Gu and Dao, 2023), "Falcon Mamba" (TII, 2024).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.recurrent_fields import (
    recurrent_fields,
    recurrent_fields_from_gguf,
)
from hearthd.models.decoder.layers import DecoderModel
from hearthd.models.decoder.recurrent import mamba
from hearthd.models.decoder.tensor_names import GGUF_NAMES, TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.kv_cache import LayerCache, StateRows
    from hearthd.models.decoder.layers import RopeTable
    from hearthd.models.dsl.graph import Tensor

_FALCON = "falcon_mamba"
_FALCON_EPS = 1e-6  # of the published model, whose GGUF files do not say it


@dataclass(frozen=True, kw_only=True)
class Config(mamba.MambaConfig):
    """The shape of a model.

    state_eps  of the norms of time steps, keys and queries, as Falcon Mamba has; None: no norms
    """

    state_eps: float | None = None

    @override
    def rotates(self, _: int) -> bool:
        return False


class NormedMamba(mamba.Mamba):
    """Mamba; with `state_eps`, time steps, keys and queries are normalized."""

    config: Config

    @override
    def normed(self, steps: Tensor, key: Tensor, query: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if (eps := self.config.state_eps) is None:
            return steps, key, query
        return _normalized(steps, eps), _normalized(key, eps), _normalized(query, eps)


def _normalized(x: Tensor, eps: float) -> Tensor:
    """x (N, D) over the root of its mean square, by the kernel that Mamba-2's norm has."""
    ones = ops.full(shape=x.shape[1:], value=1.0, dtype=DType.F32)
    return f.grouped_rms_norm(x, ones, groups=1, eps=eps)


class MambaBlock(nn.Module):
    """One layer: h + mixer(norm(h))."""

    def __init__(self, config: Config) -> None:
        self.input_layernorm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.mixer = NormedMamba(config)

    def __call__(self, h: Tensor, rope: RopeTable | None, cache: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        return h + self.mixer(self.input_layernorm(h), rope, cache)


class MambaModel(DecoderModel):
    """Blocks with Mamba alone."""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config, [MambaBlock(config) for _ in range(config.layers)])

    @override
    def cache_width(self, _: int) -> int:
        return 0

    @override
    def states(self, _: int) -> tuple[StateRows, ...]:
        return self.config.states


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    is_falcon = data.text("model_type", default="mamba") == _FALCON
    data.assume(tie_word_embeddings=True)
    data.fixed(rms_norm=True, ssm_cfg={})
    # Older files repeat sizes under the names of the first implementation.
    data.ignore("d_inner", "d_model", "n_layer", "pad_vocab_size_multiple")
    fields = recurrent_fields(data)
    inner = data.size("expand", default=2) * fields["hidden"]
    return Config(
        **fields,
        ssm_inner=data.size("intermediate_size", default=inner),
        ssm_state=data.size("state_size", default=16),
        step_rank=data.size("time_step_rank", default=-(-fields["hidden"] // 16)),
        taps=data.size("conv_kernel", default=4),
        state_eps=data.number("mixer_rms_eps", default=_FALCON_EPS) if is_falcon else None,
    )


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata."""
    has_norms = data.flag("ssm.dt_b_c_rms", default=False)
    fields = recurrent_fields_from_gguf(data) | mamba.gguf_fields(data)
    return Config(**fields, state_eps=_FALCON_EPS if has_norms else None)


_GGUF, _FOLDER = mamba.tensor_names("mixer", "mixer")
ARCHITECTURE = Architecture(
    name="mamba",
    config=Config,
    model_types=("mamba", _FALCON),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=MambaModel,
    tensors=TensorNames(
        gguf={**GGUF_NAMES, **_GGUF},
        folder={
            **_FOLDER,
            "input_layernorm": "norm",
            "embed_tokens": "embeddings",
            "norm": "norm_f",
        },
        prefixes=("backbone.",),
        logarithms=("mixer.rates",),
        transposed_in_folder=("mixer.rates.weight",),
        transposed_in_gguf=("mixer.rates",),
    ),
)
