"""Configurations with numbers that no model has: one sentence, in little memory and time."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.config import ConfigError
from tests.models.families.cases import CASES
from tests.models.families.converted_files import converted
from tests.models.families.family_recording import recorded

if TYPE_CHECKING:
    from collections.abc import Iterator

HUGE = 2**31 - 2
MAX_BYTES = 2**26


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MAX_BYTES


@pytest.mark.parametrize(
    ("case", "key", "value"),
    [
        ("chatglm-glm", "rope.dimension_count", 7),
        ("chatglm-glm", "rope.dimension_count", 65536),
        ("chatglm-glm", "attention.head_count", 65536),
        ("gemma4-moe-experts", "block_count", HUGE),
        ("gemma4-moe-experts", "feed_forward_length", []),
        ("gemma3n-gemma3n", "block_count", HUGE),
        ("laguna-laguna", "block_count", HUGE),
        ("jamba-jamba", "attention.head_count_kv", []),
        ("lfm2-lfm2", "attention.head_count_kv", []),
        ("mistral3-mistral3", "rope.scaling.yarn_beta_slow", 1e-308),
        ("falcon-h1-falcon_h1", "ssm.conv_kernel", HUGE),
        ("lfm2-lfm2", "shortconv.l_cache", 65),
    ],
)
def test_a_gguf_file_of_impossible_sizes_is_refused(case: str, key: str, value: object) -> None:
    recording = converted(case)
    architecture = str(recording.metadata["general.architecture"])
    shapes = {name: shape for name, (shape, _) in recording.tensors.items()}
    metadata = {**recording.metadata, f"{architecture}.{key}": value}
    with pytest.raises(ConfigError, match=r"^[^\n]{10,300}$"):
        ARCHITECTURES[architecture].from_gguf(metadata, shapes, lambda _: np.ones(8, np.float32))


@pytest.mark.parametrize(
    ("case", "changes"),
    [
        ("apertus-apertus", {"head_dim": HUGE}),
        ("arcee-arcee", {"head_dim": HUGE}),
        ("baichuan-baichuan", {"head_dim": HUGE}),
        ("chatglm-glm", {"head_dim": HUGE}),
        ("gemma3n-gemma3n", {"num_hidden_layers": HUGE}),
        ("gemma4-equal", {"num_kv_shared_layers": HUGE}),
        ("qwen35-qwen35", {"linear_conv_kernel_dim": HUGE}),
        ("gemma3n-gemma3n", {"altup_num_inputs": HUGE}),
        ("gptj-gptj", {"rotary_dim": 7}),
        ("gptj-gptj", {"rotary_dim": HUGE}),
    ],
)
def test_a_config_json_of_impossible_sizes_is_refused(case: str, changes: dict[str, Any]) -> None:
    config = {**recorded(case).config, **changes}
    with pytest.raises(ConfigError, match=r"^[^\n]{10,300}$"):
        ARCHITECTURES[CASES[case].architecture].from_hugging_face(config)
