"""GGUF adapters: the terms of the PEFT folder that llama.cpp's converter read, and each fault."""

from __future__ import annotations

import math
import re
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest

from hearthd.baker.adapters.adapter import read_adapter
from hearthd.bundle.lora.adapter_factors import read_factors
from hearthd.bundle.lora.adapter_settings import BadAdapter
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.program import ProgramOptions
from tests.golden.record_gguf_adapters import FOLDER, write_folder
from tests.models.lora.lora_cases import CASES
from tests.server import adapter_folders as folders

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

A, B = (f"{folders.TENSOR}.{factor}" for factor in ("lora_a", "lora_b"))


@pytest.mark.parametrize("name", ["gemma3", "llama"])
def test_the_terms_are_those_of_the_folder(name: str, tmp_path: Path) -> None:
    """Of llama, the converter has changed the order of the rows of queries and keys."""
    case, architecture = CASES[name], ARCHITECTURES[name]
    write_folder(tmp_path, case)
    expected = read_adapter(tmp_path, architecture, case.config)
    actual = read_adapter(FOLDER / f"{name}-f32.gguf", architecture, case.config)
    assert actual.keys() == expected.keys()
    for parameter, term in expected.items():
        np.testing.assert_array_equal(actual[parameter].a, term.a)
        np.testing.assert_array_equal(actual[parameter].b, term.b)
        assert actual[parameter].scale == term.scale


def test_factors_of_eight_bits_are_those_of_the_gguf_library() -> None:
    """The matrices with other columns are F16."""
    path, case = FOLDER / "gemma3-q8_0.gguf", CASES["gemma3"]
    terms = read_adapter(path, ARCHITECTURES["gemma3"], case.config)
    stored = {
        tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type)
        for tensor in gguf.GGUFReader(path).tensors
    }
    types = {tensor.tensor_type.name for tensor in gguf.GGUFReader(path).tensors}
    assert types == {"Q8_0", "F16"}
    for parameter, term in terms.items():
        tensor = ARCHITECTURES["gemma3"].tensors.find(case.config, parameter, (), gguf=True).name
        np.testing.assert_array_equal(term.a, stored[f"{tensor}.lora_a"])
        np.testing.assert_array_equal(term.b, stored[f"{tensor}.lora_b"])


