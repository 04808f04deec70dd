"""Details of the families of winter 2026."""

from __future__ import annotations

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
