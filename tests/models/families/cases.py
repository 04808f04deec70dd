"""Tiny models of every family, by the arguments of their configurations in transformers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from tests.models.families.case_arguments import (
    AS_MINICPM,
    DEFAULT,
    EXAONE,
    EXPERTS,
    GPT_OSS,
    GPT_OSS_PLAIN,
    IGNORED_TOWER,
    LATENT_MINICPM,
    LINEAR,
    LLAMA3,
    LONGROPE,
    MINICPM,
    MINISTRAL_ROPE,
    MROPE,
    MULTIPLIERS,
    OTHER_LLAMAS,
    YARN,
)  # fmt: skip
from tests.models.families.expert_cases import EXPERT_CASES
from tests.models.families.gemma_cases import GEMMA_CASES
from tests.models.families.image_cases import IMAGE_CASES, TRANSPOSED
from tests.models.families.layer_norm_cases import LAYER_NORM_CASES, published_keys
from tests.models.families.older_cases import OLDER_CASES
from tests.models.families.recurrent_cases import RECURRENT_CASES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model.

    name          of the case
    architecture  a name of ARCHITECTURES
    config        the configuration's class in transformers
    arguments     its arguments, besides `SMALL`; with `tower`, its text model's
    tower         the other arguments of a model that also reads images
    published     keys of config.json that published files have, and transformers does not save; a
                  key that is None is one of transformers alone
    transposed    ends of the names of tensors that published files have transposed: transformers
                  reads both, by their shapes
    """

    name: str
    architecture: str
    config: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    tower: Mapping[str, Any] = field(default_factory=dict)
    published: Mapping[str, Any] = field(default_factory=dict)
    transposed: tuple[str, ...] = ()


def random_tensors(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, NDArray[np.float32]]:
    """Tensors by name, with values that depend on the name and the shape alone."""
    tensors = {}
    for name, shape in shapes.items():
        rng = np.random.default_rng(crc32(name.encode()))
        # DBRX's attention is in a module of this name.
        if "norm" in name.lower().replace("norm_attn_norm.attn.", ""):
            values = rng.uniform(0.5, 1.5, size=shape)
        elif name.endswith(("put_min", "put_max")):  # bounds that a few values exceed
            values = rng.uniform(1, 2, size=shape) * (1 if name.endswith("max") else -1)
        else:
            values = rng.normal(size=shape) * (0.5 if len(shape) < 2 else 1.5 * shape[-1] ** -0.5)
        tensors[name] = np.asarray(values, np.float32)
    return tensors


