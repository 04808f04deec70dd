"""The sampling parameters in generation_config.json and in GGUF files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file

from hearthd.baker.weights.gguf import GgufSource
from hearthd.baker.weights.recommended_sampling import recommended_sampling, suppressed_tokens
from hearthd.baker.weights.safetensors import SafetensorsSource

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (
            {"do_sample": True, "temperature": 0.6, "top_k": 20, "repetition_penalty": 1.05},
            {"temperature": 0.6, "top_k": 20, "repeat_penalty": 1.05},
        ),
        ({"temperature": None, "top_p": 2, "top_k": "x", "min_p": 0}, {"min_p": 0}),
        (None, {}),
    ],
)
def test_a_folder_recommends_parameters(
    written: dict[str, Any] | None, expected: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text("{}")
    save_file({"a": np.ones(1, np.float32)}, tmp_path / "model.safetensors")
    if written is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(written))
    assert recommended_sampling(SafetensorsSource(tmp_path)) == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [([7, 3, 3, 10, -1, True, "x"], (3, 7)), (None, ()), (5, ())],
)
def test_a_folder_names_tokens_that_are_never_sampled(
    written: object, expected: tuple[int, ...], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text("{}")
    save_file({"a": np.ones(1, np.float32)}, tmp_path / "model.safetensors")
    (tmp_path / "generation_config.json").write_text(json.dumps({"suppress_tokens": written}))
    assert suppressed_tokens(SafetensorsSource(tmp_path), 10) == expected


def test_a_gguf_file_recommends_parameters(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(path := tmp_path / "a.gguf", "llama")
    for key, value in {"temp": 0.6, "penalty_repeat": 1.1, "xtc_threshold": -1.0}.items():
        writer.add_float32(f"general.sampling.{key}", value)
    writer.add_int32("general.sampling.top_k", 20)
    writer.add_int32("general.sampling.penalty_last_n", 128)
    writer.add_string("general.sampling.sequence", "k")
    writer.add_array("tokenizer.ggml.suppress_tokens", [7, 3, 10])
    writer.add_tensor("a", np.ones(1, np.float32))
    for write in ("header", "kv_data", "tensors"):
        cast("Any", getattr(writer, f"write_{write}_to_file"))()
    writer.close()
    expected = {"temperature": 0.6, "top_k": 20, "repeat_last_n": 128, "repeat_penalty": 1.1}
    assert recommended_sampling(GgufSource(path)) == expected
    assert suppressed_tokens(GgufSource(path), 10) == (3, 7)
