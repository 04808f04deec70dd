"""Weights on no grid: the noise, and the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

from benchmarks.off_grid import write_off_grid
from hearthd.baker.weights.gguf import GgufSource

if TYPE_CHECKING:
    from pathlib import Path


def test_each_weight_has_uniform_noise_of_half_a_step(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(tmp_path / "q.gguf", "gemma3")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_K_M)
    writer.add_array("tokenizer.ggml.tokens", ["a", "é"])
    writer.add_float32("a.float", 0.5)
    values = rng.normal(size=(64, 256)).astype(np.float32)
    types = {"q4_0": Type.Q4_0, "q8_0": Type.Q8_0, "q5_1": Type.Q5_1, "norm": Type.F32}
    for name, type_ in types.items():
        writer.add_tensor(name, gguf.quantize(values, type_), raw_dtype=type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    write_off_grid(tmp_path / "q.gguf", tmp_path / "f32.gguf")

    before, after = (GgufSource(tmp_path / name) for name in ("q.gguf", "f32.gguf"))
    changed = {"general.file_type": gguf.LlamaFileType.ALL_F32.value}
    assert dict(after.metadata()) == dict(before.metadata()) | changed
    for name in types:
        assert after.dtype(name) == "f32"
        noise = (after.read(name) - before.read(name)).reshape(-1, 32)
        if name == "norm":
            np.testing.assert_array_equal(noise, 0)
            continue
        # The distinct values of a group are multiples of its step apart.
        distinct = [np.unique(group) for group in before.read(name).reshape(-1, 32)]
        steps = np.array([np.diff(group)[np.diff(group) > 1e-6].min() for group in distinct])
        quotients = noise[:200] / steps[:200, np.newaxis]
        assert np.abs(quotients).max() < 0.51
        if name != "q8_0":  # of 8 bits, groups of 32 seldom have two neighbours
            assert abs(np.std(quotients) - 12**-0.5) < 0.02
