"""Files whose headers or texts would take gigabytes: refused before they are in memory."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import pytest

from hearthd.bundle import NotABundle, read_manifest
from hearthd.bundle.parsing import gguf_header, text_files
from hearthd.bundle.parsing.gguf_header import BadGguf, read_header

PATH = Path("m.gguf")


def header(*, tensors: int = 0, keys: int = 1, rest: bytes = b"") -> io.BytesIO:
    return io.BytesIO(b"GGUF" + struct.pack("<IQQ", 3, tensors, keys) + rest)


def array(element: int, count: int, key: bytes = b"k") -> bytes:
    return struct.pack("<Q", 1) + key + struct.pack("<IIQ", 9, element, count)


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        pytest.param(header(tensors=2**40), r"has 1099511627776 tensors, expected at most", id="t"),
        pytest.param(header(keys=2**40), r"has 1099511627776 keys, expected at most", id="keys"),
        pytest.param(
            header(rest=array(8, 2**23 + 1) + bytes(2**26 + 8)),
            r"its arrays have 8388609 values, expected",
            id="words",
        ),
        pytest.param(
            header(
                keys=3, rest=b"".join(array(0, 2**22, k) + bytes(2**22) for k in (b"a", b"b", b"c"))
            ),
            r"its arrays have 12582912 values, expected at most 8388608$",
            id="arrays together",
        ),
    ],
)
def test_a_header_of_many_values_is_refused(file: io.BytesIO, reason: str) -> None:
    with pytest.raises(BadGguf, match=rf"^m\.gguf:? {reason}"):
        read_header(file, PATH)


def test_a_long_header_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_header, "_MAX_BYTES", 1000)
    long = struct.pack("<Q", 1) + b"k" + struct.pack("<IQ", 8, 2000) + bytes(2000)
    with pytest.raises(BadGguf, match=r"its header continues to byte \d+, expected at most 1000$"):
        read_header(header(rest=long), PATH)


def test_a_large_text_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "MAX_BYTES", 1000)
    file = tmp_path / "manifest.json"
    file.write_bytes(b" " * 1000)
    assert text_files.read_text(file) == " " * 1000
    file.write_bytes(b" " * 1001)
    with pytest.raises(OSError, match="it has more than 1000 bytes"):
        text_files.read_text(file)
    with pytest.raises(NotABundle, match="it has more than 1000 bytes"):
        read_manifest(tmp_path)
