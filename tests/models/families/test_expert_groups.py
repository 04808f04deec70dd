"""Models whose experts form groups: configurations that are rejected."""

from __future__ import annotations

from typing import Any

import pytest

from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.config import ConfigError
from tests.models.families.family_recording import recorded


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_group": 5}, "got 5, expected equal groups of at least 2 of 12 experts"),
        ({"n_group": 12}, "got 12, expected equal groups of at least 2 of 12 experts"),
        ({"topk_group": 5}, "of a token: got 5, expected 1 to 4, for 3 experts"),
        ({"num_experts_per_tok": 9, "topk_group": 2}, "got 2, expected 3 to 4, for 9 experts"),
        ({"score_function": None}, "score_function: got 'softmax', supported: sigmoid"),
    ],
    ids=str,
)
def test_unsupported_configurations_are_rejected(changes: dict[str, Any], message: str) -> None:
    """Ling 1 has no `score_function`, and another router."""
    config = dict(recorded("bailingmoe2-ling").config) | changes
    with pytest.raises(ConfigError, match=message):
        ARCHITECTURES["bailingmoe2"].from_hugging_face(config)
