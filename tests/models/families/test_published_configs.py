"""config.json of published models, as their publishers wrote it: nothing in it is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hearthd.models.catalog import ARCHITECTURES

CONFIGS: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).parents[2].joinpath("golden/published_configs.json").read_text(encoding="utf-8")
)
# The architecture, layers, hidden width, key/value heads and context.
EXPECTED = {
    "Devstral-Small-2-24B-Instruct": ("mistral3", 40, 5120, 8, 393216),
    "EXAONE-4.0-32B": ("exaone4", 64, 5120, 8, 131072),
    "LFM2-1.2B": ("lfm2", 16, 2048, 8, 128000),
    "Olmo-3.1-32B-Instruct": ("olmo2", 64, 5120, 8, 65536),
    "Qwen3.5-9B": ("qwen35", 32, 4096, 4, 262144),
    "Qwen3.6-27B": ("qwen35", 64, 5120, 4, 262144),
    "gemma-3-4b-it": ("gemma3", 34, 2560, 4, 131072),
    "gemma-4-31B-it": ("gemma4", 60, 5376, 4, 262144),
    "gemma-4-E4B-it": ("gemma4", 42, 2560, 2, 131072),
    "phi-4": ("phi3", 40, 5120, 10, 16384),
}


def test_every_published_config_is_expected() -> None:
    assert EXPECTED.keys() == CONFIGS.keys()


@pytest.mark.parametrize("name", EXPECTED)
def test_a_published_config_is_read(name: str) -> None:
    architecture, *expected = EXPECTED[name]
    assert CONFIGS[name]["model_type"] in ARCHITECTURES[architecture].model_types
    config: Any = ARCHITECTURES[architecture].from_hugging_face(CONFIGS[name])
    assert [config.layers, config.hidden, config.kv_heads, config.max_context] == expected
