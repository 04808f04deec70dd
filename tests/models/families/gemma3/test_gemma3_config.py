"""Configurations as they are found in files, against the table of the technical report."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.config import ConfigError
from tests.models.presets import GEMMA3

if TYPE_CHECKING:
    from hearthd.models.families.gemma3 import Config

from_hugging_face = ARCHITECTURES["gemma3"].from_hugging_face

# google/gemma-3-270m
HF_270M: dict[str, Any] = {
    "_sliding_window_pattern": 6, "architectures": ["Gemma3ForCausalLM"], "attention_bias": False,
    "attention_dropout": 0.0, "attn_logit_softcapping": None, "bos_token_id": 2,
    "eos_token_id": 1, "final_logit_softcapping": None, "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 640, "initializer_range": 0.02,
    "intermediate_size": 2048,
    "layer_types": [*(["sliding_attention"] * 5), "full_attention"] * 3,
    "max_position_embeddings": 32768, "model_type": "gemma3_text", "num_attention_heads": 4,
    "num_hidden_layers": 18, "num_key_value_heads": 1, "pad_token_id": 0,
    "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000.0,
    "rope_scaling": None, "rope_theta": 1000000.0, "sliding_window": 512,
    "torch_dtype": "bfloat16", "transformers_version": "4.55.0.dev0",
    "use_bidirectional_attention": False, "use_cache": True, "vocab_size": 262144,
}  # fmt: skip
# google/gemma-3-1b-it, as published: no layer_types
HF_1B: dict[str, Any] = {
    "architectures": ["Gemma3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "attn_logit_softcapping": None, "bos_token_id": 2, "cache_implementation": "hybrid",
    "eos_token_id": [1, 106], "final_logit_softcapping": None, "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152, "initializer_range": 0.02,
    "intermediate_size": 6912, "max_position_embeddings": 32768, "model_type": "gemma3_text",
    "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1,
    "pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
    "rope_local_base_freq": 10000, "rope_scaling": None, "rope_theta": 1000000,
    "sliding_window": 512, "sliding_window_pattern": 6, "torch_dtype": "bfloat16",
    "transformers_version": "4.50.0.dev0", "use_cache": True, "vocab_size": 262144,
}  # fmt: skip
_ROPE = ("rope_theta", "rope_local_base_freq", "rope_scaling", "sliding_window_pattern")
# The same, saved again by transformers 5
HF_1B_NEW: dict[str, Any] = {key: value for key, value in HF_1B.items() if key not in _ROPE} | {
    "dtype": "bfloat16", "tie_word_embeddings": True, "use_bidirectional_attention": None,
    "layer_types": [
        "full_attention" if layer % 6 == 5 else "sliding_attention" for layer in range(26)
    ],
    "rope_parameters": {
        "full_attention": {"rope_theta": 1000000, "rope_type": "default"},
        "sliding_attention": {"rope_theta": 10000, "rope_type": "default"},
    },
}  # fmt: skip
# google/gemma-3-4b-it: what equals Gemma3TextConfig's defaults is left out
HF_4B: dict[str, Any] = {
    "architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999,
    "eoi_token_index": 256000, "eos_token_id": [1, 106], "image_token_index": 262144,
    "initializer_range": 0.02, "mm_tokens_per_image": 256, "model_type": "gemma3",
    "text_config": {
        "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
        "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    },
    "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0",
    "vision_config": {"hidden_size": 1152, "image_size": 896},
}  # fmt: skip
HF_27B: dict[str, Any] = HF_4B | {
    "text_config": {
        "head_dim": 128, "hidden_size": 5376, "intermediate_size": 21504,
        "model_type": "gemma3_text", "num_attention_heads": 32, "num_hidden_layers": 62,
        "num_key_value_heads": 16, "query_pre_attn_scalar": 168,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024,
    }
}  # fmt: skip
# The metadata of the real gemma3-270m GGUF
GGUF_270M: dict[str, Any] = {
    "general.architecture": "gemma3", "general.name": "gemma-3-270m",
    "gemma3.context_length": 32768, "gemma3.embedding_length": 640, "gemma3.block_count": 18,
    "gemma3.feed_forward_length": 2048, "gemma3.attention.head_count": 4,
    "gemma3.attention.layer_norm_rms_epsilon": 1e-6, "gemma3.attention.key_length": 256,
    "gemma3.attention.value_length": 256, "gemma3.rope.freq_base": 1000000.0,
    "gemma3.attention.sliding_window": 512, "gemma3.attention.head_count_kv": 1,
    "tokenizer.ggml.model": "llama",
}  # fmt: skip
GGUF_27B: dict[str, Any] = GGUF_270M | {
    "gemma3.context_length": 131072, "gemma3.embedding_length": 5376, "gemma3.block_count": 62,
    "gemma3.feed_forward_length": 21504, "gemma3.attention.head_count": 32,
    "gemma3.attention.key_length": 128, "gemma3.attention.value_length": 128,
    "gemma3.attention.sliding_window": 1024, "gemma3.attention.head_count_kv": 16,
    "gemma3.rope.scaling.type": "linear", "gemma3.rope.scaling.factor": 8.0,
}  # fmt: skip

# What files quantized with QAT have: keys of the vision tower, which is in another file.
GGUF_4B_QAT: dict[str, Any] = GGUF_270M | {
    "gemma3.context_length": 131072, "gemma3.embedding_length": 2560, "gemma3.block_count": 34,
    "gemma3.feed_forward_length": 10240, "gemma3.attention.head_count": 8,
    "gemma3.attention.sliding_window": 1024, "gemma3.attention.head_count_kv": 4,
    "gemma3.rope.scaling.type": "linear", "gemma3.rope.scaling.factor": 8.0,
    "gemma3.mm.tokens_per_image": 256, "gemma3.vision.block_count": 27,
    "gemma3.vision.attention.head_count": 16, "gemma3.vision.image_size": 896,
}  # fmt: skip


def from_gguf(metadata: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> Config:
    config: Config = ARCHITECTURES["gemma3"].from_gguf(metadata, shapes, no_values)
    return config


def no_values(name: str) -> Any:
    raise AssertionError(f"read the values of {name}")


def tensors(rows: int) -> dict[str, tuple[int, ...]]:
    """As much as is read of a GGUF file's tensors."""
    return {"token_embd.weight": (rows, 640)}


