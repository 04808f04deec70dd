"""The archive, against IREE's own writer and reader."""

from __future__ import annotations

import contextlib
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import iree.runtime as rt
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hearthd.baker.parameters.irpa import (
    ArchiveWriter,
    BadArchive,
    UnknownEntry,
    WrongLength,
    open_archive,
)

Arrays = dict[str, NDArray[np.uint8]]

# Lengths around the alignment of data and of pages, and anything else; names of any UTF-8.
LENGTHS = st.sampled_from([0, 1, 63, 64, 65, 3000, 4096]) | st.integers(0, 9000)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=90)
ENTRIES = st.dictionaries(NAMES, LENGTHS, max_size=12)


def random_arrays(entries: dict[str, int]) -> Arrays:
    random = np.random.default_rng(7)
    return {name: random.integers(0, 256, n).astype(np.uint8) for name, n in entries.items()}


def lengths(arrays: Arrays) -> dict[str, int]:
    return {name: array.nbytes for name, array in arrays.items()}


def write(path: Path, arrays: Arrays) -> None:
    with ArchiveWriter(path, lengths(arrays)) as writer:
        for name, array in arrays.items():
            writer.write(name, array)


@settings(deadline=None)
@given(ENTRIES)
def test_the_archive_equals_that_of_iree_in_every_byte(entries: dict[str, int]) -> None:
    arrays = random_arrays(entries)
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = Path(folder) / "ours.irpa", Path(folder) / "theirs.irpa"
        write(ours, arrays)
        rt.save_archive_file(arrays, theirs)
        assert ours.read_bytes() == theirs.read_bytes()


@settings(deadline=None)
@given(ENTRIES)
def test_both_readers_return_the_written_arrays(entries: dict[str, int]) -> None:
    arrays = random_arrays(entries)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "params.irpa"
        write(path, arrays)
        ours = open_archive(path)
        index = rt.ParameterIndex()
        index.load(str(path))
        assert list(ours) == list(arrays) == [name for name, _ in index.items()]
        for name, entry in index.items():
            np.testing.assert_array_equal(ours[name], arrays[name])
            assert bytes(entry.file_view) == arrays[name].tobytes()
        del index


@settings(deadline=None)
@given(st.data())
def test_blocks_of_any_size_may_be_interleaved(data: st.DataObject) -> None:
    arrays = random_arrays(data.draw(st.dictionaries(NAMES, LENGTHS, min_size=2, max_size=4)))
    with tempfile.TemporaryDirectory() as folder:
        path, whole = Path(folder) / "blocks.irpa", Path(folder) / "whole.irpa"
        write(whole, arrays)
        with ArchiveWriter(path, lengths(arrays)) as writer:
            pieces = {
                name: np.array_split(array, data.draw(st.integers(1, 5)))
                for name, array in arrays.items()
            }
            turns = [name for name, parts in pieces.items() for _ in parts]
            for name in data.draw(st.permutations(turns)):
                writer.write(name, pieces[name].pop(0))
        assert path.read_bytes() == whole.read_bytes()


def test_arrays_of_any_dtype_and_order_are_stored_row_major(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3).T
    arrays = {
        "bf16": values.astype(ml_dtypes.bfloat16),
        "f32": values,
        "strided": np.arange(6, dtype=np.int16)[::2],
        "scalar": np.array(3, np.int8),
    }
    path = tmp_path / "params.irpa"
    with ArchiveWriter(path, {name: array.nbytes for name, array in arrays.items()}) as writer:
        for name, array in arrays.items():
            writer.write(name, array)
    stored = open_archive(path)
    for name, array in arrays.items():
        assert stored[name].tobytes() == array.tobytes(order="C")


def test_data_is_aligned_and_read_only(tmp_path: Path) -> None:
    path = tmp_path / "params.irpa"
    write(path, random_arrays({"a": 1, "b": 65, "c": 7}))
    for array in open_archive(path).values():
        assert array.ctypes.data % 64 == 0
        assert not array.flags.writeable


def test_an_archive_may_exceed_four_gigabytes(tmp_path: Path) -> None:
    big = (4 << 30) + 123
    path = tmp_path / "params.irpa"
    tail = np.arange(1000, dtype=np.uint8)
    # The first entry is left as a hole, so that the disk does not hold 4 GiB.
    with (
        pytest.raises(WrongLength, match=f"{big} bytes missing of 'hole'"),
        ArchiveWriter(path, {"hole": big, "tail": tail.nbytes}) as writer,
    ):
        writer.write("tail", tail)
    try:
        assert path.stat().st_blocks * 512 < 1 << 20
        ours = open_archive(path)
        assert ours["hole"].shape == (big,)
        assert ours["hole"][-1] == 0
        np.testing.assert_array_equal(ours["tail"], tail)
        index = rt.ParameterIndex()
        index.load(str(path))
        (_, hole), (_, end) = index.items()
        assert hole.length == big
        assert end.file_storage[1] > 4 << 30
        assert bytes(end.file_view) == tail.tobytes()
    finally:
        path.unlink()


