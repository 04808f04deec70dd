"""Matrices of NVFP4 in GGUF files, times the scales in tensors beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gguf
import numpy as np
import pytest

from hearthd.baker.parameters.quantization import encoded_integers
from hearthd.baker.weights import source as weights_source
from hearthd.baker.weights.gguf_scales import open_gguf
from hearthd.baker.weights.source import BadFile
from hearthd.models.dsl.matrix_format import NVFP4
from hearthd.models.dsl.storage import STORAGES
from tests.baker.gguf_blocks import random_rows, values_of
from tests.models.unpacked import real_weights

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

EXPERTS, ROWS, COLUMNS = 3, 32, 128


def write_file(path: Path, scale: list[float], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """A file with a matrix or experts and their scales; returns the values without these."""
    rows = random_rows("NVFP4", int(np.prod(shape[:-1])), shape[-1])
    writer = gguf.GGUFWriter(path, "test")
    stored = rows.reshape(*shape[:-1], -1)
    writer.add_tensor("up.weight", stored, raw_dtype=gguf.GGMLQuantizationType.NVFP4)
    writer.add_tensor("up.scale", np.array(scale, np.float32))
    writer.add_tensor("up.input_scale", np.array([3], np.float32))
    writer.add_tensor("norm.scale", np.array([5], np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values_of("NVFP4", rows).reshape(shape)


@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
@pytest.mark.parametrize(
    ("scale", "shape"),
    [
        ([0.3], (2 * ROWS, COLUMNS)),
        ([0.3, 1.7, 0.01], (EXPERTS, ROWS, COLUMNS)),
        ([0.3], (EXPERTS, ROWS, COLUMNS)),
    ],
)
def test_a_matrix_is_multiplied_by_its_scales(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    scale: list[float],
    shape: tuple[int, ...],
    block_bytes: int,
) -> None:
    monkeypatch.setattr(weights_source, "BLOCK_BYTES", block_bytes)
    values = write_file(tmp_path / "model.gguf", scale, shape)
    source = open_gguf(tmp_path / "model.gguf")
    assert source.names() == ("up.weight", "norm.scale")
    assert source.dtype("up.weight") == "NVFP4"
    expected = values * np.array(scale, np.float32).reshape(-1, *[1] * (len(shape) - 1))
    np.testing.assert_array_equal(source.read("up.weight"), expected)
    stored = [
        real_weights(encoded_integers(STORAGES[NVFP4.name], block), NVFP4)
        for block in source.integer_blocks("up.weight")
    ]
    actual = np.concatenate(stored).reshape(shape)
    np.testing.assert_allclose(actual, expected, rtol=3e-7)


def test_scales_of_other_experts_are_rejected(tmp_path: Path) -> None:
    write_file(tmp_path / "model.gguf", [1, 2], (EXPERTS, ROWS, COLUMNS))
    with pytest.raises(BadFile, match=r"up\.scale has 2 values for up\.weight"):
        open_gguf(tmp_path / "model.gguf")
