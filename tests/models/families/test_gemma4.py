"""Gemma 4: slots whose last layers read the caches of others, and published configurations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.baker.pipeline.weights_config import identify
from hearthd.baker.weights.open_weights import open_weights
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.config import ConfigError
from hearthd.models.decoder.gemma4_config import Gemma4Config, _heads_by_kind
from hearthd.models.decoder.next_token_loss import loss_graph
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.program import ProgramOptions
from tests.models.families.family_recording import recorded, write_folder
from tests.models.numpy_device import Device

if TYPE_CHECKING:
    from pathlib import Path

ARCHITECTURE = ARCHITECTURES["gemma4"]
CONFIG = Gemma4Config(
    layers=5, hidden=32, ffn=40, heads=4, kv_heads=2, head_dim=8, max_context=64, vocab_size=61,
    norm_eps=1e-3, rope_base=1000.0, rope_divisors=(1.0, 1e30, 1e30, 1e30), tied=True,
    windows=(6, None, 6, None, 6), local_head_dim=4, local_rope_base=100.0, layer_embedding=8,
    caching_layers=3, ffns=(40, 40, 40, 48, 48), logit_cap=None,
)  # fmt: skip
OPTIONS = ProgramOptions(
    context=40, precision="f32", prefill_tokens=(3, 8), decode_batches=(1, 2), verify_tokens=(4,)
)
TOKENS = np.random.default_rng(0).integers(0, CONFIG.vocab_size, 30).tolist()


@pytest.fixture(scope="module")
def device() -> Device:
    return Device(ARCHITECTURE.program(CONFIG, OPTIONS))


# --- slots


def test_layers_that_share_have_no_caches(device: Device) -> None:
    sizes = [(spec.name, spec.rows, spec.width) for spec in device.program.caches]
    chunk = OPTIONS.chunk
    assert sizes == [
        (f"layers.{layer}.{part}", rows + chunk, 2 * width)
        for layer, rows, width in ((0, 6, 4), (1, 40, 8), (2, 6, 4))
        for part in ("key", "value")
    ]


def test_a_whole_sequence_has_the_loss_of_its_tokens(device: Device) -> None:
    """Training reads sequences at once, without caches."""
    weights, count = device.model_weights(), 12
    graph = loss_graph(ARCHITECTURE.model(CONFIG), count)
    tokens, targets = (np.array(TOKENS[i : i + count], np.int32) for i in (0, 1))
    (loss,) = evaluate(graph, [tokens, targets], weights)
    losses = []
    for i in range(count):
        logits = device.logits_after(TOKENS[: i + 1]).astype(np.float64)
        losses.append(np.log(np.exp(logits).sum()) - logits[targets[i]])
    assert float(loss) == pytest.approx(np.mean(losses), abs=1e-5)


# --- configurations

# What google/gemma-4-E2B-it states.
LAYER_TYPES = ["sliding_attention"] * 4 + ["full_attention"]
E2B: dict[str, Any] = {
    "architectures": ["Gemma4ForConditionalGeneration"], "audio_config": {"hidden_size": 1024},
    "audio_token_id": 258881, "boa_token_id": 256000, "boi_token_id": 255999, "dtype": "bfloat16",
    "eoa_token_id": 258883, "eoi_token_id": 258882, "eos_token_id": [1, 106],
    "image_token_id": 258880, "initializer_range": 0.02, "model_type": "gemma4",
    "text_config": {
        "attention_bias": False, "attention_dropout": 0.0, "attention_k_eq_v": False,
        "enable_moe_block": False, "final_logit_softcapping": 30.0, "global_head_dim": 512,
        "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1536,
        "hidden_size_per_layer_input": 256, "intermediate_size": 6144,
        "layer_types": LAYER_TYPES * 7, "max_position_embeddings": 131072,
        "model_type": "gemma4_text", "num_attention_heads": 8,
        "num_global_key_value_heads": None, "num_hidden_layers": 35, "num_key_value_heads": 1,
        "num_kv_shared_layers": 20, "rms_norm_eps": 1e-6,
        "rope_parameters": {
            "full_attention": {
                "partial_rotary_factor": 0.25, "rope_theta": 1000000.0,
                "rope_type": "proportional",
            },
            "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
        },
        "sliding_window": 512, "tie_word_embeddings": True, "use_double_wide_mlp": True,
        "vocab_size": 262144, "vocab_size_per_layer_input": 262144,
    },
    "tie_word_embeddings": True, "video_token_id": 258884, "vision_config": {"hidden_size": 768},
    "vision_soft_tokens_per_image": 280,
}  # fmt: skip


def test_the_published_config_is_read() -> None:
    config = ARCHITECTURE.from_hugging_face(E2B)
    assert config == Gemma4Config(
        layers=35, hidden=1536, ffn=6144, heads=8, kv_heads=1, head_dim=512, max_context=131072,
        vocab_size=262144, norm_eps=1e-6, rope_base=1e6,
        rope_divisors=(1.0,) * 64 + (1e30,) * 192, tied=True, windows=(*[512] * 4, None) * 7,
        local_head_dim=256, local_rope_base=1e4, layer_embedding=256, caching_layers=15,
        ffns=(6144,) * 15 + (12288,) * 20, logit_cap=30.0,
    )  # fmt: skip
    assert [config.source(layer) for layer in (13, 14, 15, 18, 19, 34)] == [13, 14, 13, 13, 14, 14]
    assert ARCHITECTURE.from_manifest(ARCHITECTURE.to_manifest(config)) == config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"enable_moe_block": True}, "enable_moe_block = True, supported is False"),
        ({"num_global_key_value_heads": 2}, "num_global_key_value_heads = 2, supported is None"),
        ({"num_kv_shared_layers": 33}, "num_kv_shared_layers: expected a layer of each kind"),
        ({"use_bidirectional_attention": "all"}, "use_bidirectional_attention = 'all'"),
        ({"vocab_size_per_layer_input": 1}, "vocab_size_per_layer_input = 1, supported is 262144"),
        ({"laurel_rank": 64}, "text_config: unknown key laurel_rank"),
    ],
    ids=str,
)
def test_unsupported_configurations_are_rejected(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ARCHITECTURE.from_hugging_face(E2B | {"text_config": E2B["text_config"] | changes})


def test_the_configuration_of_31b_is_read() -> None:
    """Its keys are its values in layers without a window, which have fewer of them."""
    text = {
        **E2B["text_config"], "attention_k_eq_v": True, "hidden_size": 5376,
        "hidden_size_per_layer_input": 0, "intermediate_size": 21504, "num_attention_heads": 32,
        "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 10,
        "num_global_key_value_heads": 4, "num_hidden_layers": 60, "num_key_value_heads": 16,
        "num_kv_shared_layers": 0, "sliding_window": 1024, "use_bidirectional_attention": "vision",
        "use_double_wide_mlp": False,
    }  # fmt: skip
    config = ARCHITECTURE.from_hugging_face(E2B | {"text_config": text})
    assert config.layer_embedding is None
    assert [config.has_values(layer) for layer in (0, 5)] == [True, False]
    shapes = [config.layer(layer) for layer in (0, 5)]
    assert [(shape.kv_heads, shape.head_dim) for shape in shapes] == [(16, 256), (4, 512)]
    assert ARCHITECTURE.from_manifest(ARCHITECTURE.to_manifest(config)) == config


def test_heads_of_several_widths_are_rejected() -> None:
    """Layers without a window, as transformers saves them."""
    config = dict(recorded("gemma4-gemma4").config)
    config["per_layer_config"] = {"2": {"head_dim": 8}, "5": {"head_dim": 16}}
    with pytest.raises(ConfigError, match=r"per_layer_config: head_dim: got \[8, 16\]"):
        ARCHITECTURE.from_hugging_face(config)


@pytest.mark.parametrize("changed", [{}, {"2": {"num_key_value_heads": 1}}])
def test_layers_that_change_no_width_have_that_of_all(changed: dict[str, object]) -> None:
    """As in transformers, where an entry replaces only what it names."""
    config = dict(recorded("gemma4-gemma4").config)
    config |= {"per_layer_config": changed, "num_key_value_heads": 1}
    read = ARCHITECTURE.from_hugging_face(config)
    assert [read.layer(layer).head_dim for layer in (0, 2)] == [config["head_dim"]] * 2


def test_a_gguf_file_has_one_number_of_heads_for_each_kind_of_layer() -> None:
    assert _heads_by_kind([4, 4, 1], [48, 48, None]) == (4, 1)
    assert _heads_by_kind([2, 2], [48, 48]) == (2, 2)
    for heads in ([4, 2, 1], [4, 4], [4, 1, 1]):
        with pytest.raises(ConfigError, match=r"head_count_kv: got"):
            _heads_by_kind(heads, [48, 48, None])


def test_keys_and_values_of_sharing_layers_may_be_in_files() -> None:
    names = ARCHITECTURE.tensors
    for name in ("model.language_model.layers.30.self_attn.k_proj.weight", "blk.30.attn_v.weight"):
        assert names.is_other_part(name)
    assert names.is_other_part("model.audio_tower.layers.0.norm_out.weight")
    assert not names.is_other_part("model.language_model.layers.30.self_attn.q_proj.weight")


def test_a_tower_that_cannot_be_read_is_not_left_out(tmp_path: Path) -> None:
    recording = recorded("gemma4-images-clips")
    vision = {**recording.config["vision_config"], "attention_bias": True}
    config = {**recording.config, "vision_config": vision}
    write_folder(replace(recording, config=config), tmp_path)
    with pytest.raises(ConfigError, match=r"vision_config: attention_bias = True, supported is F"):
        identify(open_weights(tmp_path), None)
