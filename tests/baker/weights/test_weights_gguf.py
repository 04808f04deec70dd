"""GGUF files, written by the `gguf` package and compared with its reader."""

from __future__ import annotations

import contextlib
import struct
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from hypothesis import given, settings
from hypothesis import strategies as st

from hearthd.baker.weights import source as weights_source
from hearthd.baker.weights.gguf import GgufSource
from hearthd.baker.weights.source import BadFile, NoSuchTensor, UnsupportedType, WeightsError
from tests.baker.gguf_blocks import random_rows, values_of
from tests.baker.weights.streaming import require_streamed
from tests.conftest import packaged

if TYPE_CHECKING:
    from numpy.typing import NDArray


TYPES = [Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1]
ARRAYS: dict[str, list[Any]] = {
    "strings": ["", "a", "日本"],
    "ints": [1, -2, 3],
    "floats": [0.25, -1.0],
    "bools": [True, False],
}


def random_values(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(5).normal(size=shape).astype(np.float32)


def write_gguf(path: Path, tensors: dict[str, tuple[NDArray[np.float32], Type]]) -> Path:
    writer = gguf.GGUFWriter(path, "test")
    writer.add_string("a.string", "é\n")
    writer.add_bool("a.bool", True)
    writer.add_int32("an.int", -(2**31))
    writer.add_uint64("a.large.int", 2**63)
    writer.add_float32("a.float", 0.5)
    for key, array in ARRAYS.items():
        writer.add_array(key, array)
    for name, (values, type_) in tensors.items():
        writer.add_tensor(name, gguf.quantize(values, type_), raw_dtype=type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_gguf(
        tmp_path / "model.gguf",
        {
            "norm": (random_values(7), Type.F32),
            "table": (random_values(5, 64), Type.Q8_0),
            "half": (random_values(3, 2, 32), Type.F16),
        },
    )


def test_metadata_equals_that_of_the_gguf_library(path: Path) -> None:
    source = GgufSource(path)
    fields = gguf.GGUFReader(path).fields
    theirs = {key: field.contents() for key, field in fields.items() if "GGUF." not in key}
    assert source.metadata() == theirs
    for key, value in source.metadata().items():
        assert type(value) is type(theirs[key])
    assert {key: source.metadata()[key] for key in ARRAYS} == ARRAYS
    assert source.format == "gguf"
    assert source.files() == (path,)


@pytest.mark.parametrize("block_bytes", [1, 2 * 4 * 96, 1 << 20])
@pytest.mark.parametrize("type_", TYPES, ids=lambda type_: type_.name)
@pytest.mark.parametrize("shape", [(96,), (7, 96), (3, 2, 96)])
def test_values_equal_those_of_the_gguf_library(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shape: tuple[int, ...],
    type_: Type,
    block_bytes: int,
) -> None:
    monkeypatch.setattr(weights_source, "BLOCK_BYTES", block_bytes)
    path = write_gguf(
        tmp_path / "model.gguf",
        {"a": (random_values(*shape), type_), "b": (random_values(3), Type.F32)},
    )
    source = GgufSource(path)
    (tensor, _) = gguf.GGUFReader(path).tensors
    expected = gguf.dequantize(tensor.data, type_).reshape(shape)
    assert source.names() == ("a", "b")
    assert source.shape("a") == shape
    np.testing.assert_array_equal(source.read("a"), expected, strict=True)
    blocks = list(source.blocks("a"))
    np.testing.assert_array_equal(np.concatenate(blocks), expected, strict=True)
    for block in blocks:
        assert len(blocks) == 1 or block.nbytes <= block_bytes or len(block) == 1


def test_every_type_has_its_name(path: Path) -> None:
    source = GgufSource(path)
    assert [source.dtype(name) for name in source.names()] == ["f32", "Q8_0", "f16"]


def test_a_large_tensor_is_streamed(tmp_path: Path) -> None:
    rows, columns = 262153, 640
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "test")
    writer.add_tensor_info("table", (rows, columns), np.dtype(np.float32), rows * columns * 4)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    # The values are a hole in the file.
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + 32 + rows * columns * 4)
    require_streamed(GgufSource(path), "table", rows)
    path.unlink()


def test_every_truncated_file_is_rejected(path: Path) -> None:
    whole = path.read_bytes()
    last = gguf.GGUFReader(path).tensors[-1]
    end = last.data_offset + last.n_bytes
    for size in range(4, end):
        path.write_bytes(whole[:size])
        with pytest.raises(BadFile, match="is truncated: it has"):
            GgufSource(path)
    path.write_bytes(whole[:end])
    assert GgufSource(path).read("half").shape == (3, 2, 32)


