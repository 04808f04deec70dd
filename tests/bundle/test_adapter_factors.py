"""Adapters as integers: what a program computes with them is near what PEFT's files say."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from hearthd.bundle import AdapterArray, AdapterPlaces, NotABundle
from hearthd.bundle.lora.adapter_factors import AdapterFactors, read_factors
from hearthd.bundle.lora.adapter_folder import TENSORS
from hearthd.bundle.lora.adapter_settings import BadAdapter
from hearthd.bundle.parsing import safetensors_file
from tests.server import adapter_folders as folders

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

SMALL = dataclasses.replace(
    folders.PLACES,
    arrays=(
        AdapterArray(name="a", shape=(2, folders.RANK, folders.COLUMNS), dtype="i8"),
        AdapterArray(name="b", shape=(2, 2, folders.RANK // 4, 64), dtype="i8"),
        AdapterArray(name="b_scale", shape=(2, 2, 16), dtype="f16"),
    ),
)


def product_of(factors: AdapterFactors) -> NDArray[np.float64]:
    """Scale * B A, (rows, columns), of the integers."""
    a, b, b_scale = (array.astype(np.float64) for array in factors.arrays)
    blocks, fours, _ = b.shape
    by_output = b.reshape(blocks, fours, 16, 4).transpose(0, 2, 1, 3).reshape(-1, folders.RANK)
    outputs = by_output * b_scale.reshape(-1, 1)
    product: NDArray[np.float64] = factors.scale * outputs @ a
    return product[: folders.ROWS]


@pytest.mark.parametrize("size", [1e-20, 1e-3, 1.0, 1e10])
@pytest.mark.parametrize("rank", [folders.RANK, 2])
def test_integers_are_near_the_factors(tmp_path: Path, size: float, rank: int) -> None:
    tensors: dict[str, Any] = folders.tensors(3, rank)
    tensors[folders.A][0] *= 100  # a row does not make the others coarse
    tensors[folders.B] *= np.float32(size)
    tensors[folders.B][3] *= np.float32(1e-3)
    tensors[folders.B][5] = 0
    folder = folders.write(tmp_path / "adapter", tensors, rank=rank, alpha=3.0)
    stored = load_file(folder / TENSORS)
    expected = 3.0 / rank * stored[folders.B].astype(np.float64) @ stored[folders.A]
    product = product_of(read_factors(folder, SMALL))
    assert not product[5].any()
    errors = np.abs(product - expected).max(axis=1)
    assert (errors <= 0.015 * np.abs(expected).max(axis=1)).all()


@pytest.mark.parametrize("places", [folders.PLACES, SMALL], ids=["f16", "i8"])
@pytest.mark.parametrize("size", [1e-42, 1e-38, 1e-30])
@pytest.mark.parametrize("factor", [folders.A, folders.B])
def test_tiny_factors_stay_finite(
    tmp_path: Path, factor: str, size: float, places: AdapterPlaces
) -> None:
    tensors: dict[str, Any] = folders.tensors(3, 2)
    tensors[factor] = (tensors[factor] * size).astype(np.float32)
    factors = read_factors(folders.write(tmp_path / "adapter", tensors, rank=2), places)
    assert all(np.isfinite(array.astype(np.float32)).all() for array in factors.arrays)


def test_a_rank_above_the_bundles_is_refused_before_the_tensors_are_read(tmp_path: Path) -> None:
    folder = folders.write(tmp_path / "adapter", folders.tensors(3, 2), rank=folders.RANK + 1)
    with (folder / TENSORS).open("wb") as file:
        file.truncate(2**33)
    with pytest.raises(BadAdapter, match=r"r: got \d+, expected at most \d+, the --rank of the b"):
        read_factors(folder, SMALL)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("a", [2**62] * 50_000, "tensor a has 50000 axes, expected at most 8"),
        ("x" * 10**6, [1, 2], "tensor x{200} has 4 bytes for its shape"),
    ],
    ids=["axes", "name"],
)
def test_a_header_without_end_is_refused_at_once(name: str, shape: list[int], message: str) -> None:
    header = json.dumps({name: {"dtype": "F32", "shape": shape, "data_offsets": [0, 4]}}).encode()
    with pytest.raises(ValueError, match=message):
        safetensors_file.parse(len(header).to_bytes(8, "little") + header + bytes(4))


def test_integers_need_scales() -> None:
    for arrays in (SMALL.arrays[:2], (*SMALL.arrays[:2], folders.PLACES.arrays[0])):
        with pytest.raises(NotABundle, match="outside of an array"):
            AdapterPlaces(count=2, rank=folders.RANK, arrays=arrays, matrices=SMALL.matrices)


@pytest.mark.parametrize("width", [1, 3, -2, 8])
def test_heads_of_a_width_that_does_not_fit_are_an_error(width: int) -> None:
    matrix = dataclasses.replace(SMALL.matrices[0], interleaved=width)
    with pytest.raises(NotABundle, match=rf"matrices\[0\]\.interleaved: got {width}"):
        dataclasses.replace(SMALL, matrices=(matrix,))
