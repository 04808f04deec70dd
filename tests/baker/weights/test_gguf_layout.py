"""Where the tensors of a GGUF file lie: in any order, at any alignment, and each damage."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import gguf
import numpy as np
import pytest

from hearthd.baker.weights.gguf import GgufSource
from hearthd.baker.weights.source import BadFile

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

COUNT = 8  # values of each tensor, which take 32 bytes


class Placed(NamedTuple):
    """A tensor of COUNT values, and its offset in the data."""

    name: str
    offset: int
    value: float


def write(path: Path, tensors: Sequence[Placed], alignment: int | None = None) -> Path:
    """Write a file by hand, since the gguf package orders tensors, and checks them."""
    keys = b""
    if alignment is not None:
        keys = string("general.alignment") + struct.pack("<II", 4, alignment)
    data = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), bool(keys)) + keys
    for name, offset, _ in tensors:
        data += string(name) + struct.pack("<IQIQ", 1, COUNT, 0, offset)
    start = -(-len(data) // (alignment or 32)) * (alignment or 32)
    stored = bytearray(data.ljust(start, b"\0"))
    for _, offset, value in tensors:
        stored = stored.ljust(start + offset, b"\0")
        stored[start + offset : start + offset + 4 * COUNT] = np.full(COUNT, value, "<f4").tobytes()
    path.write_bytes(stored)
    return path


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


@pytest.mark.parametrize("alignment", [None, 1, 8, 32, 64, 4096])
def test_tensors_lie_in_any_order_with_gaps(alignment: int | None, tmp_path: Path) -> None:
    step = 2 * max(alignment or 32, 32)
    tensors = [Placed("a", 2 * step, 1), Placed("b", 0, 2), Placed("c", step, 3)]
    path = write(tmp_path / "model.gguf", tensors, alignment)
    source = GgufSource(path)
    assert source.names() == ("a", "b", "c")
    for name, _, value in tensors:
        np.testing.assert_array_equal(source.read(name), np.full(COUNT, value, np.float32))
    for tensor in gguf.GGUFReader(path).tensors:  # which reads any order, too
        np.testing.assert_array_equal(source.read(tensor.name), tensor.data)


@pytest.mark.parametrize(
    ("offsets", "alignment", "message"),
    [
        ((0, 0), None, "tensors a and b overlap at byte 96; download or copy it again"),
        ((32, 16), 16, "tensors b and a overlap at byte"),
        ((0, 24), None, "tensor b has offset 24, expected a multiple of 32, the alignment; down"),
        ((0, 32), 64, "tensor b has offset 32, expected a multiple of 64, the alignment; down"),
        ((0, 48), 24, "general.alignment is 24, expected a power of 2"),
    ],
)
def test_a_damaged_layout_is_one_sentence(
    offsets: tuple[int, int], alignment: int | None, message: str, tmp_path: Path
) -> None:
    tensors = [Placed(name, offset, 1) for name, offset in zip("ab", offsets, strict=True)]
    path = write(tmp_path / "model.gguf", tensors, alignment)
    with pytest.raises(BadFile) as error:
        GgufSource(path)
    assert str(error.value).startswith(f"{path}: {message}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("offset", [64, 2**40, 2**63 + 32, 2**64 - 32])
def test_an_offset_beyond_the_file_is_one_sentence(offset: int, tmp_path: Path) -> None:
    path = write(tmp_path / "model.gguf", [Placed("a", 0, 1), Placed("b", 32, 2)])
    data = path.read_bytes()
    at = data.rindex(struct.pack("<Q", 32), 0, data.index(string("b")) + 50)
    path.write_bytes(data[:at] + struct.pack("<Q", offset) + data[at + 8 :])
    with pytest.raises(BadFile, match=r"model\.gguf is truncated: it has 160 bytes, and tensor b "):
        GgufSource(path)
