"""Keys of families of 2025 that would change what is computed, and are rejected by name."""

from __future__ import annotations

from typing import Any

import pytest

from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.config import ConfigError
from tests.models.families.cases import CASES
from tests.models.families.family_recording import recorded

YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}


def read(case: str, **changes: Any) -> Any:
    """The configuration of a case with changes; a key that is None is missing."""
    family = ARCHITECTURES[CASES[case].architecture]
    return family.from_hugging_face({**recorded(case).config, **changes})


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
    ],
)
def test_a_value_that_is_not_computed_is_rejected(
    case: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        read(case, **changes)


def test_with_a_window_that_no_layer_has_no_layer_of_exaone_has_positions() -> None:
    config = read("exaone4-full", sliding_window=40)
    assert not any(config.rotates(layer) for layer in range(config.layers))
    assert all(map(read("exaone4-full").rotates, range(3)))