# No two extents agree, and the vocabulary is a multiple of nothing.
SMALL: Mapping[str, Any] = {
    "vocab_size": 97, "hidden_size": 48, "intermediate_size": 56, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12,
    "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip


def _rope(base: float) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": base}}


def _cases(architecture: str, config: str, **arguments: Mapping[str, Any]) -> list[Case]:
    return _row(architecture, config, arguments, {})


def _row(
    architecture: str,
    config: str,
    arguments: Mapping[str, Mapping[str, Any]],
    published: Mapping[str, Any] = MappingProxyType({}),
    tower: Mapping[str, Any] = MappingProxyType({}),
) -> list[Case]:
    kind: Any = {"architecture": architecture, "config": config, "tower": tower}
    return [
        Case(name=name, arguments=changes, published=published, **kind)
        for name, changes in arguments.items()
    ]


TOKENS: tuple[int, ...] = tuple(np.random.default_rng(3).integers(0, 96, 300).tolist())

CASES: Mapping[str, Case] = {
    f"{case.architecture}-{case.name}": case
    for case in (
        *_cases(
            "llama",
            "LlamaConfig",
            llama={},
            tied={"tie_word_embeddings": True, "vocab_size": 101},
            one_group={"num_key_value_heads": 1},
            all_groups={"num_key_value_heads": 4, "head_dim": 10},
            biases={"attention_bias": True, "mlp_bias": True},
            llama3={"rope_parameters": LLAMA3, "tie_word_embeddings": True},
            yarn={"rope_parameters": YARN},
            linear={"rope_parameters": LINEAR},
            dynamic={"rope_parameters": LINEAR | {"rope_type": "dynamic"}},
            falcon3={"head_dim": 20, **_rope(1000042.0)},
            minicpm5={"head_dim": 16, "rms_norm_eps": 1e-6, **_rope(5e6)},
        ),
        *_cases(
            "llama",
            "MistralConfig",
            mistral={"sliding_window": None, **_rope(1e6)},
            mistral_window={"sliding_window": 40},
        ),
        *_cases(
            "qwen2",
            "Qwen2Config",
            qwen2={"tie_word_embeddings": True, **_rope(1e6)},
            window={"use_sliding_window": True, "sliding_window": 33, "max_window_layers": 1},
            yarn={"rope_parameters": YARN | {"rope_theta": 1e6}},
        ),
        *_cases(
            "qwen3",
            "Qwen3Config",
            qwen3={"tie_word_embeddings": True, **_rope(1e6)},
            bias={"attention_bias": True, "num_key_value_heads": 1},
            window={"use_sliding_window": True, "sliding_window": 50, "max_window_layers": 2},
        ),
        *(
            replace(case, tower=IGNORED_TOWER)
            for case in (
                *_cases(
                    "qwen2vl",
                    "Qwen2_5_VLConfig",
                    qwen2vl={"rope_parameters": MROPE | {"mrope_section": [2, 2, 2]}},
                ),
                *_cases(
                    "qwen3vl",
                    "Qwen3VLConfig",
                    qwen3vl={"rope_parameters": MROPE | {"mrope_interleaved": True}},
                ),
                replace(
                    _cases(
                        "qwen3vlmoe",
                        "Qwen3VLMoeConfig",
                        qwen3vlmoe={
                            **EXPERTS, "rope_parameters": MROPE | {"mrope_interleaved": True},
                            "tie_word_embeddings": False,
                        },
                    )[0],
                    transposed=TRANSPOSED["Qwen3VLMoeConfig"],
                ),
            )
        ),
        *_cases(
            "arcee", "ArceeConfig",
            arcee={"rope_parameters": YARN},
            biases={"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
        ),
        *(
            case
            for row in LAYER_NORM_CASES
            for case in _row(*row, published_keys(row[0]))
        ),
        *(
            replace(case, published=EXAONE)
            for case in _cases(
                "exaone", "ExaoneConfig", exaone={"rope_parameters": LLAMA3}, plain=_rope(1e6)
            )
        ),
        *_cases("seed_oss", "SeedOssConfig", seed_oss={}, plain={"attention_bias": False}),
        *(case for row in EXPERT_CASES for case in _row(*row)),
        *_cases(
            "minicpm3",
            "MiniCPM3Config",
            minicpm3={**LATENT_MINICPM, "tie_word_embeddings": True},
            plain={**LATENT_MINICPM, "q_lora_rank": None, "scale_emb": 1, "dim_model_base": 24},
        ),
        *(
            replace(case, published=MINICPM)
            for case in _cases("minicpm", "GraniteConfig", minicpm=AS_MINICPM)
        ),
        *_cases(
            "lfm2moe",
            "Lfm2MoeConfig",
            lfm2moe={
                **EXPERTS, "layer_types": ["conv", "full_attention", "conv", "full_attention"],
                "num_hidden_layers": 4, "norm_eps": 1e-5, "num_dense_layers": 2,
            },
            plain={
                **EXPERTS, "layer_types": ["conv", "full_attention", "conv"],
                "norm_eps": 1e-5, "num_dense_layers": 0, "use_expert_bias": False,
                "norm_topk_prob": False, "routed_scaling_factor": 2.5,
            },
        ),
        *_cases(
            "granitemoe",
            "GraniteMoeConfig",
            granite3={
                **MULTIPLIERS, "num_local_experts": 5, "num_experts_per_tok": 2,
                "tie_word_embeddings": True,
            },
        ),
        *_cases(
            "granitemoe",
            "GraniteMoeHybridConfig",
            granite4={
                **MULTIPLIERS, "num_local_experts": 5, "num_experts_per_tok": 2,
                "shared_intermediate_size": 40, "layer_types": ["full_attention"] * 3,
                "position_embedding_type": "rope", "mamba_n_heads": 8,
            },
        ),
        *(case for row in (*RECURRENT_CASES, *OLDER_CASES) for case in _row(*row)),
        *_cases(
            "gpt-oss", "GptOssConfig", yarn=GPT_OSS, plain={**GPT_OSS_PLAIN, **_rope(1e4)}
        ),
        *_cases(
            "smollm3",
            "SmolLM3Config",
            smollm3={"num_hidden_layers": 5},
            window={
                "no_rope_layer_interval": 2, "use_sliding_window": True, "sliding_window": 45,
                "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                "tie_word_embeddings": False, "attention_bias": True, "mlp_bias": True,
            },
        ),
        *_cases(
            "granite",
            "GraniteConfig",
            granite={
                "embedding_multiplier": 12.0, "attention_multiplier": 0.2,
                "residual_multiplier": 0.22, "logits_scaling": 4.0, "tie_word_embeddings": True,
                "vocab_size": 99,
            },
            bias={"attention_bias": True, "mlp_bias": True, "rope_parameters": YARN},
        ),
        *_cases(
            "granite",
            "GraniteMoeHybridConfig",
            granite4={
                "embedding_multiplier": 12.0, "attention_multiplier": 0.2,
                "residual_multiplier": 0.22, "logits_scaling": 10.0, "tie_word_embeddings": True,
                "num_local_experts": 0, "num_experts_per_tok": 0, "shared_intermediate_size": 40,
                "layer_types": ["full_attention"] * 3, "position_embedding_type": "rope",
                "mamba_n_heads": 8,
            },
        ),
        *_cases(
            "phi3",
            "Phi3Config",
            phi3={"original_max_position_embeddings": 512},
            window={"sliding_window": 47, "num_key_value_heads": 1},
            partial={
                "tie_word_embeddings": True, "original_max_position_embeddings": 512,
                "head_dim": 16, "hidden_size": 64,
                "rope_parameters": {
                    "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.75,
                },
            },
            short={
                "original_max_position_embeddings": 400, "max_position_embeddings": 800,
                "rope_parameters": LONGROPE,
            },
            long={
                "original_max_position_embeddings": 64, "max_position_embeddings": 512,
                "rope_parameters": LONGROPE,
            },
        ),
        *_cases(
            "lfm2",
            "Lfm2Config",
            lfm2={
                "layer_types": ["conv", "full_attention", "conv", "conv"], "num_hidden_layers": 4,
                "block_multiple_of": 8, "norm_eps": 1e-5,
            },
            taps={"full_attn_idxs": [1], "conv_L_cache": 5, "block_auto_adjust_ff_dim": False},
        ),
        *_cases(
            "bitnet",
            "BitNetConfig",
            bitnet={"hidden_act": "relu2", "tie_word_embeddings": True},
            untied={"hidden_act": "relu2", "num_key_value_heads": 1, **_rope(1e4)},
        ),
        *_cases(
            "glm4",
            "Glm4Config",
            glm4={"head_dim": 16},
            share={
                "tie_word_embeddings": True, "attention_bias": False,
                "rope_parameters": DEFAULT | {"partial_rotary_factor": 2 / 3},
            },
        ),
        *_cases("chatglm", "GlmConfig", glm=_rope(1e4)),
        *_cases(
            "ernie4_5", "Ernie4_5Config", ernie4_5={}, biases={"use_bias": True, **_rope(1e4)}
        ),
        *_cases(
            "hunyuan-dense",
            "HunYuanDenseV1Config",
            hunyuan={"tie_word_embeddings": True},
            alpha={
                "attention_bias": True,
                "rope_parameters": {
                    "rope_type": "dynamic", "rope_theta": 1e4, "alpha": 50.0, "factor": 1.0,
                },
            },
        ),
        *_cases(
            "mistral3",
            "Ministral3Config",
            mistral3={"rope_parameters": MINISTRAL_ROPE, "tie_word_embeddings": True},
            window={"rope_parameters": MINISTRAL_ROPE | {"factor": 2.0}, "sliding_window": 70},
        ),
        *(
            replace(case, published={"model_type": case.architecture})
            for row in OTHER_LLAMAS
            for case in _cases(row, "LlamaConfig", **OTHER_LLAMAS[row])
        ),
        *_cases("olmo2", "Olmo2Config", olmo2={}, linear={"rope_parameters": LINEAR}),
        *_cases(
            "olmo2",
            "Olmo3Config",
            olmo3={
                "num_hidden_layers": 5, "sliding_window": 40,
                "rope_parameters": {"full_attention": LINEAR, "sliding_attention": DEFAULT},
            },
            olmo3_yarn={
                "layer_types": ["sliding_attention", "full_attention", "full_attention"],
                "rope_parameters": {
                    "full_attention": YARN | {"attention_factor": 1.2},
                    "sliding_attention": DEFAULT | {"rope_theta": 3000.0},
                },
                "sliding_window": 60, "attention_bias": True,
            },
        ),
        *_cases(
            "exaone4",
            "Exaone4Config",
            exaone4={"num_hidden_layers": 5, "sliding_window": 45},
            full={
                "sliding_window": None, "tie_word_embeddings": True, "rope_parameters": LLAMA3,
                "layer_types": ["full_attention"] * 3,
            },
        ),
        *_cases(
            "apertus",
            "ApertusConfig",
            apertus={"rope_parameters": LLAMA3},
            bias={"attention_bias": True, "tie_word_embeddings": True, **_rope(1e5)},
        ),
        *(case for row in GEMMA_CASES for case in _cases(*row[:2], **row[2])),
        *(
            replace(case, tower=tower, transposed=TRANSPOSED.get(config, ()))
            for architecture, config, tower, named in IMAGE_CASES
            for case in _cases(architecture, config, **named)
        ),
        *_cases(
            "gemma3",
            "Gemma3TextConfig",
            gemma3={"sliding_window": 48, "query_pre_attn_scalar": 12, "num_hidden_layers": 7},
            scaled={
                "sliding_window": 30, "num_hidden_layers": 4, "sliding_window_pattern": 2,
                "query_pre_attn_scalar": 20,
                "rope_parameters": {
                    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                },
            },
        ),
    )
}  # fmt: skip
