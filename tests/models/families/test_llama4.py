"""Llama 4: contexts of one chunk, and configurations that are rejected."""

from __future__ import annotations

from typing import Any

import pytest

from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.config import ConfigError
from tests.models.families.family_recording import recorded

READ = ARCHITECTURES["llama4"].from_hugging_face


def test_a_context_is_at_most_one_chunk() -> None:
    config = dict(recorded("llama4-chunks").config)
    assert READ(config).max_context == config["attention_chunk_size"] == 400
    unchunked = config | {"attention_chunk_size": None, "layer_types": ["full_attention"] * 4}
    assert READ(unchunked).max_context == config["max_position_embeddings"] == 512


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_experts_per_tok": 2}, "experts_per_token: got 2, supported is 1"),
        ({"layer_types": ["chunked_attention"] * 4}, "layer_types = .* supported is"),
    ],
    ids=str,
)
def test_unsupported_configurations_are_rejected(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        READ({**recorded("llama4-chunks").config, **changes})