@pytest.mark.parametrize("type_", ["F32", "F16", "BF16"])
def test_a_bundle_takes_a_file_as_it_takes_the_folder(type_: str, tmp_path: Path) -> None:
    kind = gguf.GGMLQuantizationType[type_]
    tensors = {
        name: gguf.dequantize(gguf.quantize(values, kind), kind)
        for name, values in folders.tensors(1).items()
    }
    folder = read_factors(folders.write(tmp_path / "folder", tensors), folders.PLACES)
    path = folders.write_gguf(tmp_path / "file.gguf", tensors, type_=kind)
    file = read_factors(path, folders.PLACES)
    assert file.scale == folder.scale
    assert file.digest != folder.digest
    for actual, expected in zip(file.arrays, folder.arrays, strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_without_alpha_the_scale_is_1(tmp_path: Path) -> None:
    tensors = folders.tensors(1)
    read = [
        read_factors(
            folders.write_gguf(tmp_path / "file.gguf", tensors, alpha=alpha), folders.PLACES
        ).scale
        for alpha in (None, 0.0, float(folders.RANK))
    ]
    assert len(set(read)) == 1


def test_rows_that_only_folders_have_in_turn_keep_their_order(tmp_path: Path) -> None:
    """Of GLM-4.1V, the converter puts the columns that turn half after half."""
    path, places = folders.write_gguf(tmp_path / "file.gguf", folders.tensors(1)), folders.PLACES
    in_turn = [replace(matrix, interleaved=matrix.rows) for matrix in places.matrices]
    undone = [replace(matrix, gguf_interleaved=False) for matrix in in_turn]
    plain, moved, kept = (
        read_factors(path, replace(places, matrices=tuple(matrices))).arrays
        for matrices in (places.matrices, in_turn, undone)
    )
    assert all(map(np.array_equal, plain, kept))
    assert not all(map(np.array_equal, plain, moved))


def test_a_program_has_the_names_of_gguf_files() -> None:
    case = CASES["llama"]
    options = ProgramOptions(
        context=64, precision="f32", prefill_tokens=(16,), decode_batches=(1,), adapters=1
    )
    places = ARCHITECTURES["llama"].program(case.config, options).adapters
    assert places.gguf_architecture == "llama"
    by_name = {matrix.gguf: matrix for matrix in places.matrices}
    query, value = by_name["blk.1.attn_q.weight"], by_name["blk.1.attn_v.weight"]
    assert query.module == "model.layers.1.self_attn.q_proj"
    assert (query.interleaved, value.interleaved) == (case.config.head_dim, 0)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"general.type": "model"}, "general.type: got 'model', expected 'adapter'"),
        ({"general.type": None}, "general.type: got None, expected 'adapter'"),
        ({"adapter.type": "dora"}, "adapter.type: got 'dora', expected 'lora'"),
        (
            {"general.architecture": "gemma3"},
            "general.architecture: got 'gemma3', expected 'llama', as in this model",
        ),
        (
            {"general.architecture": "controlvector", "general.type": None},
            "is a control vector, expected a LoRA adapter",
        ),
        (
            {"adapter.alora.invocation_tokens": [1, 2]},
            "adapter.alora.invocation_tokens: got tokens after which the adapter begins, expected",
        ),
        ({"adapter.lora.alpha": "8"}, "adapter.lora.alpha: got '8', expected a number"),
        ({"adapter.lora.alpha": float("nan")}, "adapter.lora.alpha: got nan, expected a number"),
    ],
)
def test_another_kind_of_file_is_named(keys: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = folders.write_gguf(tmp_path / "file.gguf", folders.tensors(1), keys=keys)
    with pytest.raises(BadAdapter, match=f"^{path}:? {re.escape(message)}"):
        read_factors(path, folders.PLACES)


def zeros(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, np.float32)


ROWS, COLUMNS, RANK = folders.ROWS, folders.COLUMNS, folders.RANK


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({A: None}, f"tensor {A} is missing"),
        ({B: None}, f"tensor {B} is missing"),
        ({A: None, B: None}, "has no tensors"),
        ({A: zeros(RANK, 9)}, f"tensor {A} has shape ({RANK}, 9), expected ({RANK}, {COLUMNS})"),
        ({A: zeros(3, COLUMNS)}, f"tensor {A} has shape (3, {COLUMNS}), expected ({RANK}, "),
        ({B: zeros(9, RANK)}, f"tensor {B} has shape (9, {RANK}), expected ({ROWS}, {RANK})"),
        ({B: zeros(2, ROWS, RANK)}, f"tensor {B} has shape (2, {ROWS}, {RANK}), expected ({ROWS}"),
        ({A: zeros(6, COLUMNS), B: zeros(ROWS, 6)}, "rank: got 6, expected at most 4, the --rank"),
        ({A: zeros(0, COLUMNS), B: zeros(ROWS, 0)}, "rank: got 0, expected at least 1"),
        (
            {A: zeros(99, COLUMNS), B: zeros(ROWS, 99)},
            "rank: got 99, expected at most 20, the larg",
        ),
        (
            {A: np.full((RANK, COLUMNS), np.inf, np.float32)},
            f"tensor {A} has values that are not f",
        ),
        ({"blk.0.attn_norm.weight": zeros(8)}, "tensor blk.0.attn_norm.weight does not fit any m"),
        ({"blk.9.ffn_up.weight.lora_a": zeros(4, 8)}, "tensor blk.9.ffn_up.weight.lora_a does not"),
        ({A: np.zeros((RANK, COLUMNS), np.int32)}, f"tensor {A} has the type number 26, expected"),
    ],
)
def test_tensors_that_do_not_fit_are_named(
    tensors: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "file.gguf"
    folders.write_gguf(path, folders.tensors(1), changes=tensors)
    with pytest.raises(BadAdapter, match=f"^{path}:? {re.escape(message)}"):
        read_factors(path, folders.PLACES)


def test_matrices_with_ranks_of_their_own_have_the_terms_of_peft() -> None:
    """PEFT scales each by alpha over its own rank, as llama.cpp does."""
    case = CASES["llama"]
    terms = read_adapter(FOLDER / "llama-ranks.gguf", ARCHITECTURES["llama"], case.config)
    with np.load(FOLDER / "llama-ranks.npz") as expected:
        assert {*terms} == {*expected}
        for parameter, term in terms.items():
            actual = term.scale * (term.b @ term.a)
            np.testing.assert_allclose(actual, expected[parameter], rtol=1e-5, atol=1e-6)
    assert len({(len(term.a), term.scale) for term in terms.values()}) == 1


def test_without_alpha_each_rank_has_the_scale_1(tmp_path: Path) -> None:
    """As llama.cpp: alpha of 0, or a file without it."""
    case, rng = CASES["llama"], np.random.default_rng(0)
    path, width = tmp_path / "file.gguf", case.config.heads * case.config.head_dim
    writer, expected = folders.gguf_writer(path), {}
    for name, rank in (("ffn_up", 2), ("attn_output", 3)):
        columns = case.config.hidden if name == "ffn_up" else width
        rows = case.config.ffn if name == "ffn_up" else case.config.hidden
        a, b = (rng.normal(size=shape).astype("f4") for shape in ((rank, columns), (rows, rank)))
        writer.add_tensor(f"blk.0.{name}.weight.lora_a", a)
        writer.add_tensor(f"blk.0.{name}.weight.lora_b", b)
        expected[rows] = b @ a
    folders.close(writer)
    for term in read_adapter(path, ARCHITECTURES["llama"], case.config).values():
        actual = term.scale * (term.b @ term.a)
        np.testing.assert_allclose(actual, expected[len(term.b)], rtol=1e-5, atol=1e-6)


def test_the_smallest_alpha_is_read_with_ranks_that_differ(tmp_path: Path) -> None:
    """Alpha over the largest rank rounds to 0."""
    case, path = CASES["llama"], tmp_path / "file.gguf"
    writer = folders.gguf_writer(path)
    writer.add_float64("adapter.lora.alpha", math.ulp(0.0))
    for layer, rank in enumerate((1, 4)):
        for factor, shape in (("a", (rank, case.config.hidden)), ("b", (case.config.ffn, rank))):
            writer.add_tensor(f"blk.{layer}.ffn_up.weight.lora_{factor}", np.ones(shape, "f4"))
    folders.close(writer)
    terms = read_adapter(path, ARCHITECTURES["llama"], case.config)
    assert {term.scale for term in terms.values()} == {0.0}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:100], "is truncated: it has 100 bytes, and its header continues"),
        (lambda data: data[:-40], r"has \d+ bytes, and its last tensor ends at byte \d+; download"),
        (lambda data: data + bytes(1 << 21), r"has \d+ bytes, and its last tensor ends at byte"),
        (lambda data: b"{}" + data, "is not a GGUF file: it is a JSON file"),
        (lambda data: data[:4] + struct.pack("<I", 9) + data[8:], "is GGUF version 9, expected 2 "),
    ],
)
def test_a_damaged_file_is_named(
    damage: Callable[[bytes], bytes], message: str, tmp_path: Path
) -> None:
    path = folders.write_gguf(tmp_path / "file.gguf", folders.tensors(1))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(BadAdapter, match=f"^{path} {message}"):
        read_factors(path, folders.PLACES)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadAdapter, match=r"^cannot read .*/absent\.gguf: No such file"):
        read_factors(tmp_path / "absent.gguf", folders.PLACES)


def test_a_bundle_of_an_older_version_takes_folders_alone(tmp_path: Path) -> None:
    path = folders.write_gguf(tmp_path / "file.gguf", folders.tensors(1))
    with pytest.raises(
        BadAdapter, match=r"the bundle has no names of GGUF tensors, .* bake it aga"
    ):
        read_factors(path, folders.OLD_PLACES)
