"""Keys of families of 2025 that would change what is computed, and are rejected by name."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.baker.weights.open_weights import open_weights
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.config import ConfigError
from tests.models.families import ours
from tests.models.families.cases import CASES
from tests.models.families.family_recording import recorded, write_folder
from tests.models.families.gguf_files import write_gguf

if TYPE_CHECKING:
    from pathlib import Path

YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}


def read(case: str, **changes: Any) -> Any:
    """The configuration of a case with changes; a key that is None is missing."""
    family = ARCHITECTURES[CASES[case].architecture]
    keys = {**recorded(case).config, **changes}
    return family.from_hugging_face({key: keys[key] for key in keys if keys[key] is not None})


@pytest.mark.parametrize(
    ("case", "changes", "message"),
    [
        (
            "hunyuan-dense-hunyuan",
            {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4}},
            "rope_parameters: alpha is missing",
        ),
        ("hunyuan-dense-hunyuan", {"use_qk_norm": False}, "use_qk_norm = False"),
        ("hunyuan-dense-hunyuan", {"attention_head_dim": 8}, "attention_head_dim = 8"),
        ("glm4-glm4", {"rope_parameters": YARN}, "rope_parameters: got 'yarn' for 0.5 of a head"),
        ("apertus-apertus", {"post_norm": True}, "post_norm = True, supported is False"),
        (
            "exaone4-exaone4",
            {"layer_types": None, "sliding_window_pattern": "LLLG"},
            "sliding_window_pattern: expected an integer",
        ),
        (
            "olmo2-olmo3",
            {"rope_parameters": {"full_attention": YARN, "sliding_attention": YARN}},
            "sliding_attention: rope_type: supported is default",
        ),
        ("ernie4_5-ernie4_5", {"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ("deepseek2-v2", {"n_group": 2}, "n_group = 2, supported is 1"),
        ("deepseek2-v2", {"topk_method": "group_limited_greedy"}, "topk_method = 'group_lim"),
        ("deepseek2-v3", {"rope_interleave": False}, "rope_interleave = False"),
        (
            "gemma3n-gemma3n",
            {"activation_sparsity_pattern": [0.3] * 7},
            "activation_sparsity_pattern: expected 0, or numbers above 0.5",
        ),
        ("baichuan-baichuan", {"num_hidden_layers": 40}, "Baichuan 13B, whose positions are ALiBi"),
        ("baichuan-baichuan", {"z_loss_weight": 0}, "unknown key z_loss_weight"),
        ("bailingmoe-ling", {"score_function": "sigmoid"}, "score_function: got 'sigmoid'"),
        ("cohere2moe-north", {"rms_norm_eps": 1e-6}, "rms_norm_eps = 1e-06"),
        ("falcon-falcon", {"alibi": True}, "alibi = True"),
        ("falcon-grouped", {"num_ln_in_parallel_attn": None}, "num_ln_in_parallel_attn: supported"),
        ("gptneox-gptneox", {"hidden_act": "gelu_fast"}, "hidden_act = 'gelu_fast'"),
        ("gpt2-gpt2", {"scale_attn_by_inverse_layer_idx": True}, "inverse_layer_idx = True"),
        ("laguna-laguna", {"gating": "per-element"}, "gating = 'per-element', supported: True"),
        (
            "laguna-laguna",
            {"num_attention_heads_per_layer": [4, 6, 6, 4, 4]},
            r"got \[4\] in layers without a window and \[4, 6\] in others",
        ),
        (
            "dbrx-dbrx",
            {
                "ffn_config": {
                    "ffn_hidden_size": 20,
                    "moe_num_experts": 7,
                    "moe_top_k": 3,
                    "moe_normalize_expert_weights": 2,
                },
            },
            "ffn_config: moe_normalize_expert_weights = 2, supported: 1",
        ),
        ("mimo2-flash", {"add_full_attention_sink_bias": True}, "sink_bias = True, supported is F"),
        ("mimo2-flash", {"n_shared_experts": 1}, "n_shared_experts = 1, supported is None"),
        ("mimo2-flash", {"swa_head_dim": 12}, "swa_head_dim = 12, supported is 24"),
        (
            "mimo2-flash",
            {"v_head_dim": 28, "swa_v_head_dim": 28},
            "v_head_dim: got 28, expected at most 24",
        ),
        ("nanbeige-nanbeige", {"enable_mhc": True}, "enable_mhc = True"),
        ("phimoe-phimoe", {"num_experts_per_tok": 3}, "experts_per_token: got 3, supported is 2"),
        ("step35-step", {"moe_layers_enum": "0,2,3,4"}, "expected all layers after some, up to 4"),
        ("step35-step", {"layer_types": ["full_attention"] * 5}, "and sliding_attention for 5"),
        ("smallthinker-softmax", {"moe_layer_layout": [0] * 5}, "moe_layer_layout = "),
        ("gemma3n-gemma3n", {"altup_active_idx": 1}, "altup_active_idx = 1, supported is 0"),
        ("gemma3n-gemma3n", {"altup_num_inputs": 1}, "altup_num_inputs: got 1"),
    ],
)
def test_a_value_that_is_not_computed_is_rejected(
    case: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        read(case, **changes)


def test_dynamic_scaling_changes_nothing_within_the_context() -> None:
    usual = read("internlm2-internlm2")
    older = {"rope_parameters": None, "rope_theta": 1e6, "bias": False}
    assert (
        read("internlm2-internlm2", **older, rope_scaling={"type": "dynamic", "factor": 2}) == usual
    )
    scaled = {"rope_type": "dynamic", "factor": 2, "original_max_position_embeddings": 256}
    with pytest.raises(ConfigError, match="supported is the whole context, 512"):
        read("internlm2-internlm2", **older, rope_scaling=scaled)


def test_internlm_3_is_llama_with_other_keys_of_biases() -> None:
    biases = {"attention_bias": None, "mlp_bias": None, "qkv_bias": True, "bias": True}
    config = read("llama-dynamic", model_type="internlm3", **biases)
    assert config == replace(
        read("llama-dynamic"), attention_bias=True, output_bias=True, mlp_bias=True
    )


def test_with_a_window_that_no_layer_has_no_layer_of_exaone_has_positions() -> None:
    config = read("exaone4-full", sliding_window=40)
    assert not any(config.rotates(layer) for layer in range(config.layers))
    assert all(map(read("exaone4-full").rotates, range(3)))


def test_an_older_gguf_file_has_the_matrix_of_keys_and_values_of_a_folder() -> None:
    config, tensors = read("deepseek2-v2"), ARCHITECTURES["deepseek2"].tensors
    for part in ("k_b_proj", "v_b_proj"):
        parameter, inner = f"layers.1.self_attn.{part}.weight", "self_attn.kv_b_proj.weight"
        stored = ("blk.1.attn_kv_b.weight", f"model.layers.1.{inner}")
        (older,) = tensors.parts(config, parameter, stored[:1], gguf=True)
        (folder,) = tensors.parts(config, parameter, stored[1:], gguf=False)
        assert older == replace(folder, name=stored[0])
        assert older.grouped is not None


def test_layers_of_granite_swash_without_positions() -> None:
    """Older files name the layers, newer ones give each layer a base."""
    older = read("granite_swa-granite_swa", layer_rope_theta=None, no_rope_layers=[0, 1, 1])
    newer = read("granite_swa-granite_swa", layer_rope_theta=[0, 1e4, 1e4])
    assert older == newer
    assert [*map(newer.rotates, range(3))] == [False, True, True]
    with pytest.raises(ConfigError, match="layer_rope_theta: bases that differ"):
        read("granite_swa-bases", rope_parameters=YARN)


@pytest.mark.parametrize("name", ["deepseek32-deepseek32", "glm-dsa-glm5"])
def test_a_context_is_no_longer_than_the_tokens_that_an_index_chooses(name: str) -> None:
    assert [read(name, index_topk=most).max_context for most in (9, 511, 600)] == [9, 511, 512]


def test_layers_of_mimo_that_predict_further_tokens_follow_the_others(tmp_path: Path) -> None:
    """llama.cpp's converter counts three of them, whether a folder has them or not."""
    write_folder(recorded("mimo2-flash"), tmp_path)
    config: Any = ours.config_of(open_weights(tmp_path), "mimo2")
    file = open_weights(write_gguf(tmp_path, "mimo2", config))
    metadata = {
        **file.metadata(),
        "mimo2.block_count": 7,
        "mimo2.nextn_predict_layers": 3,
        "mimo2.attention.head_count_kv": [2, 4, 4, 2, 4, 4, 4],
        "mimo2.attention.sliding_window_pattern": [0, 1, 1, 0, 1, 1, 1],
    }
    shapes = {name: file.shape(name) for name in file.names()}
    family = ARCHITECTURES["mimo2"]
    assert family.from_gguf(metadata, shapes, file.read) == ours.config_of(file, "mimo2")
    for name in ("blk.5.attn_qkv.weight", "model.mtp.layers.1.self_attn.qkv_proj.weight"):
        assert family.tensors.is_other_part(name, [name, "blk.5.nextn.eh_proj.weight"])


@pytest.mark.parametrize("name", ["bitnet", "lfm3"])
def test_a_gguf_file_is_refused_where_only_folders_are_read(name: str) -> None:
    with pytest.raises(ConfigError, match="bake the Hugging Face folder"):
        ARCHITECTURES[name].from_gguf(
            {"general.architecture": name}, {}, lambda _: np.empty(0, np.float32)
        )