@pytest.mark.parametrize(
    ("size", "data"),
    [("270m", HF_270M), ("1b", HF_1B), ("1b", HF_1B_NEW), ("4b", HF_4B), ("27b", HF_27B)],
    ids=["270m", "1b", "1b, newer", "4b", "27b"],
)
def test_a_hugging_face_config_is_its_preset(size: str, data: dict[str, Any]) -> None:
    assert from_hugging_face(data) == GEMMA3[size]


@pytest.mark.parametrize(
    ("size", "metadata", "rows"),
    [("270m", GGUF_270M, 262144), ("4b", GGUF_4B_QAT, 262208), ("27b", GGUF_27B, 262208)],
)
def test_gguf_metadata_is_its_preset(size: str, metadata: dict[str, Any], rows: int) -> None:
    assert from_gguf(metadata, tensors(rows)) == GEMMA3[size]


def test_the_number_of_embedding_rows_is_the_file_s() -> None:
    assert from_gguf(GGUF_270M, tensors(262153)).vocab_size == 262153
    assert from_hugging_face(HF_270M | {"vocab_size": 262153}).vocab_size == 262153


def test_the_27b_alone_has_a_scale_of_its_own() -> None:
    assert GEMMA3["27b"].query_scale == pytest.approx((5376 / 32) ** -0.5)
    assert GEMMA3["27b"].query_scale != pytest.approx(128**-0.5)
    assert {one.query_scale for size, one in GEMMA3.items() if size != "27b"} == {1 / 16}


def test_every_sixth_layer_is_global() -> None:
    config = GEMMA3["270m"]
    assert [layer for layer in range(18) if config.windows[layer] is None] == [5, 11, 17]


def test_linear_scaling_by_kind_of_layer() -> None:
    both = {
        "full_attention": {"rope_theta": 1e6, "rope_type": "linear", "factor": 8.0},
        "sliding_attention": {"rope_theta": 1e4},
    }
    read = from_hugging_face(HF_1B_NEW | {"rope_parameters": both})
    assert read == replace(GEMMA3["1b"], rope_factor=8.0)


def test_another_pattern_of_layers() -> None:
    changed = from_hugging_face(HF_1B | {"sliding_window_pattern": 2})
    assert changed.windows == (512, None) * 13
    read = from_gguf(GGUF_270M | {"gemma3.attention.sliding_window_pattern": 3}, tensors(262144))
    assert read.windows == (512, 512, None) * 6


