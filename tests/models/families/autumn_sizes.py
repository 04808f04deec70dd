"""A published size of families of autumn 2026, with few layers: see size_table.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.dsl.functions.routing import SIGMOID
from tests.models.families.size import Size, decoder
from tests.models.families.size_fields import CORRECTED

if TYPE_CHECKING:
    from collections.abc import Mapping

# Source: config.json of the repository that is named, or its defaults in transformers.
AUTUMN_SIZES: Mapping[str, Size] = {
    # deepseek-ai/deepseek-moe-16b-chat
    "deepseek-moe": decoder(
        2048, 10944, 16, 16, 128, 102400,
        rope_base=1e4, tied=False, experts=64, experts_per_token=6, expert_ffn=1408,
        shared_ffn=2816, routed=(False, True), normalized=False,
    ),
    # deepseek-ai/DeepSeek-V3.2-Exp, without its YaRN
    "deepseek3.2": decoder(
        7168, 18432, 128, 1, 576, 129280,
        rope_base=1e4, tied=False, query_rank=1536, latent=512, rotary_width=64, key_width=128,
        value_width=128, attention_scale=192**-0.5, turns_neighbors=True, experts=256,
        experts_per_token=8, expert_ffn=2048, shared_ffn=2048, groups=8, groups_per_token=4,
        factor=2.5, **CORRECTED,
    ),
    # zai-org/GLM-5
    "glm5": decoder(
        6144, 12288, 64, 1, 576, 154880,
        tied=False, query_rank=2048, latent=512, rotary_width=64, key_width=192, value_width=256,
        attention_scale=1 / 16, turns_neighbors=True, experts=256, experts_per_token=8,
        expert_ffn=2048, shared_ffn=2048, factor=2.5, **CORRECTED,
    ),
    # poolside/Laguna-XS.2
    "laguna": decoder(
        2048, 8192, 48, 8, 128, 100352,
        rope_base=5e5, tied=False, local_heads=64, rotary_width=64, local_rotary_width=128,
        local_rope_base=1e4, windows=(None, 512), experts=256, experts_per_token=8, expert_ffn=512,
        shared_ffn=512, factor=2.5, **CORRECTED,
    ),
    # databricks/dbrx-instruct
    "dbrx": decoder(
        6144, 10752, 48, 8, 128, 100352,
        rope_base=5e5, tied=False, clip=8.0, experts=16, experts_per_token=4, expert_ffn=10752,
        routed=(True, True), normalized=True,
    ),
    # XiaomiMiMo/MiMo-V2-Flash
    "mimo2": decoder(
        4096, 16384, 64, 4, 192, 152576,
        rope_base=5e6, tied=False, local_kv_heads=8, value_width=128, value_scale=0.707,
        rotary_width=64, local_rotary_width=64, local_rope_base=1e4, windows=(None, 129),
        experts=256, experts_per_token=8, expert_ffn=2048, **CORRECTED,
    ),
    # stepfun-ai/Step-3.5-Flash
    "step35": decoder(
        4096, 11264, 64, 8, 128, 128896,
        rope_base=5e6, tied=False, local_heads=96, rotary_width=64, local_rotary_width=128,
        local_rope_base=1e4, windows=(None, 512), experts=288, experts_per_token=8,
        expert_ffn=1280, shared_ffn=1280, factor=3.0, expert_limits=(7.0, 7.0),
        mlp_limits=(16.0, 16.0), **CORRECTED,
    ),
    # inclusionAI/Ling-lite
    "ling1": decoder(
        2048, 5632, 16, 4, 128, 126464,
        rope_base=6e5, tied=False, experts=64, experts_per_token=6, expert_ffn=1408,
        shared_ffn=2816, routed=(True, True), normalized=True,
    ),
    # inclusionAI/Ling-3.0-tiny
    "ling3": decoder(
        1536, 4608, 16, 1, 576, 157184,
        rope_base=6e6, tied=False, query_rank=256, latent=512, rotary_width=64, key_width=128,
        value_width=128, attention_scale=192**-0.5, turns_neighbors=True, attends=(False, True),
        delta_heads=16, delta_width=128, taps=4, experts=128, experts_per_token=8, expert_ffn=512,
        shared_ffn=512, groups=8, groups_per_token=4, factor=2.5, **CORRECTED,
    ),
    # Cohere's North, with the experts of Qwen3-30B-A3B
    "north": decoder(
        2048, 6144, 32, 4, 128, 256000,
        rope_base=5e4, logit_scale=0.25, windows=(None, 4096), experts=128, experts_per_token=8,
        expert_ffn=768, routed=(False, True), normalized=True, scores=SIGMOID,
    ),
    # microsoft/Phi-3.5-MoE-instruct
    "phi3.5-moe": decoder(
        4096, 6400, 32, 8, 128, 32064,
        rope_base=1e4, tied=False, attention_bias=True, output_bias=True, head_bias=True,
        noise=0.01, original_context=4096, long_divisors=(2.0,) * 64, rope_divisors=(1.0,) * 64,
        windows=(131072, 131072), experts=16, experts_per_token=2, expert_ffn=6400,
        routed=(True, True), normalized=False,
    ),
    # sapientinc/HRM-Text-1B, with a layer in each stack
    "hrm-text": decoder(
        1536, 4096, 12, 12, 128, 151808,
        layers=8, tied=False, stack_layers=1, slow_cycles=2, fast_cycles=3, embedding_scale=50.0,
    ),
    # tencent/Hy3-preview
    "hy3": decoder(
        4096, 13312, 64, 8, 128, 120832,
        tied=False, experts=192, experts_per_token=8, expert_ffn=1536, shared_ffn=1536,
        factor=2.826, **CORRECTED,
    ),
    # moonshotai/Kimi-Linear-48B-A3B-Instruct
    "kimi-linear": decoder(
        2304, 9216, 32, 1, 576, 163840,
        tied=False, query_rank=None, latent=512, rotary_width=64, key_width=128, value_width=128,
        attention_scale=192**-0.5, turns_neighbors=False, attends=(False, True), delta_heads=32,
        delta_width=128, taps=4, experts=256, experts_per_token=8, expert_ffn=1024,
        shared_ffn=1024, factor=2.446, **CORRECTED,
    ),
    # Maincode/Maincoder-1B
    "maincoder": decoder(1536, 4096, 16, 4, 96, 151936),
    # deepgrove/maple-preview
    "maple": decoder(
        2048, 4096, 16, 4, 128, 151936,
        rope_base=1e4, tied=False, rotary_width=64, windows=(512, None), experts=256,
        experts_per_token=8, expert_ffn=512, routed=(True, True), normalized=True,
    ),
    # mistralai/Mistral-Small-4-119B-2603, without its YaRN
    "mistral4": decoder(
        4096, 12288, 32, 1, 320, 131072,
        tied=False, query_rank=1024, latent=256, rotary_width=64, key_width=64, value_width=128,
        attention_scale=128**-0.5, turns_neighbors=True, experts=128, experts_per_token=4,
        expert_ffn=2048, shared_ffn=2048, routed=(True, True), normalized=True, query_growth=0.1,
        original_context=8192,
    ),
    # meta-models/Muse-Glimmer-30B
    "muse-glimmer": decoder(
        6656, 19968, 32, 2, 128, 202048,
        rope_base=5e5, tied=False, query_scale=3.87 * 128**-0.5, logit_factor=256**0.5 / 6656**0.5,
        logit_cap=20.0, windows=(2048, None),
    ),
    # Nanbeige/Nanbeige4.2-3B, by its parameters where its configuration is not known: the MLP
    "nanbeige4.2": decoder(
        3072, 10240, 48, 8, 128, 166144, rope_base=7e7, tied=False, loops=2, loop_norm=True
    ),
    # FreedomIntelligence/openPangu-Embedded-7B-V1.1
    "pangu-embedded": decoder(
        4096, 12800, 32, 8, 128, 153376,
        rope_base=1.6e7, tied=False, attention_bias=True, output_bias=True,
    ),
    # PLM-Team/PLM-1.8B-Instruct, by llama.cpp's source
    "plm": decoder(
        2048, 8192, 16, 1, 576, 151936,
        rope_base=1e5, query_rank=None, latent=512, rotary_width=64, key_width=128,
        value_width=128, attention_scale=192**-0.5, turns_neighbors=True,
    ),
    # PowerInfer/SmallThinker-21BA3B-Instruct
    "smallthinker": decoder(
        2560, 768, 28, 4, 128, 151936,
        rope_base=1.5e6, tied=False, experts=64, experts_per_token=6, expert_ffn=768,
        routed=(True, True), normalized=True, scores=SIGMOID, windows=(None, 4096),
        rotated=(False, True),
    ),
    # XHToken/Spark-X2.5-4B
    "spark2.5": decoder(
        2560, 10240, 16, 4, 256, 131072,
        rope_base=5e6, rotary_width=64, local_rotary_width=256, local_rope_base=1e4,
        windows=(512, None),
    ),
}  # fmt: skip
