"""Write tensors and keys of Mamba-2 as llama.cpp's converter does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hearthd.models.decoder.mamba_layers import MambaConfig

    Array = NDArray[Any]


# The parts of a layer's Mamba-2 in names of tensors.
MAMBA_PARTS = r"\.(mamba|mixer)\.(in_proj|conv1d|A_log|D|dt_bias|norm|out_proj)(\.|$)"


def mamba(name: str, values: Array, config: MambaConfig) -> tuple[str, Array]:
    """A tensor as the converter writes it."""
    part = re.split(r"mamba\.|mixer\.", name)[-1]
    if part == "conv1d.weight":
        values = values.squeeze(1)
    elif part == "A_log":
        values = -np.exp(values)[:, None]
    elif part == "D":
        values = values[:, None]
    elif part == "norm.weight":
        values = values.reshape(config.ssm_groups, -1)
    return name.replace("dt_bias", "dt_proj.bias"), values


def mamba_keys(config: MambaConfig) -> dict[str, Any]:
    """The keys of a file, without the architecture."""
    return {
        "ssm.conv_kernel": config.taps,
        "ssm.state_size": config.ssm_state,
        "ssm.group_count": config.ssm_groups,
        "ssm.inner_size": config.ssm_inner,
        "ssm.time_step_rank": config.ssm_heads,
    }
