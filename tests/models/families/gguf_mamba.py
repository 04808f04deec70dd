"""Write tensors and keys of Mamba and Mamba-2 as llama.cpp's converter does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from hearthd.models.decoder.recurrent.mamba import MambaConfig
    from hearthd.models.decoder.recurrent.mamba2 import Mamba2Config
    from hearthd.models.families.falcon_h1 import Config as FalconConfig
    from hearthd.models.families.nemotron_h import Config as NemotronConfig
    from hearthd.models.families.nemotron_h_moe import Config as NemotronMoeConfig

    Array = NDArray[Any]


# The parts of a layer's Mamba-2 in names of tensors.
MAMBA2_PARTS = r"\.(mamba|mixer)\.(in_proj|conv1d|A_log|D|dt_bias|norm|out_proj)(\.|$)"


def mamba(name: str, values: Array) -> Iterator[tuple[str, Array]]:
    """A tensor of Mamba or Jamba as the converter writes it."""
    name = name.replace("feed_forward.experts.", "mlp.experts.")
    if name.endswith("conv1d.weight"):
        values = values.squeeze(1)
    elif name.endswith("A_log"):
        values = -np.exp(values)
    yield name, values


def mamba2(name: str, values: Array, config: Mamba2Config) -> tuple[str, Array]:
    """A tensor of Mamba-2 as the converter writes it."""
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


def falcon_scales(name: str, config: FalconConfig) -> Array:
    """The multipliers that the converter puts into a tensor of Falcon-H1: (1,), or by row."""
    module = name.split(".")[-2]
    if module == "in_proj":
        inner, keys = config.ssm_inner, config.ssm_groups * config.ssm_state
        widths = (inner, inner, keys, keys, config.ssm_heads)
        by_row = np.repeat(np.array(config.ssm_input_scales, np.float32), widths)[:, None]
        return by_row * np.float32(config.ssm_scales[0])
    enters, leaves = config.attention_scales
    scales = {
        "q_proj": enters, "k_proj": enters * config.key_scale, "v_proj": enters, "o_proj": leaves,
        "gate_proj": config.mlp_scales[0], "down_proj": config.mlp_scales[1],
        "out_proj": config.ssm_scales[1], "embed_tokens": config.embedding_scale,
        "lm_head": config.logit_scale,
    }  # fmt: skip
    return np.array([scales.get(module, 1.0)], np.float32)


def mamba2_keys(config: Mamba2Config) -> dict[str, Any]:
    """The keys of Mamba-2, without the architecture."""
    return {
        "ssm.conv_kernel": config.taps,
        "ssm.state_size": config.ssm_state,
        "ssm.group_count": config.ssm_groups,
        "ssm.inner_size": config.ssm_inner,
        "ssm.time_step_rank": config.ssm_heads,
    }


def mamba_keys(config: MambaConfig) -> dict[str, Any]:
    """The keys of Mamba, without the architecture."""
    norms = {"ssm.dt_b_c_rms": config.state_eps is not None} if hasattr(config, "state_eps") else {}
    return {
        "ssm.conv_kernel": config.taps,
        "ssm.state_size": config.ssm_state,
        "ssm.inner_size": config.ssm_inner,
        "ssm.time_step_rank": config.step_rank,
        **norms,
    }


def nemotron_keys(config: NemotronConfig) -> dict[str, Any]:
    """The keys of Nemotron-H."""
    return {**mamba2_keys(config), "attention.layer_norm_epsilon": config.norm_eps}


def nemotron_moe_keys(config: NemotronMoeConfig) -> dict[str, Any]:
    """The keys of Nemotron-H with experts."""
    latent = {} if config.latent is None else {"moe_latent_size": config.latent}
    return {
        **nemotron_keys(config),
        "expert_group_count": 1,
        "expert_shared_count": 1,
        "expert_weights_norm": config.normalized,
        "expert_weights_scale": config.factor,
        **latent,
    }