# --- what is refused


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"new_feature": 1}, "config.json: unknown key new_feature: it may change"),
        ({"model_type": "gemma2"}, "model_type: expected gemma3_text or gemma3, got 'gemma2'"),
        ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping = 50.0, supported is None"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping = 30.0"),
        ({"hidden_activation": "silu"}, "hidden_activation = 'silu', supported is 'gelu_py"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention = True"),
        (
            {"rope_scaling": {"rope_type": "ntk", "factor": 2}},
            "type 'ntk' is not supported, only def",
        ),
        ({"rope_scaling": {"type": "ntk"}}, "rope_scaling: type 'ntk'"),
        ({"rope_scaling": {"type": "linear", "factor": 2, "beta": 1}}, "scaling: unknown key beta"),
        ({"layer_types": ["chunked_attention"] * 18}, "layer_types: got 'chunked_attention'"),
        ({"layer_types": HF_270M["layer_types"][:-1]}, "layer_types: got 17, expected 18"),
        ({"layer_types": [1]}, "layer_types: expected a value of type str, got 1"),
        ({"num_key_value_heads": 3}, "4 heads cannot share 3 key/value heads"),
        ({"head_dim": 255}, "head_dim must be even"),
    ],
)
def test_a_hugging_face_config_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_hugging_face(HF_270M | changes)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"chunked_attention": {}}, "rope_parameters: unknown key chunked_attention"),
        (
            {"sliding_attention": {"rope_theta": 1e4, "rope_type": "linear"}},
            "sliding_attention: factor is missing",
        ),
        ({"full_attention": {"rope_theta": 1e6, "rope_type": "ntk"}}, "type 'ntk'"),
    ],
)
def test_newer_rotary_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    changed = HF_1B_NEW["rope_parameters"] | settings
    with pytest.raises(ConfigError, match=message):
        from_hugging_face(HF_1B_NEW | {"rope_parameters": changed})


def test_unknown_keys_are_refused_on_both_levels_of_a_larger_model() -> None:
    with pytest.raises(ConfigError, match="unknown key speech_config"):
        from_hugging_face(HF_4B | {"speech_config": {}})
    inner = HF_4B["text_config"] | {"experts": 8}
    with pytest.raises(ConfigError, match="unknown key experts"):
        from_hugging_face(HF_4B | {"text_config": inner})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"general.architecture": "llama"}, "expected gemma3, got 'llama'"),
        ({"gemma3.expert_count": 8}, r"gemma3.\*: unknown key expert_count"),
        ({"gemma3.visions": 8}, r"gemma3.\*: unknown key visions"),
        ({"gemma3.attention.value_length": 128}, "value_length is 128, supported is 256"),
        ({"gemma3.rope.scaling.type": "su"}, "scaling.type: 'su' is not supported, only none, li"),
    ],
)
def test_gguf_metadata_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_gguf(GGUF_270M | changes, tensors(262144))


@pytest.mark.parametrize(
    "key",
    [
        key
        for key in GGUF_270M
        if re.match(r"gemma3\.(?!rope|attention\.(key_length|value_length|head_count_kv))", key)
    ],
)
def test_a_missing_key_of_gguf_is_named(key: str) -> None:
    rest = {name: value for name, value in GGUF_270M.items() if name != key}
    with pytest.raises(ConfigError, match=f"{key} is missing"):
        from_gguf(rest, tensors(262144))


@pytest.mark.parametrize("preset", GEMMA3.values(), ids=GEMMA3)
def test_the_manifest_s_form_gives_the_configuration_back(preset: Config) -> None:
    architecture = ARCHITECTURES["gemma3"]
    assert architecture.from_manifest(architecture.to_manifest(preset)) == preset


def test_an_untied_head_is_refused_wherever_it_is_said() -> None:
    text = {"model_type": "gemma3_text", "num_hidden_layers": 34, "hidden_size": 2560}
    with pytest.raises(ConfigError, match="tie_word_embeddings"):
        from_hugging_face(
            {"model_type": "gemma3", "tie_word_embeddings": False, "text_config": text}
        )


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        ({"rope_scaling": {"rope_type": "linear"}}, "factor"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e6}}}, "sliding_attention"),
        (
            {"rope_parameters": {"full_attention": {}, "sliding_attention": {"rope_theta": 1e4}}},
            "rope_theta",
        ),
    ],
)
def test_half_said_rotary_settings_are_refused(change: dict[str, object], missing: str) -> None:
    with pytest.raises(ConfigError, match=f"{missing} is missing"):
        from_hugging_face({"model_type": "gemma3_text", **change})
