"""A model whose rows are filled with zeros keeps its values, and its norms their results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gguf
import numpy as np

from benchmarks.wide_weights import wide_shape, write_wide
from hearthd.baker.weights.gguf import GgufSource

if TYPE_CHECKING:
    from pathlib import Path


def test_the_shape_is_the_next_one_that_256_columns_divide() -> None:
    assert wide_shape((576, 9, 3)) == (768, 12, 4)
    assert wide_shape((512, 8, 8)) == (512, 8, 8)


def test_new_columns_are_zero_and_count_in_norms(tmp_path: Path) -> None:
    source, out = tmp_path / "small.gguf", tmp_path / "wide.gguf"
    rng = np.random.default_rng(0)
    tensors = {
        "token_embd.weight": rng.normal(size=(192, 192)).astype("f4"),  # as many tokens as columns
        "output_norm.weight": rng.normal(size=192).astype("f4"),
        "blk.0.attn_k.weight": rng.normal(size=(96, 192)).astype("f4"),
    }
    writer = gguf.GGUFWriter(source, "llama")
    writer.add_embedding_length(192)
    writer.add_head_count(6)
    writer.add_head_count_kv(3)
    writer.add_layer_norm_rms_eps(1e-5)
    for name, values in tensors.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    write_wide(source, out)
    wide = GgufSource(out)
    keys = wide.metadata()
    assert [keys[f"llama.{key}"] for key in ("embedding_length", "attention.head_count_kv")] == [
        512,
        8,
    ]
    expected = {"token_embd.weight": (192, 512), "blk.0.attn_k.weight": (256, 512)}
    for name, shape in expected.items():
        values, old = wide.read(name), tensors[name]
        assert values.shape == shape
        np.testing.assert_array_equal(values[: old.shape[0], : old.shape[1]], old)
        assert not values[old.shape[0] :].any()
        assert not values[:, old.shape[1] :].any()
    x, norm = rng.normal(size=192).astype("f4"), wide.read("output_norm.weight")
    filled = np.pad(x, (0, 320))
    epsilon = keys["llama.attention.layer_norm_rms_epsilon"]
    assert isinstance(epsilon, float)
    actual = filled * norm / np.sqrt(np.mean(filled**2) + epsilon)
    old_norm = x * tensors["output_norm.weight"] / np.sqrt(np.mean(x**2) + 1e-5)
    np.testing.assert_allclose(actual, np.pad(old_norm, (0, 320)), rtol=1e-5)
