"""Details of the families of winter 2026."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.baker.weights.open_weights import open_weights
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.config import ConfigError
from hearthd.models.decoder.limited_experts import LimitedMLP
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType
from hearthd.models.families.maple import LimitedGateExperts
from tests.models.families import ours
from tests.models.families.cases import CASES
from tests.models.families.family_recording import recorded, write_folder
from tests.models.families.gguf_files import write_gguf

if TYPE_CHECKING:
    from pathlib import Path


def read(case: str, **changes: Any) -> Any:
    """The configuration of a case, with other keys in its text model."""
    described = recorded(case).config
    if "text_config" in described:
        described = {**described, "text_config": described["text_config"] | changes}
    else:
        described = {**described, **changes}
    return ARCHITECTURES[CASES[case].architecture].from_hugging_face(described)


@pytest.mark.parametrize(
    ("case", "changes", "message"),
    [
        ("muse-glimmer-windows", {"layer_rope_theta": [5000.0] * 5}, "0 for the others"),
        ("muse-glimmer-glimmer", {"hidden_activation": "gelu"}, "hidden_activation = 'gelu'"),
        ("hrm_text-hrm", {"mlp_bias": True}, "mlp_bias = True"),
        ("maple-maple", {"nope_on_global_attention": False}, "nope_on_global_attention = False"),
        ("maple-maple", {"layer_types": ["full_attention"] * 4}, "expected layers with a window"),
        ("bailingmoe3-ling3", {"kda_safe_gate": False}, "kda_safe_gate = False"),
        ("bailingmoe3-ling3", {"kda_lower_bound": 0.5}, "kda_lower_bound: got 0.5, expected a num"),
        ("bailingmoe3-ling3", {"moe_shared_expert_intermediate_size": 8}, "supported is 20"),
    ],
)
def test_a_value_that_is_not_computed_is_rejected(
    case: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        read(case, **changes)


@pytest.mark.parametrize(
    ("part", "numbers", "message"),
    [
        ("blk.2.attn_q_norm", [2.0] * 12, "attn_q_norm: got factors"),
        ("blk.1.attn_k_norm", [1.0] * 11 + [0.5], "blk.1.attn_k_norm.weight: got 2 different"),
        ("blk.1.attn_q_norm", [2.5] * 11, r"got shape \(11,\), expected \(12,\)"),
    ],
)
def test_norms_of_heads_have_a_factor_for_the_whole_model(
    part: str, numbers: list[float], message: str, tmp_path: Path
) -> None:
    name = "muse-glimmer-windows"
    write_folder(recorded(name), tmp_path)
    config: Any = ours.config_of(open_weights(tmp_path), "muse-glimmer")
    file = open_weights(write_gguf(tmp_path, "muse-glimmer", config))
    other = f"{part}.weight"
    shapes = {name: file.shape(name) for name in file.names()} | {other: (len(numbers),)}

    def values(name: str) -> Any:
        return np.array(numbers, np.float32) if name == other else file.read(name)

    with pytest.raises(ConfigError, match=message):
        ARCHITECTURES["muse-glimmer"].from_gguf(file.metadata(), shapes, values)


def test_the_last_layers_of_ling_attend_where_a_period_is_not_complete() -> None:
    assert read("bailingmoe3-ling3", num_hidden_layers=5).attends == (
        False, False, True, True, True,
    )  # fmt: skip


def test_limits_of_experts_of_ling_are_read_by_layer(tmp_path: Path) -> None:
    """transformers leaves them out; llama.cpp computes the same values from the GGUF file."""
    assert read("bailingmoe3-ling3").expert_limits == ()
    config = read("bailingmoe3-ling3", share_expert_swiglu_limit_list=[0.0, 0.25, 0.5, 1.0])
    assert config.expert_limits == (None,) * 3
    assert config.mlp_limits == (None, 0.25, 0.5)
    write_folder(recorded("bailingmoe3-ling3"), tmp_path)
    in_gguf: Any = ours.config_of(
        open_weights(write_gguf(tmp_path, "bailingmoe3", config)), "bailingmoe3"
    )
    assert in_gguf.mlp_limits == config.mlp_limits
    model: Any = ARCHITECTURES["bailingmoe3"].model(config)
    assert isinstance(model.layers[0].mlp, LimitedMLP)
    assert isinstance(model.layers[1].mlp.shared_experts, LimitedMLP)


def test_gates_of_maple_and_what_they_multiply_are_limited() -> None:
    """The inputs of the recorded model reach no limit."""
    experts = LimitedGateExperts(read("maple-maple"))
    kind = TensorType((1, 4), DType.F32)
    graph = trace("gated", lambda gate, up: (experts.gated(gate, up),), {"gate": kind, "up": kind})
    gate = np.array([[9.0, 2.0, -9.0, 7.5]], np.float32)
    up = np.array([[1.0, -8.0, 8.0, 3.0]], np.float32)
    (values,) = evaluate(graph, [gate, up], {})
    bounded = np.minimum(gate, 7)
    expected = bounded / (1 + np.exp(-bounded)) * np.clip(up, -7, 7)
    np.testing.assert_allclose(values, expected, rtol=1e-6)


def test_layers_of_maple_have_limits_that_are_equal(tmp_path: Path) -> None:
    write_folder(recorded("maple-maple"), tmp_path)
    file = open_weights(write_gguf(tmp_path, "maple", read("maple-maple")))
    shapes = {name: file.shape(name) for name in file.names()}
    metadata = {**file.metadata(), "maple.swiglu_clamp_exp": [7.0, 7.0, 7.0, 6.0]}
    with pytest.raises(ConfigError, match="swiglu_clamp_exp: got limits"):
        ARCHITECTURES["maple"].from_gguf(metadata, shapes, file.read)


def test_a_published_file_of_hrm_counts_the_layers_of_a_stack() -> None:
    """transformers counts them as they are computed, and saves both numbers."""
    saved = read("hrm_text-layers")
    assert saved == read("hrm_text-layers", num_hidden_layers=2, num_layers_per_stack=None)
    assert (saved.layers, saved.stack_layers) == (8, 2)
    with pytest.raises(ConfigError, match="layers: got 7, expected 8"):
        replace(saved, layers=7)
    assert read("hrm_text-hrm", embedding_scale=None).embedding_scale == 50.0


def test_the_base_and_the_limit_of_maple_are_read_from_a_gguf_file(tmp_path: Path) -> None:
    """As in llama.cpp, the layers with a window have a base of their own, if there is one."""
    write_folder(recorded("maple-maple"), tmp_path)
    file = open_weights(write_gguf(tmp_path, "maple", read("maple-maple")))
    others = {"maple.rope.freq_base_swa": 77.0, "maple.swiglu_clamp_exp": [5.0] * 4}
    shapes = {name: file.shape(name) for name in file.names()}
    config = ARCHITECTURES["maple"].from_gguf({**file.metadata(), **others}, shapes, file.read)
    assert (config.rope_base, config.gate_limit) == (77.0, 5.0)


def test_scores_of_maple_are_normalized_where_a_file_does_not_say_so() -> None:
    """llama.cpp's converter takes them so."""
    described = dict(recorded("maple-maple").config)
    del described["norm_topk_prob"]
    assert ARCHITECTURES["maple"].from_hugging_face(described).normalized