def test_a_file_that_shrinks_after_opening_is_rejected(path: Path) -> None:
    source = GgufSource(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(BadFile, match="ends within tensor half"):
        source.read("half")


@pytest.mark.parametrize("content", [b"", b"GG", b"<html>", b"FUGG" + bytes(100)])
def test_a_file_that_is_not_gguf_is_rejected(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(BadFile, match="is not a GGUF file"):
        GgufSource(path)


@pytest.mark.parametrize(
    ("find", "skip", "replace", "message"),
    [
        (b"GGUF", 4, struct.pack("<I", 1), "is GGUF version 1, expected 2 or 3; convert the model"),
        (
            b"GGUF",
            4,
            struct.pack(">I", 3),
            "is a big-endian GGUF file.*; convert it with `gguf-conv",
        ),
        (b"a.float", 7, struct.pack("<I", 77), "unknown value type 77"),
        (b"a.float", 0, b"\xff", "not UTF-8"),
        (b"strings", 0, b"a.float", "has the key a.float twice"),
        (b"strings", 11, struct.pack("<I", 9), "unknown value type 9"),
        (b"ints", 12, struct.pack("<Q", 2**61), "truncated"),
        (b"half", 0, b"norm", "has tensor norm twice"),
        (b"table", 9, struct.pack("<Q", 63), r"table of type Q8_0 has shape \(5, 63\)"),
        (b"table", 17, struct.pack("<Q", 0), r"shape \(0, 64\), expected no empty axis"),
        (b"table", 17, struct.pack("<Q", 2**40), "truncated.* tensor table ends"),
    ],
)
def test_a_corrupt_header_is_rejected(
    path: Path, find: bytes, skip: int, replace: bytes, message: str
) -> None:
    data = bytearray(path.read_bytes())
    # Names repeat in no other place of this header.
    assert data.count(find) == 1
    at = data.index(find) + skip
    data[at : at + len(replace)] = replace
    path.write_bytes(data)
    with pytest.raises(BadFile, match=message):
        GgufSource(path)


def test_a_big_endian_file_of_the_gguf_library_is_named(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama", endianess=gguf.GGUFEndian.BIG)
    writer.add_tensor("a", np.ones(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(BadFile, match=r"model\.gguf is a big-endian GGUF file"):
        GgufSource(tmp_path / "model.gguf")


@settings(deadline=None)
@given(st.data())
def test_any_damage_to_the_header_is_a_named_error_or_harmless(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write_gguf(Path(folder) / "model.gguf", {"norm": (random_values(2), Type.F32)})
        damaged = bytearray(path.read_bytes())
        for at in data.draw(st.lists(st.integers(0, len(damaged) - 1), min_size=1, max_size=4)):
            damaged[at] = data.draw(st.integers(0, 255))
        path.write_bytes(damaged)
        # NumPy warns of signalling NaNs, which damaged values may be.
        with contextlib.suppress(WeightsError), np.errstate(all="ignore"):
            source = GgufSource(path)
            for name in source.names():
                source.read(name)


def test_an_unknown_tensor_type_is_rejected(path: Path) -> None:
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, data.index(b"table") + 5 + 4 + 16, 9999)
    path.write_bytes(data)
    with pytest.raises(UnsupportedType, match="tensor table has the unknown type number 9999"):
        GgufSource(path)


def test_q2_0_which_the_library_does_not_know(path: Path) -> None:
    """A tensor of two blocks of Q4_0, which are as large, becomes one of two blocks of Q2_0."""
    write_gguf(path, {"table": (random_values(1, 64), Type.Q4_0)})
    data, rows = bytearray(path.read_bytes()), random_rows("Q2_0", 2, 64)
    struct.pack_into("<IQQI", data, data.index(b"table") + 5, 2, 64, 2, 42)
    (tensor,) = gguf.GGUFReader(path).tensors
    data[tensor.data_offset : tensor.data_offset + rows.nbytes] = rows.tobytes()
    path.write_bytes(data)
    source = GgufSource(path)
    assert source.dtype("table") == "Q2_0"
    np.testing.assert_array_equal(source.read("table"), values_of("Q2_0", rows))


def test_the_alignment_of_the_file_is_used(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "test")
    writer.add_custom_alignment(256)
    writer.add_tensor("a", np.array([1, 2], np.float32))
    writer.add_tensor("b", np.array([3, 4], np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    np.testing.assert_array_equal(GgufSource(path).read("b"), [3, 4])
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, data.index(b"general.alignment") + 17 + 4, 0)
    path.write_bytes(data)
    with pytest.raises(BadFile, match=r"general\.alignment is 0, expected a power of 2"):
        GgufSource(path)


def test_a_type_that_cannot_be_converted_is_rejected(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "test")
    writer.add_tensor("ids", np.zeros((2, 3), np.int32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    source = GgufSource(tmp_path / "model.gguf")
    assert source.dtype("ids") == "I32"
    with pytest.raises(UnsupportedType, match="tensor ids is I32"):
        source.read("ids")


def test_an_absent_tensor_is_an_error_by_name(path: Path) -> None:
    source = GgufSource(path)
    for method in (source.shape, source.dtype, source.read):
        with pytest.raises(NoSuchTensor, match=r"model\.gguf has no tensor 'lm_head'"):
            method("lm_head")


@pytest.mark.slow
@pytest.mark.nightly
def test_the_demo_model_equals_the_reading_of_the_library() -> None:
    source = packaged("gemma3")
    reader = gguf.GGUFReader(source.files()[0])
    fields = {key: field for key, field in reader.fields.items() if "GGUF." not in key}
    assert source.metadata().keys() == fields.keys()
    for key, value in source.metadata().items():
        # Of the vocabulary, every 41st token: the library is slow.
        some = slice(None, None, 41) if isinstance(value, list) else slice(None)
        assert (value[some] if isinstance(value, list) else value) == fields[key].contents(some)
    assert source.names() == tuple(tensor.name for tensor in reader.tensors)
    for tensor in reader.tensors:
        assert source.shape(tensor.name) == tuple(tensor.shape[::-1])
        # Of a large tensor some rows of each part: the library is slow.
        rows = slice(None, None, 1 + len(tensor.data) // 128)
        expected = gguf.dequantize(tensor.data[rows], tensor.tensor_type)
        assert np.array_equal(source.read(tensor.name)[rows], expected), tensor.name
