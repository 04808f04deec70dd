"""A published size of families with experts, with few layers: see size_table.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.dsl.functions.routing import SIGMOID
from tests.models.families.size import Size, decoder
from tests.models.families.size_fields import CORRECTED

if TYPE_CHECKING:
    from collections.abc import Mapping

# Source: config.json of the repository that is named.
EXPERT_SIZES: Mapping[str, Size] = {
    # rednote-hilab/dots.llm1.inst
    "dots1": decoder(
        4096, 10944, 32, 32, 128, 152064,
        rope_base=1e7, tied=False, experts=128, experts_per_token=6, expert_ffn=1408,
        shared_ffn=2816, factor=2.5, **CORRECTED,
    ),
    # baidu/ERNIE-4.5-21B-A3B-PT
    "ernie4_5-moe": decoder(
        2560, 12288, 20, 4, 128, 103424,
        rope_base=5e5, experts=64, experts_per_token=6, expert_ffn=1536, shared_ffn=3072,
        routed=(False, True), choice_bias=True, normalized=True, min_sum=1e-12,
    ),
    # zai-org/GLM-4.5-Air
    "glm4.5": decoder(
        4096, 10944, 96, 8, 128, 151552,
        tied=False, attention_bias=True, rotary_width=64, normed_heads=False, experts=128,
        experts_per_token=8, expert_ffn=1408, shared_ffn=1408, **CORRECTED,
    ),
    # tencent/Hunyuan-A13B-Instruct
    "hunyuan-a13b": decoder(
        4096, 3072, 32, 8, 128, 128167,
        experts=64, experts_per_token=8, expert_ffn=3072, shared_ffn=3072, routed=(True, True),
        normalized=True,
    ),
    # LGAI-EXAONE/K-EXAONE-236B-A23B
    "k-exaone": decoder(
        6144, 18432, 64, 8, 128, 153600,
        tied=False, experts=128, experts_per_token=8, expert_ffn=2048, shared_ffn=2048, factor=2.5,
        windows=(128, None), **CORRECTED,
    ),
    # inclusionAI/Ling-mini-2.0
    "ling2": decoder(
        2048, 5120, 16, 4, 128, 157184,
        rope_base=6e5, tied=False, rotary_width=64, normed_heads=True, experts=256,
        experts_per_token=8, expert_ffn=512, shared_ffn=512, groups=8, groups_per_token=4,
        factor=2.5, **CORRECTED,
    ),
    # meta-llama/Llama-4-Scout-17B-16E-Instruct
    "llama4": decoder(
        5120, 16384, 40, 8, 128, 202048,
        rope_base=5e5, tied=False, experts=16, experts_per_token=1, expert_ffn=8192,
        shared_ffn=8192, routed=(True, True), normalized=False, scores=SIGMOID,
        rotated=(True, False), normed_heads=True, query_growth=0.1, original_context=8192,
    ),
    # JetBrains/Mellum2-12B-A2.5B-Base
    "mellum2": decoder(
        2304, 7168, 32, 4, 128, 98304,
        tied=False, experts=64, experts_per_token=8, expert_ffn=896, normalized=True,
        routed=(True, True), rope_base=5e5, local_rope_base=1e4, windows=(1024, None),
    ),
    # MiniMaxAI/MiniMax-M2
    "minimax-m2": decoder(
        3072, 1536, 48, 8, 128, 200064,
        rope_base=5e6, tied=False, rotary_width=64, experts=256, experts_per_token=8,
        expert_ffn=1536, routed=(True, True), scores=SIGMOID, choice_bias=True, normalized=True,
    ),
    # mistralai/Mixtral-8x7B-Instruct-v0.1
    "mixtral": decoder(
        4096, 14336, 32, 8, 128, 32000,
        tied=False, experts=8, experts_per_token=2, expert_ffn=14336, normalized=True,
        routed=(True, True),
    ),
    # allenai/OLMoE-1B-7B-0924
    "olmoe": decoder(
        2048, 1024, 16, 16, 128, 50304,
        tied=False, rope_base=1e4, experts=64, experts_per_token=8, expert_ffn=1024,
        routed=(True, True), normalized=False,
    ),
    # Qwen/Qwen1.5-MoE-A2.7B
    "qwen2-moe": decoder(
        2048, 5632, 16, 16, 128, 151936,
        tied=False, attention_bias=True, experts=60, experts_per_token=4, expert_ffn=1408,
        shared_ffn=5632, shared_gate=True, normalized=False, routed=(True, True),
    ),
    # Qwen/Qwen3-30B-A3B
    "qwen3-moe": decoder(
        2048, 6144, 32, 4, 128, 151936,
        tied=False, experts=128, experts_per_token=8, expert_ffn=768, normalized=True,
        routed=(True, True),
    ),
    # arcee-ai/Trinity-Mini
    "trinity": decoder(
        2048, 6144, 32, 4, 128, 200192,
        rope_base=1e4, tied=False, windows=(2048, None), experts=128, experts_per_token=8,
        expert_ffn=1024, shared_ffn=1024, factor=2.826, **CORRECTED,
    ),
}  # fmt: skip