STREAM_A_TABLE = """
import re, sys
from pathlib import Path
import numpy as np
from hearthd.baker.parameters.irpa import ArchiveWriter
from hearthd.baker.parameters.quantization import to_bf16

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) << 10

rows, columns, step = 262153, 640, 6553
block = np.ones((step, columns), np.float32)
before = peak()
with ArchiveWriter(Path(sys.argv[1]), {"table": rows * columns * 2}) as writer:
    for start in range(0, rows, step):
        writer.write("table", to_bf16(block[: rows - start]))
print(peak() - before)
"""


@pytest.mark.nightly
def test_a_large_table_is_streamed(tmp_path: Path) -> None:
    # VmHWM and not getrusage: Linux hands ru_maxrss of the parent on to a child.
    path = tmp_path / "params.irpa"
    run = subprocess.run(
        [sys.executable, "-c", STREAM_A_TABLE, path], capture_output=True, text=True, check=True
    )
    table = open_archive(path)["table"]
    path.unlink()
    assert table.nbytes == 262153 * 640 * 2
    np.testing.assert_array_equal(table.view(np.uint16)[:: 640 * 1000], 0x3F80)
    assert int(run.stdout) < 0.2 * table.nbytes


def test_too_many_bytes_are_rejected(tmp_path: Path) -> None:
    with ArchiveWriter(tmp_path / "params.irpa", {"a": 4, "b": 4}) as writer:
        writer.write("a", np.zeros(3, np.uint8))
        with pytest.raises(WrongLength, match="2 more bytes for 'a', at most 1 fit"):
            writer.write("a", np.zeros(2, np.uint8))
        writer.write("a", np.zeros(1, np.uint8))
        writer.write("b", np.zeros(4, np.uint8))


def test_too_few_bytes_are_rejected_at_the_end(tmp_path: Path) -> None:
    with (
        pytest.raises(WrongLength, match="1 bytes missing of 'a'"),
        ArchiveWriter(tmp_path / "params.irpa", {"a": 4}) as writer,
    ):
        writer.write("a", np.zeros(3, np.uint8))


def test_an_undeclared_entry_is_rejected(tmp_path: Path) -> None:
    with (
        pytest.raises(UnknownEntry, match="'b' is not declared"),
        ArchiveWriter(tmp_path / "params.irpa", {"a": 4}) as writer,
    ):
        writer.write("b", np.zeros(3, np.uint8))


def test_an_exception_in_the_block_is_kept(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="mine"), ArchiveWriter(tmp_path / "a.irpa", {"a": 4}):
        raise KeyError("mine")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "params.irpa"
    write(path, random_arrays({"a": 5000, "b": 5000}))
    return path


@pytest.mark.parametrize("size", [0, 10, 87, 88, 150, 200, 300, 4096, 10000])
def test_a_truncated_archive_is_rejected(archive: Path, size: int) -> None:
    archive.write_bytes(archive.read_bytes()[:size])
    with pytest.raises(BadArchive, match=r"an archive has 88 at least|truncated"):
        open_archive(archive)


@pytest.mark.parametrize(
    ("offset", "format_", "value", "message"),
    [
        (0, "4s", b"GGUF", "not an archive: it starts with b'GGUF'"),
        (4, "H", 9, "version 9.0"),
        (8, "Q", 96, "unsupported layout"),
        (16, "Q", 4096, "unsupported layout"),
        (32, "Q", 2**60, "record 2 ends at byte"),
        (40, "Q", 2**63, "a segment ends at byte"),
        (96, "Q", 85, "unsupported type"),
        (96 + 8, "I", 1, "record 0 has the unsupported type 1"),
        (96 + 28, "Q", 2**40, "the name of record 0 ends at byte"),
        (96 + 60, "Q", 2**63, "entry 'a' ends at byte"),
        (96 + 68, "Q", 2**63, "entry 'a' ends at byte"),
        (96 + 80 + 76, "s", b"b", "has the entry 'b' twice"),
        (96 + 80 + 76, "s", b"\xff", "not UTF-8"),
    ],
)
def test_a_corrupt_archive_is_rejected(
    archive: Path, offset: int, format_: str, value: object, message: str
) -> None:
    data = bytearray(archive.read_bytes())
    struct.pack_into("<" + format_, data, offset, value)
    archive.write_bytes(data)
    with pytest.raises(BadArchive, match=message):
        open_archive(archive)


@settings(deadline=None)
@given(st.data())
def test_any_damage_to_the_table_is_a_named_error_or_harmless(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "params.irpa"
        write(path, random_arrays({"a": 5, "b": 70}))
        damaged = bytearray(path.read_bytes())
        for at in data.draw(st.lists(st.integers(0, 253), min_size=1, max_size=4)):
            damaged[at] = data.draw(st.integers(0, 255))
        path.write_bytes(damaged)
        with contextlib.suppress(BadArchive):
            open_archive(path)
