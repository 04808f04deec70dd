"""A published size of models with LayerNorm, with few layers: see size_table.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.models.families.size import Size, decoder

if TYPE_CHECKING:
    from collections.abc import Mapping

_BIASES = dict.fromkeys(("attention_bias", "output_bias", "mlp_bias"), True)
# Source: config.json of the repository that is named.
LAYER_NORM_SIZES: Mapping[str, Size] = {
    # bigscience/bloom-560m
    "bloom": decoder(1024, 4096, 16, 16, 64, 250880, rope_base=1e4, **_BIASES),
    # CohereLabs/aya-expanse-8b
    "command-r": decoder(4096, 14336, 32, 8, 128, 256000, rope_base=1e4, logit_scale=0.125),
    # CohereLabs/c4ai-command-r7b-12-2024
    "cohere2": decoder(
        4096, 14336, 32, 8, 128, 256000, rope_base=5e4, logit_scale=0.25, windows=(4096, None)
    ),
    # tiiuae/falcon-7b
    "falcon": decoder(4544, 18176, 71, 1, 64, 65024, rope_base=1e4),
    # openai-community/gpt2
    "gpt2": decoder(768, 3072, 12, 12, 64, 50257, rope_base=1e4, **_BIASES),
    # EleutherAI/gpt-j-6b
    "gptj": decoder(4096, 16384, 16, 16, 256, 50400, rope_base=1e4, tied=False, mlp_bias=True),
    # EleutherAI/pythia-1.4b
    "gptneox": decoder(
        2048, 8192, 16, 16, 128, 50304,
        rope_base=1e4, tied=False, rotary_width=32, parallel=True, **_BIASES,
    ),
    # inceptionai/Jais-2-8B-Chat
    "jais2": decoder(
        3328, 26624, 26, 26, 128, 150272, rope_base=5e5, tied=False, rotary_width=128, **_BIASES
    ),
    # mosaicml/mpt-7b
    "mpt": decoder(4096, 16384, 32, 32, 128, 50432, rope_base=1e4),
    # nvidia/Nemotron-Mini-4B-Instruct
    "nemotron": decoder(
        3072, 9216, 24, 8, 128, 256000, rope_base=1e4, tied=False, rotary_width=64
    ),
    # allenai/OLMo-7B-hf
    "olmo": decoder(4096, 11008, 32, 32, 128, 50304, rope_base=1e4, tied=False, clip=8.0),
    # OrionStarAI/Orion-14B-Chat
    "orion": decoder(
        5120, 15360, 40, 40, 128, 84608, rope_base=1e4, tied=False, rotary_width=128
    ),
    # microsoft/phi-2
    "phi2": decoder(
        2560, 10240, 32, 32, 80, 51200, rope_base=1e4, tied=False, rotary_width=32, **_BIASES
    ),
    # stabilityai/stablelm-2-1_6b
    "stablelm": decoder(
        2048, 5632, 32, 32, 64, 100352,
        rope_base=1e4, tied=False, attention_bias=True, rotary_width=16,
    ),
    # bigcode/starcoderbase-1b
    "starcoder": decoder(2048, 8192, 16, 1, 128, 49152, rope_base=1e4, **_BIASES),
    # bigcode/starcoder2-3b
    "starcoder2": decoder(
        3072, 12288, 24, 2, 128, 49152,
        **_BIASES, windows=(4096, 4096),
    ),
}  # fmt: skip
