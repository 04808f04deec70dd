"""The keys of GGUF files that an architecture has besides the common ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gguf

from benchmarks.synthetic_shapes import keys_of
from hearthd.models.decoder.experts import ExpertsConfig
from hearthd.models.dsl.functions.routing import CHOSEN
from tests.models.families.case_arguments import MINISTRAL_ROPE
from tests.models.families.gguf_gemma import (
    gemma2_keys,
    gemma3_keys,
    gemma3n_keys,
    gemma4_keys,
    gemma_embedding_keys,
    window_keys,
)
from tests.models.families.gguf_gpt_oss import gpt_oss_keys
from tests.models.families.gguf_latent import (
    deepseek2_keys,
    indexed_keys,
    kimi_keys,
    ling3_keys,
    minicpm3_keys,
    mistral4_keys,
)
from tests.models.families.gguf_mamba import (
    mamba2_keys,
    mamba_keys,
    nemotron_keys,
    nemotron_moe_keys,
)
from tests.models.families.gguf_rwkv import rwkv7_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def _granite(config: Any) -> dict[str, Any]:
    none = {"expert_count": 0, "expert_used_count": 0}
    return {
        **({} if isinstance(config, ExpertsConfig) else none),
        "embedding_scale": config.embedding_scale,
        "attention.scale": config.attention_scale,
        "residual_scale": config.residual_scale,
        "logit_scale": config.logit_scale,
    }


def _modern_bert(config: Any) -> dict[str, Any]:
    return {
        "attention.sliding_window": 2 * (min(window for window in config.windows if window) - 1),
        "attention.sliding_window_pattern": config.windows.index(None, 1),
        "classifier.pooling_type": int(gguf.PoolingType[config.head_pooling.upper()]),
        "hidden_activation": config.activation,
        "rope.freq_base": config.rope_base,
        "rope.freq_base_swa": config.local_rope_base,
        "rope.scaling.type": "none",
    }


def _without_sections(keys: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in keys.items() if key != "rope.dimension_sections"}


def _phi3(config: Any) -> dict[str, Any]:
    return {
        "rope.dimension_count": config.rotary_width,
        "rope.scaling.original_context_length": config.original_context,
        "rope.scaling.attn_factor": config.rope_magnitude,
        **({"attention.sliding_window": config.windows[0]} if config.windows else {}),
    }


def _glm4(config: Any) -> dict[str, Any]:
    if hasattr(config, "rotary_width"):  # GLM-4.1V's
        return {"rope.dimension_count": config.rotary_width, **_sections(config)}
    return {"rope.dimension_count": 2 * sum(divisor < 1e30 for divisor in config.rope_divisors)}


def _mistral3(config: Any) -> dict[str, Any]:
    if config.query_growth is None:
        return {}
    return {
        "attention.temperature_scale": config.query_growth,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": MINISTRAL_ROPE["factor"],
        "rope.scaling.original_context_length": config.original_context,
        "rope.scaling.yarn_log_multiplier": MINISTRAL_ROPE["mscale_all_dim"],
    }


def _rotary(config: Any) -> dict[str, Any]:
    return {"rope.freq_base": config.rope_base, "rope.scaling.factor": config.rope_factor}


def _nomic_moe(config: Any) -> dict[str, Any]:
    return {
        **_rotary(config),
        "expert_count": config.experts,
        "expert_used_count": config.experts_per_token,
        "moe_every_n_layers": config.routed.index(True, 2) - 1,  # the first one is layer 1
    }


def _corrected_experts(config: Any) -> dict[str, Any]:
    return {
        "expert_gating_func": 2,
        "expert_group_count": config.groups,
        "expert_group_used_count": config.groups_per_token,
        "expert_shared_count": config.shared_ffn // config.expert_ffn,
        "expert_weights_norm": config.normalized,
        "expert_weights_scale": config.factor,
    }


def _phi_moe(config: Any) -> dict[str, Any]:
    return {
        "rope.scaling.original_context_length": config.original_context,
        **({"attention.sliding_window": config.windows[0]} if config.windows else {}),
    }


def _shared_experts(config: Any) -> dict[str, Any]:
    return {
        "expert_shared_count": config.shared_ffn // config.expert_ffn,
        "expert_weights_norm": config.normalized,
        "expert_weights_scale": 1.0,
    }


def _sigmoids(config: Any) -> dict[str, Any]:
    return {
        "expert_gating_func": 2,
        "expert_weights_norm": config.normalized,
        "expert_weights_scale": config.factor,
    }


def _two_ropes(config: Any) -> dict[str, Any]:
    return {
        "rope.dimension_count": config.rotary_width,
        "rope.dimension_count_swa": config.local_rotary_width,
        "rope.freq_base_swa": config.local_rope_base,
    }


# Models without attention: their files have 0 heads.
WITHOUT_ATTENTION = ("mamba", "mamba2", "rwkv7")
# Those whose files have the matrix of keys and values that folders have.
KEEPS_JOINED = ("minicpm3", "plm")
# Those whose norms are LayerNorm, with an epsilon of this name.
LAYER_NORMS = (
    "bloom", "cohere2", "cohere2moe", "command-r", "dbrx", "falcon", "gpt2", "gptneox", "jais2",
    "mpt",
    "nemotron", "olmo", "orion", "phi2", "rwkv7", "stablelm", "starcoder", "starcoder2",
)  # fmt: skip
# Those whose keys say how positions are scaled, in place of a table.
SCALED = ("chatglm", "deepseek2", "glm4", "gpt-oss", "mistral3", "mistral4")
# Architectures whose files give the width of an expert under the key of an MLP's.
EXPERTS_OF_MLP_WIDTH = (
    "dbrx", "granite_swa", "granitehybrid", "granitemoe", "jamba", "llama", "olmoe", "phimoe",
)  # fmt: skip
# Architectures whose files say how many experts are shared, not the width of their MLP.
COUNTS_SHARED_EXPERTS = (
    "afmoe", "bailingmoe", "bailingmoe3", "deepseek", "deepseek2", "deepseek32", "dots1", "glm-dsa",
    "glm4moe", "kimi-linear", "mistral4",
)  # fmt: skip


def _sections(config: Any) -> dict[str, Any]:
    return {"rope.dimension_sections": [*getattr(config, "rope_sections", (2, 2, 2)), 0]}


def _deepstack(config: Any) -> dict[str, Any]:
    """The converter writes these also for the text model of a case that has a tower."""
    return {
        **_sections(config),
        "n_deepstack_layers": sum(getattr(config, "is_stacked", (True,))),
    }


# Keys that an architecture has besides the common ones.
EXTRA_KEYS: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "afmoe": lambda config: _corrected_experts(config) | window_keys(config),
    "bailingmoe": _shared_experts,
    "bailingmoe2": lambda config: (
        _corrected_experts(config) | {"rope.dimension_count": config.rotary_width}
    ),
    "bailingmoe3": ling3_keys,
    "chatglm": _glm4,
    "cohere2": lambda config: {"logit_scale": config.logit_scale} | window_keys(config),
    "cohere2moe": lambda config: {
        "logit_scale": config.logit_scale,
        "expert_gating_func": 1 if config.scores == CHOSEN else 2,
        "expert_shared_count": (config.shared_ffn or 0) // config.expert_ffn,
        "expert_weights_norm": config.normalized,
        **window_keys(config),
    },
    "command-r": lambda config: {"logit_scale": config.logit_scale},
    "dbrx": lambda config: {"attention.clamp_kqv": config.clip},
    "deci": lambda config: {"rope.dimension_count": config.head_dim},
    "deepseek": _shared_experts,
    "deepseek2": deepseek2_keys,
    "deepseek32": indexed_keys,
    "dots1": _corrected_experts,
    "exaone-moe": lambda config: _corrected_experts(config) | window_keys(config),
    "exaone4": window_keys,
    "falcon-h1": mamba2_keys,
    "gemma-embedding": gemma_embedding_keys,
    "gemma2": gemma2_keys,
    "gemma3": gemma3_keys,
    "gemma3n": gemma3n_keys,
    "gemma4": gemma4_keys,
    "glm-dsa": lambda config: (
        indexed_keys(config) | {"attention.indexer.types": [True, False, True]}
    ),
    "glm4": _glm4,
    "glm4moe": lambda config: (
        _corrected_experts(config)
        | {"rope.dimension_count": config.rotary_width}
        | (_sections(config) if hasattr(config, "rope_sections") else {})
    ),
    "gpt-oss": gpt_oss_keys,
    "gptneox": lambda config: {
        "rope.dimension_count": config.rotary_width,
        "use_parallel_residual": config.parallel,
    },
    "granite": _granite,
    "granite_swa": lambda config: {
        **_granite(config),
        **window_keys(config),
        "attention.rope_pattern": [base is not None for base in config.rope_bases],
    },
    "granitehybrid": lambda config: {
        **_granite(config),
        **mamba2_keys(config),
        "rope.scaling.finetuned": False,
    },
    "granitemoe": _granite,
    "hrm_text": lambda config: {
        "embedding_scale": config.embedding_scale,
        "hrm.h_cycles": config.slow_cycles,
        "hrm.l_cycles": config.fast_cycles,
        "hrm.layers_per_stack": config.stack_layers,
        "rope.dimension_count": config.head_dim,
    },
    "hy_v3": _sigmoids,
    "jamba": mamba_keys,
    "jina-bert-v3": _rotary,
    "kimi-linear": kimi_keys,
    "laguna": lambda config: {
        **_sigmoids(config),
        **_two_ropes(config),
        "attention.sliding_window": config.windows[1],
    },
    "lfm2": lambda config: {"shortconv.l_cache": config.taps},
    "lfm2moe": lambda config: {"shortconv.l_cache": config.taps, "expert_gating_func": 2},
    "llama4": lambda _: {"interleave_moe_layer_step": 1},
    "mamba": mamba_keys,
    "mamba2": mamba2_keys,
    "maple": lambda config: {
        **window_keys(config),
        "rope.dimension_count": config.rotary_width,
        "swiglu_clamp_exp": [config.gate_limit] * config.layers,
    },
    "mellum": window_keys,
    "minimax-m2": lambda config: {
        "expert_gating_func": 2,
        "rope.dimension_count": config.rotary_width,
    },
    "minicpm": lambda config: {
        "embedding_scale": config.embedding_scale,
        "residual_scale": config.residual_scale,
        "logit_scale": config.logit_scale,
    },
    "minicpm3": minicpm3_keys,
    "mistral3": _mistral3,
    "mistral4": mistral4_keys,
    "modern-bert": _modern_bert,
    "muse-glimmer": lambda config: {
        **window_keys(config),
        "final_logit_softcapping": config.logit_cap,
        "logit_scale": config.logit_factor,
    },
    "nanbeige": lambda config: {
        "num_loops": config.loops,
        "skip_loop_final_norm": not config.loop_norm,
    },
    "nomic-bert": _rotary,
    "nomic-bert-moe": _nomic_moe,
    "mpt": lambda config: {
        "attention.max_alibi_bias": config.largest_bias,
        **({"attention.clamp_kqv": config.clip} if config.clip else {}),
    },
    "nemotron": lambda config: {"rope.dimension_count": config.rotary_width},
    "nemotron_h": nemotron_keys,
    "nemotron_h_moe": nemotron_moe_keys,
    "olmo": lambda config: {"attention.clamp_kqv": config.clip} if config.clip else {},
    "olmo2": window_keys,
    "openelm": lambda config: {"rope.dimension_count": config.head_dim},
    "phi2": lambda config: {"rope.dimension_count": config.rotary_width},
    "phi3": _phi3,
    "phimoe": _phi_moe,
    "plm": lambda config: {
        "attention.kv_lora_rank": config.latent,
        "rope.dimension_count": config.rotary_width,
    },
    "paddleocr": _sections,
    "qwen2vl": _sections,
    "qwen3vl": _deepstack,
    "qwen3vlmoe": _deepstack,
    "qwen3next": lambda config: _without_sections(keys_of(config)),
    "qwen35": keys_of,
    "smallthinker": lambda config: {
        "expert_gating_func": 1 if config.scores == CHOSEN else 2,
        **({"attention.sliding_window": config.windows[1]} if config.windows else {}),
    },
    "mimo2": lambda config: {
        **_sigmoids(config),
        "attention.sliding_window": config.windows[1],
        "attention.sliding_window_pattern": [int(window is not None) for window in config.windows],
        "attention.value_scale": config.value_scale,
        "rope.dimension_count": config.rotary_width,
        "rope.freq_base_swa": config.local_rope_base,
    },
    "rwkv7": rwkv7_keys,
    "spark2_5": lambda config: _two_ropes(config) | window_keys(config),
    "step35": lambda config: {
        **_sigmoids(config),
        "attention.sliding_window": max(window or 0 for window in config.windows),
        "attention.sliding_window_pattern": [window is not None for window in config.windows],
        "rope.freq_base_swa": config.local_rope_base,
        "swiglu_clamp_exp": [limit or 0.0 for limit in config.expert_limits],
        "swiglu_clamp_shexp": [limit or 0.0 for limit in config.mlp_limits],
    },
    "stablelm": lambda config: {
        "rope.dimension_count": config.rotary_width,
        "use_parallel_residual": False,
    },
    "qwen35moe": keys_of,
}
