"""Write files of models with latent vectors as llama.cpp's converter does."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.models.dsl.functions.routing import SIGMOID
from tests.models.families.case_arguments import YARN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from hearthd.models.decoder.latent_attention import LatentConfig

    Array = NDArray[Any]

# As the converter names the tensors of an index.
_INDEX = {
    "indexer.weights_proj": "indexer.proj",
    "indexer.k_norm": "indexer.k_norm",
    "indexer.wk": "indexer.attn_k",
    "indexer.wq_b": "indexer.attn_q_b",
}


def deepseek2_keys(config: Any) -> dict[str, Any]:
    """The keys of DeepSeek-V2, V3 and GLM-4.7-Flash, without the architecture."""
    width = config.key_width + config.rotary_width
    factor = float(str(YARN["factor"]))
    growth = (math.sqrt(config.attention_scale * math.sqrt(width)) - 1) / math.log(factor)
    scaling = {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": factor,
        "rope.scaling.original_context_length": YARN["original_max_position_embeddings"],
        "rope.scaling.yarn_log_multiplier": growth,
    }
    rank = {} if config.query_rank is None else {"attention.q_lora_rank": config.query_rank}
    return {
        **rank,
        **(scaling if config.rope_divisors else {}),
        "attention.key_length_mla": width,
        "attention.kv_lora_rank": config.latent,
        "attention.value_length_mla": config.value_width,
        "expert_group_count": config.groups,
        "expert_group_used_count": config.groups_per_token,
        "expert_gating_func": 2 if config.scores == SIGMOID else 1,
        "expert_shared_count": config.shared_ffn // config.expert_ffn,
        "expert_weights_norm": config.normalized,
        "expert_weights_scale": config.factor,
        "rope.dimension_count": config.rotary_width,
    }


def indexed_keys(config: Any) -> dict[str, Any]:
    """The keys of DeepSeek-V3.2 and GLM-5, in tiny models."""
    return {
        **deepseek2_keys(config),
        "attention.indexer.head_count": 3,
        "attention.indexer.key_length": 64,
        "attention.indexer.top_k": config.max_context,
    }


def kimi_keys(config: Any) -> dict[str, Any]:
    """The keys of Kimi Linear."""
    return {
        **deepseek2_keys(config),
        "kda.head_dim": config.delta_width,
        "ssm.conv_kernel": config.taps,
    }


def kimi_linear(name: str, values: Array, config: LatentConfig) -> Iterator[tuple[str, Array]]:
    """A tensor of Kimi Linear."""
    for part, weight in (("gate", "w1"), ("up", "w3"), ("down", "w2")):
        name = name.replace(f"block_sparse_moe.{part}_proj", f"mlp.{part}_proj")
        name = name.replace(f"block_sparse_moe.experts.{weight}", f"mlp.experts.{part}_proj")
    name = name.replace("block_sparse_moe.gate.e_score_correction_bias", "exp_probs_b.bias")
    name = name.replace("dt_bias", "dt_proj.bias")
    if name.endswith("A_log"):
        values = -np.exp(values).reshape(1, 1, -1, 1)
    if "conv1d" in name:
        values = values.reshape(1, -1, 1, values.shape[-1])
    yield from latent(name, values, config)


def ling3_keys(config: Any) -> dict[str, Any]:
    """The keys of Ling 3."""
    limits = {
        "swiglu_clamp_exp": [limit or 0.0 for limit in config.expert_limits],
        "swiglu_clamp_shexp": [limit or 0.0 for limit in config.mlp_limits],
    }
    return {
        **kimi_keys(config),
        "kda.gate_lower_bound": -config.largest_fade,
        "kda.safe_gate": True,
        **(limits if config.expert_limits else {}),
    }


def ling3(name: str, values: Array, config: Any) -> Iterator[tuple[str, Array]]:
    """A tensor of Ling 3."""
    layer = re.match(r"model\.layers\.(\d+)\.", name)
    attends = layer is not None and config.attends[int(layer[1])]
    name = name.replace("word_embeddings", "embed_tokens").replace(".dense.", ".o_proj.")
    name = name.replace("mlp.gate.expert_bias", "exp_probs_b.bias")
    name = name.replace("dt_bias", "dt_proj.bias").replace(".f_proj.", ".f_a_proj.")
    if attends:
        name = name.replace("attention.g_proj", "attn_gate")
    name = name.replace(".attention.", ".self_attn.").replace(".g_proj.", ".g_a_proj.")
    if name.endswith("A_log"):
        values = np.exp(values).reshape(-1, 1)
    if "conv1d" in name:
        values = values.reshape(1, -1, 1, values.shape[-1])
    yield from latent(name, values, config)


def mistral4_keys(config: Any) -> dict[str, Any]:
    """The keys of Mistral 4."""
    context = config.original_context
    return {
        **deepseek2_keys(config),
        "attention.temperature_length": context,
        "attention.temperature_scale": config.query_growth,
        "rope.scaling.original_context_length": context,
    }


def minicpm3_keys(config: Any) -> dict[str, Any]:
    """The keys of MiniCPM3."""
    return {
        "attention.kv_lora_rank": config.latent,
        "attention.q_lora_rank": config.query_rank,
        "rope.dimension_count": config.rotary_width,
    }


def latent(name: str, values: Array, config: LatentConfig) -> Iterator[tuple[str, Array]]:
    """A tensor; keys and values get one each, with the keys' matrices transposed."""
    joined = "kv_b_proj.weight"
    name = (
        f"{name}.weight" if name.endswith(("experts.gate_up_proj", "experts.down_proj")) else name
    )
    name = name.replace("mlp.gate.e_score_correction_bias", "exp_probs_b.bias")
    for part, stored in _INDEX.items():
        name = re.sub(rf"^model\.layers\.(\d+)\.self_attn\.{part}", rf"blk.\1.{stored}", name)
    if joined not in name:
        yield name, values
        return
    heads = values.reshape(config.heads, -1, config.latent)
    keys, value_rows = np.split(heads, [config.key_width], axis=1)
    yield name.replace(joined, "k_b_proj.weight"), np.ascontiguousarray(keys.swapaxes(1, 2))
    yield name.replace(joined, "v_b_proj.weight"), np.ascontiguousarray(value_rows)
