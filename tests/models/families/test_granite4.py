"""Granite 4: what is refused, and tensors that hold the rows of two matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.baker.adapters.merged_weights import MergedWeights
from hearthd.baker.weights.open_weights import open_weights
from hearthd.bundle.lora.adapter_folder import LowRank
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.config import ConfigError
from tests.models.families import ours
from tests.models.families.family_recording import recorded, write_folder
from tests.models.families.gguf_files import write_gguf

if TYPE_CHECKING:
    from pathlib import Path

GRANITE = ARCHITECTURES["granite"]
RECORDING = recorded("granite-granite4")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer_types": ["attention", "mamba", "attention"]}, "layer_types: got 'mamba'"),
        ({"layer_types": None}, "layer_types: got 'mamba'"),
        ({"num_local_experts": 8}, "num_local_experts = 8"),
        ({"position_embedding_type": None}, "position_embedding_type: got 'nope'"),
    ],
)
def test_a_model_with_other_layers_is_rejected(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GRANITE.from_hugging_face({**RECORDING.config, **changes})


def test_terms_of_two_matrices_are_merged_into_the_tensor_that_holds_both(tmp_path: Path) -> None:
    write_folder(RECORDING, tmp_path)
    source = open_weights(tmp_path)
    config = ours.config_of(source, "granite")
    rng = np.random.default_rng(0)
    sizes = {"gate_proj": 40, "up_proj": 40}
    terms = {
        f"layers.1.mlp.{name}.weight": LowRank(
            a=rng.normal(size=(rank, 48)).astype("f4"),
            b=rng.normal(size=(rows, rank)).astype("f4"),
            scale=0.5,
        )
        for rank, (name, rows) in enumerate(sizes.items(), 2)
    }
    merged = MergedWeights(source, terms, GRANITE, config)
    _, before = ours.parameters_of(source, "granite", config, tmp_path)
    before = {name: np.array(before[name]) for name in before}
    _, after = ours.parameters_of(merged, "granite", config, tmp_path)
    assert terms.keys() <= before.keys()
    for name, values in before.items():
        term = terms.get(name)
        added = 0 if term is None else term.scale * term.b @ term.a
        np.testing.assert_allclose(after[name], values + added, atol=1e-5)


@pytest.mark.parametrize(("name", "rotates"), [("granite", False), ("granitehybrid", True)])
def test_a_file_whose_attention_has_other_positions_is_rejected(
    name: str, rotates: bool, tmp_path: Path
) -> None:
    """Bamba, which has positions, is a `granitehybrid` in GGUF files."""
    case = recorded({"granite": "granite-granite4", "granitehybrid": "granitehybrid-groups"}[name])
    write_folder(case, tmp_path)
    config: Any = ours.config_of(open_weights(tmp_path), name)
    source = open_weights(write_gguf(tmp_path, name, config))
    assert ours.config_of(source, name)
    key, family = f"{name}.rope.scaling.finetuned", ARCHITECTURES[name]
    shapes = {tensor: source.shape(tensor) for tensor in source.names()}
    with pytest.raises(ConfigError, match=r"rope\.scaling\.finetuned: got"):
        family.from_gguf({**source.metadata(), key: rotates}, shapes, source.read)
