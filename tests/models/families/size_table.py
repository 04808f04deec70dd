"""A published size of each family, with few layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.dsl.functions.routing import CHOSEN, SIGMOID
from tests.models.families.autumn_sizes import AUTUMN_SIZES
from tests.models.families.encoder_sizes import ENCODER_SIZES
from tests.models.families.expert_sizes import EXPERT_SIZES
from tests.models.families.image_model_sizes import IMAGE_MODEL_SIZES
from tests.models.families.layer_norm_sizes import LAYER_NORM_SIZES
from tests.models.families.size import Size, decoder
from tests.models.families.size_fields import (
    GEMMA4,
    GEMMA4_IMAGES,
    GEMMA4_MOE,
    GEMMA4_TOWER,
    GEMMA4_UNIFIED,
    GRANITE_EXPERTS,
    GRID_TOWER,
    INTERN_TOWER,
    QWEN35,
    QWEN35_MOE,
)
from tests.models.families.sound_sizes import SOUND_SIZES

if TYPE_CHECKING:
    from collections.abc import Mapping

# Source: config.json of the repository that is named.
SIZES: Mapping[str, Size] = {
    **AUTUMN_SIZES,
    **ENCODER_SIZES,
    **EXPERT_SIZES,
    **IMAGE_MODEL_SIZES,
    **LAYER_NORM_SIZES,
    **SOUND_SIZES,
    # tiiuae/Falcon3-1B-Instruct
    "falcon3": decoder(2048, 8192, 8, 4, 256, 131072, rope_base=1000042.0, tied=False),
    # openbmb/MiniCPM5-1B
    "minicpm5": decoder(
        1536, 4608, 16, 2, 128, 130560, rope_base=5e6, norm_eps=1e-6, tied=False
    ),
    # swiss-ai/Apertus-8B-Instruct-2509
    "apertus": decoder(
        4096, 21504, 32, 8, 128, 131072,
        tied=False, rope_base=1.2e7, rope_divisors=(1.0,) * 32 + (8.0,) * 32,
    ),
    # arcee-ai/AFM-4.5B
    "arcee": decoder(2560, 18432, 20, 4, 128, 128004, tied=False),
    # baichuan-inc/Baichuan-7B
    "baichuan": decoder(4096, 11008, 32, 32, 128, 64000, rope_base=1e4, tied=False),
    # microsoft/bitnet-b1.58-2B-4T
    "bitnet": decoder(2560, 6912, 20, 5, 128, 128256, rope_base=5e5),
    # baidu/ERNIE-4.5-0.3B-PT
    "ernie4_5": decoder(1024, 3072, 16, 2, 128, 103424),
    # LGAI-EXAONE/EXAONE-3.5-2.4B-Instruct
    "exaone3.5": decoder(2560, 7168, 32, 8, 80, 102400, rope_divisors=(1.0,) * 20 + (8.0,) * 20),
    # LGAI-EXAONE/EXAONE-4.0-1.2B
    "exaone4": decoder(2048, 4096, 32, 8, 64, 102400, rope_divisors=(1.0,) * 16 + (32.0,) * 16),
    # tiiuae/Falcon-H1-0.5B-Base
    "falcon-h1": decoder(
        1024, 2048, 8, 2, 64, 32784,
        tied=False, ssm_heads=24, ssm_width=64, ssm_groups=1, ssm_state=128, taps=4,
        embedding_scale=5.6569, logit_scale=0.0390625, key_scale=0.390625,
        attention_scales=(1.0, 0.9375), ssm_scales=(1.25, 0.2357), mlp_scales=(0.8839, 0.5859),
        ssm_input_scales=(0.3536, 0.25, 0.3536, 0.5, 0.3536),
    ),
    # google/gemma-2b
    "gemma": decoder(2048, 16384, 8, 1, 256, 256000),
    # google/gemma-2-2b
    "gemma2": decoder(
        2304, 9216, 8, 4, 256, 256000,
        query_scale=256**-0.5, attention_cap=50.0, logit_cap=30.0, windows=(4096, None),
    ),
    # google/gemma-3-270m
    "gemma3": decoder(
        640, 2048, 4, 1, 256, 262144, query_scale=256**-0.5, windows=(512, None)
    ),
    # google/gemma-3-4b-it, with two layers of its tower
    "gemma3-images": decoder(
        2560, 10240, 8, 4, 256, 262208,
        query_scale=256**-0.5, windows=(1024, None), image_size=896, patch_size=14,
        pooled_patches=4, tower_layers=2, tower_hidden=1152, tower_ffn=4304, tower_heads=16,
        tower_norm_eps=1e-6,
    ),
    # google/gemma-3n-E2B-it; the third layer shares the keys and values of the first one
    "gemma3n": decoder(
        2048, 8192, 8, 2, 256, 262400,
        layers=3, windows=(512, None, 512), local_head_dim=256, local_rope_base=1e4,
        layer_embedding=256, caching_layers=2, ffns=(8192,) * 3, logit_cap=30.0, streams=4,
        laurel_rank=64, layer_vocab=262144, deviations=(1.6448536, 1.6448536, None),
    ),
    # google/gemma-4-E2B; the third layer shares the keys and values of the first one
    "gemma4": decoder(1536, 6144, 8, 1, 512, 262144, **GEMMA4),
    "gemma4-images": decoder(1536, 6144, 8, 1, 512, 262144, **GEMMA4_IMAGES),
    "gemma4-sound": decoder(
        1536, 6144, 8, 1, 512, 262144, **GEMMA4_IMAGES, sound_mels=128, sound_channels=(128, 32),
        sound_layers=2, sound_hidden=1024, sound_heads=8, sound_context=12, sound_kernel=5,
        sound_cap=50.0, sound_residual=0.5, sound_norm_eps=1e-6, sound_clips=True, sound_width=1536,
    ),
    # google/gemma-4-12B
    "gemma4-unified": decoder(3840, 15360, 16, 1, 512, 262144, **GEMMA4_UNIFIED),
    # google/gemma-4-26B-A4B
    "gemma4-moe": decoder(2816, 2112, 16, 2, 512, 262144, **GEMMA4_MOE),
    # the same, with two layers of its tower
    "gemma4-moe-images": decoder(
        2816, 2112, 16, 2, 512, 262144,
        **GEMMA4_MOE, **GEMMA4_TOWER, tower_hidden=1152, tower_ffn=4304, tower_heads=16,
        tower_head_dim=72, tower_clips=False, tower_standardizes=True, image_blocks=True,
    ),
    # openai/gpt-oss-20b, without its YaRN
    "gpt-oss": decoder(
        2880, 2880, 64, 8, 64, 201088,
        rope_base=1.5e5, tied=False, windows=(128, None), attention_bias=True, output_bias=True,
        experts=32, experts_per_token=4, expert_ffn=2880, routed=(True, True), scores=CHOSEN,
        normalized=True, expert_bias=True,
    ),
    # zai-org/glm-4-9b-chat-hf
    "chatglm": decoder(
        4096, 13696, 32, 2, 128, 151552,
        tied=False, attention_bias=True, rope_divisors=(1.0,) * 32 + (1e30,) * 32,
    ),
    # THUDM/GLM-4-9B-0414
    "glm4": decoder(
        4096, 13696, 32, 2, 128, 151552,
        tied=False, attention_bias=True, rope_divisors=(1.0,) * 32 + (1e30,) * 32,
    ),
    # zai-org/GLM-4.7-Flash
    "glm4.7-flash": decoder(
        2048, 10240, 20, 1, 576, 154880,
        tied=False, query_rank=768, latent=512, rotary_width=64, key_width=192, value_width=256,
        attention_scale=1 / 16, turns_neighbors=True, experts=64, experts_per_token=4,
        expert_ffn=1536, routed=(False, True), scores=SIGMOID, choice_bias=True, normalized=True,
        sum_offset=1e-20, factor=1.8, shared_ffn=1536,
    ),
    # deepseek-ai/DeepSeek-V2-Lite-Chat
    "deepseek2": decoder(
        2048, 10944, 16, 1, 576, 102400,
        tied=False, query_rank=None, latent=512, rotary_width=64, key_width=128, value_width=128,
        attention_scale=0.1147, turns_neighbors=True, experts=64, experts_per_token=6,
        expert_ffn=1408, routed=(False, True), normalized=False, shared_ffn=2816,
    ),
    # ibm-granite/granite-3.3-2b-base
    "granite3": decoder(
        2048, 8192, 32, 8, 64, 49159,
        embedding_scale=12.0, attention_scale=0.015625, residual_scale=0.22, logit_scale=8.0,
    ),
    # ibm-granite/granite-4.0-micro
    "granite4": decoder(
        2560, 8192, 40, 8, 64, 100352,
        embedding_scale=12.0, attention_scale=0.015625, residual_scale=0.22, logit_scale=10.0,
    ),
    # ibm-granite/granite-4.0-h-350m
    "granite4-h": decoder(
        768, 2048, 12, 4, 64, 100352,
        embedding_scale=12.0, attention_scale=0.015625, residual_scale=0.246, logit_scale=3.0,
        attends=(False, True), ssm_heads=48, ssm_width=32, ssm_groups=1, ssm_state=128, taps=4,
    ),
    # ibm-granite/granite-4.0-h-tiny
    "granite4-h-moe": decoder(
        1536, 512, 12, 4, 128, 100352,
        embedding_scale=12.0, attention_scale=0.0078125, residual_scale=0.22, logit_scale=6.0,
        attends=(False, True), ssm_heads=48, ssm_width=64, ssm_groups=1, ssm_state=128, taps=4,
        experts=64, experts_per_token=6, expert_ffn=512, routed=(True, True), normalized=True,
        scores=CHOSEN, shared_ffn=1024,
    ),
    # ibm-granite/granite-swash-2b, the defaults of GraniteSWAConfig in transformers
    "granite-swash": decoder(
        2560, 8192, 20, 4, 128, 100352,
        embedding_scale=1.0, attention_scale=128**-0.5, residual_scale=1.0, logit_scale=1.0,
        windows=(None, 128), rope_bases=(1e4, 1e4),
    ),
    # the same with experts of granite-3.1-3b-a800m
    "granite-swash-moe": decoder(
        1536, 512, 24, 8, 64, 100352,
        embedding_scale=12.0, attention_scale=0.015625, residual_scale=0.22, logit_scale=6.0,
        windows=(None, 128), rope_bases=(1e4, 1e4), **GRANITE_EXPERTS,
    ),
    # ibm-granite/granite-3.1-1b-a400m-instruct
    "granite-moe": decoder(
        1024, 512, 16, 8, 64, 49155,
        embedding_scale=12.0, attention_scale=0.015625, residual_scale=0.22, logit_scale=6.0,
        **GRANITE_EXPERTS,
    ),
    # tencent/Hunyuan-0.5B-Instruct
    "hunyuan": decoder(1024, 3584, 8, 4, 128, 120818),
    # LiquidAI/LFM2-350M
    "lfm2": decoder(
        1024, 4608, 16, 8, 64, 65536, taps=3, attends=(False, True), windows=(3, None)
    ),
    # LiquidAI/LFM3-1.7B
    "lfm3": decoder(
        2048, 7680, 16, 4, 128, 128000,
        layers=3, taps=7, attends=(False, True, True), windows=(7, 256, None), rope_base=1e6,
        rope_divisors=(1.0,) * 32 + (1e30,) * 32, local_rope_base=1e4,
    ),
    # LiquidAI/LFM2-VL-450M
    "lfm2-vl": decoder(
        1024, 4608, 16, 8, 64, 65536,
        taps=3, attends=(False, True), windows=(3, None), patch_size=16, merged_patches=2,
        table_side=16, tower_layers=2, tower_hidden=768, tower_ffn=3072, tower_heads=12,
        tower_norm_eps=1e-6, projector_hidden=2560, projector_norm=True, projector_bias=True,
    ),
    # LiquidAI/LFM2-8B-A1B
    "lfm2-moe": decoder(
        2048, 7168, 32, 8, 64, 65536,
        taps=3, attends=(False, True), windows=(3, None), experts=32, experts_per_token=4,
        expert_ffn=1792, routed=(False, True), scores=SIGMOID, choice_bias=True, normalized=True,
        sum_offset=1e-6,
    ),
    # internlm/internlm2_5-1_8b-chat
    "internlm2": decoder(2048, 8192, 16, 8, 128, 92544, tied=False),
    # meta-llama/Llama-3.2-1B
    "llama3": decoder(2048, 8192, 32, 8, 64, 128256, rope_divisors=(1.0,) * 16 + (32.0,) * 16),
    # openbmb/MiniCPM4-0.5B
    "minicpm": decoder(
        1024, 4096, 16, 2, 64, 73448,
        rope_base=1e4, embedding_scale=12.0, attention_scale=0.125, residual_scale=0.286,
        logit_scale=4.0, original_context=32768,
    ),
    # openbmb/MiniCPM3-4B
    "minicpm3": decoder(
        2560, 6400, 40, 1, 288, 73448,
        rope_base=1e4, query_rank=768, latent=256, rotary_width=32, key_width=64, value_width=64,
        attention_scale=96**-0.5, turns_neighbors=False, embedding_scale=12.0,
        residual_scale=0.1778, logit_scale=10.0, original_context=32768,
    ),
    # OpenGVLab/InternVL3-1B-hf and OpenGVLab/InternVL3_5-1B-HF
    "internvl": decoder(896, 4864, 14, 2, 64, 151674, attention_bias=True, **INTERN_TOWER),
    "internvl3.5": decoder(1024, 3072, 16, 8, 128, 151936, **INTERN_TOWER),
    # mistralai/Ministral-3-3B-Instruct-2512
    "ministral3": decoder(
        3072, 9216, 32, 8, 128, 131072,
        rope_divisors=(1.0,) * 32 + (16.0,) * 32, query_growth=0.1, original_context=16384,
    ),
    # mistralai/Mistral-7B-v0.1
    "mistral": decoder(4096, 14336, 32, 8, 128, 32000, tied=False, windows=(4096, 4096)),
    # allenai/OLMo-2-0425-1B
    "olmo2": decoder(2048, 8192, 16, 16, 128, 100352, tied=False),
    # allenai/Olmo-3-7B-Instruct
    "olmo3": decoder(
        4096, 11008, 32, 32, 128, 100278, tied=False, windows=(4096, None), local_rope_base=5e5,
        rope_divisors=(1.0,) * 32 + (8.0,) * 32,
    ),
    # microsoft/Phi-3-mini-4k-instruct
    "phi3": decoder(
        3072, 8192, 32, 32, 96, 32064,
        tied=False, windows=(2047, 2047), rotary_width=96, long_divisors=(), original_context=4096,
    ),
    # microsoft/Phi-4-mini-instruct
    "phi4-mini": decoder(
        3072, 8192, 24, 8, 128, 200064,
        rotary_width=96, long_divisors=(2.0,) * 48, rope_divisors=(1.0,) * 48,
        original_context=4096,
    ),
    # Qwen/Qwen2.5-0.5B
    "qwen2.5": decoder(896, 4864, 14, 2, 64, 151936, attention_bias=True),
    # Qwen/Qwen2.5-VL-3B-Instruct
    "qwen2.5-vl": decoder(2048, 11008, 16, 2, 128, 151936, attention_bias=True),
    # Qwen/Qwen3-VL-2B-Instruct
    "qwen3-vl": decoder(2048, 6144, 16, 8, 128, 151936, rope_base=5e6),
    # ByteDance-Seed/Seed-OSS-36B-Instruct
    "seed-oss": decoder(
        5120, 27648, 80, 8, 128, 155136, rope_base=1e7, tied=False, attention_bias=True
    ),
    # Qwen/Qwen3-0.6B
    "qwen3": decoder(1024, 3072, 16, 8, 128, 151936),
    # Qwen/Qwen3-VL-30B-A3B-Instruct
    "qwen3-vl-moe": decoder(
        2048, 6144, 32, 4, 128, 151936,
        rope_base=5e6, tied=False, experts=128, experts_per_token=8, expert_ffn=768,
        normalized=True, routed=(True, True),
    ),
    # Qwen/Qwen3-Next-80B-A3B-Instruct
    "qwen3-next": decoder(
        2048, 5120, 16, 2, 256, 151936,
        tied=False, attends=(False, True), rotary_width=64, key_heads=16, value_heads=32,
        key_width=128, value_width=128, taps=4, experts=512, experts_per_token=10, expert_ffn=512,
        routed=(True, True), normalized=True, shared_ffn=512, shared_gate=True,
    ),
    # ai21labs/AI21-Jamba-Reasoning-3B
    "jamba": decoder(
        2560, 8192, 20, 1, 128, 65536,
        attends=(False, True), ssm_inner=5120, ssm_state=16, step_rank=160, taps=4, experts=1,
        experts_per_token=1, expert_ffn=8192, routed=(False, False), normalized=False,
    ),
    # state-spaces/mamba-130m-hf
    "mamba": decoder(768, 1, 1, 1, 2, 50280, ssm_inner=1536, ssm_state=16, step_rank=48, taps=4),
    # the size of state-spaces/mamba2-130m
    "mamba2": decoder(
        768, 1, 1, 1, 2, 50288,
        kinds=("mamba", "mamba"), ssm_heads=24, ssm_width=64, ssm_groups=1, ssm_state=128, taps=4,
    ),
    # fla-hub/rwkv7-1.5B-world
    "rwkv7": decoder(
        2048, 8192, 32, 32, 64, 65536,
        tied=False, decay_rank=96, rate_rank=96, value_rank=64, gate_rank=256,
    ),
    # nvidia/Llama-3_3-Nemotron-Super-49B-v1
    "deci": decoder(
        8192, 28672, 64, 8, 128, 128256,
        rope_base=5e5, tied=False, key_heads=(8, None), linear=(False, False), ffns=(28672, 5632),
    ),
    # apple/OpenELM-270M
    "openelm": decoder(
        1280, 1024, 16, 4, 64, 32000,
        rope_base=1e4, query_heads=(12, 16), key_heads=(3, 4), ffns=(768, 1024),
    ),
    # Qwen/Qwen-1_8B
    "qwen": decoder(
        2048, 5504, 16, 16, 128, 151936, rope_base=1e4, tied=False, attention_bias=True
    ),
    # smallcloudai/Refact-1_6B-fim
    "refact": decoder(2048, 5632, 32, 1, 64, 49216, rope_base=1e4, tied=False),
    # nvidia/NVIDIA-Nemotron-Nano-9B-v2
    "nemotron-h": decoder(
        4480, 15680, 40, 8, 128, 131072,
        layers=3, tied=False, kinds=("mamba", "mlp", "attention"), ssm_heads=128, ssm_width=80,
        ssm_groups=8, ssm_state=128, taps=4,
    ),
    # nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B
    "nemotron-h-moe": decoder(
        2688, 1856, 32, 2, 128, 131072,
        layers=3, tied=False, kinds=("mamba", "moe", "attention"), ssm_heads=64, ssm_width=64,
        ssm_groups=8, ssm_state=128, taps=4, experts=128, experts_per_token=6, expert_ffn=1856,
        routed=(False, True, False), scores=SIGMOID, choice_bias=True, normalized=True,
        sum_offset=1e-20, factor=2.5, shared_ffn=3712,
    ),
    # Qwen/Qwen3.5-0.8B
    "qwen3.5": decoder(1024, 3584, 8, 2, 256, 248320, **QWEN35),
    "qwen3.5-images": decoder(1024, 3584, 8, 2, 256, 248320, **QWEN35, **GRID_TOWER),
    # Qwen/Qwen3.5-35B-A3B
    "qwen3.5-moe": decoder(2048, 512, 16, 2, 256, 248320, **QWEN35_MOE),
    "qwen3.5-moe-images": decoder(2048, 512, 16, 2, 256, 248320, **QWEN35_MOE, **GRID_TOWER),
    # HuggingFaceTB/SmolLM2-135M
    "smollm2": decoder(576, 1536, 9, 3, 64, 49152),
    # HuggingFaceTB/SmolLM3-3B
    "smollm3": decoder(2048, 11008, 16, 4, 128, 128256, rotated=(True, False)),
    # HuggingFaceTB/SmolVLM-256M-Instruct
    "smolvlm": decoder(
        576, 1536, 9, 3, 64, 49280,
        rope_base=1e5, tied=False, image_size=512, patch_size=16, joined_patches=4, tower_layers=2,
        tower_hidden=768, tower_ffn=3072, tower_heads=12, tower_norm_eps=1e-6,
    ),
    # xverse/XVERSE-7B
    "xverse": decoder(4096, 11008, 32, 32, 128, 100534, rope_base=1e4, tied=False),
}  # fmt: skip
