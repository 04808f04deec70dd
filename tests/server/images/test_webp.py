"""WebP files, which a process with a limit decodes."""

from __future__ import annotations

import errno
import os
import resource
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
from PIL import Image

from hearthd.bundle.memory_sum import _DECODING_BYTES, MAX_PIXELS
from hearthd.server.errors import DecoderNotStarted, Unavailable
from hearthd.server.images import webp_process
from hearthd.server.images.decoding import decoded
from hearthd.server.images.webp import open_webp
from hearthd.text.errors import InvalidRequest
from tests.server.images.peak_memory import peak_memory
from tests.server.images.test_decoding import saved

if TYPE_CHECKING:
    from collections.abc import Iterator

# https://developers.google.com/speed/webp/docs/webp_lossless_bitstream_specification
_CODE_LENGTHS = (17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8)  # the order in which their lengths are
_GROUPS = 2**16


def _one_symbol() -> Iterator[tuple[int, int]]:
    """The prefix code of the symbol 0 alone."""
    yield from ((1, 1), (0, 1), (0, 1), (0, 1))


def _bytes(alphabet: int) -> Iterator[tuple[int, int]]:
    """The prefix code in which each of the first 256 symbols has 8 bits."""
    yield from ((0, 1), (len(_CODE_LENGTHS) - 4, 4))
    yield from ((length == 8, 3) for length in _CODE_LENGTHS)
    yield from ((0, 1),) if alphabet == 256 else ((1, 1), (3, 3), (256 - 2, 8))


def _groups(side: int) -> Iterator[tuple[int, int]]:
    """A lossless image whose blocks of 4 x 4 pixels have _GROUPS groups of prefix codes."""
    yield from ((0x2F, 8), (side - 1, 14), (side - 1, 14), (0, 1), (0, 3))
    yield from ((0, 1), (0, 1), (1, 1), (0, 3))  # no transform, no color cache, several groups
    yield (0, 1)  # the groups of the blocks, as an image: green and red are the number
    yield from (*_bytes(280), *_bytes(256), *_one_symbol(), *_one_symbol(), *_one_symbol())
    for block in range((side // 4) ** 2):
        for byte in divmod(block % _GROUPS, 256)[::-1]:
            yield int(f"{byte:08b}"[::-1], 2), 8
    for _ in range(5 * _GROUPS):
        yield from _one_symbol()


def _packed(values: Iterator[tuple[int, int]]) -> bytes:
    """Numbers of some bits each, from the lowest bit on."""
    text = "".join(f"{value:0{bits}b}"[::-1] for value, bits in values)
    return int(text[::-1], 2).to_bytes(-(-len(text) // 16) * 2, "little")


def _webp(data: bytes) -> bytes:
    chunk = b"WEBPVP8L" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(chunk)) + chunk


def test_a_small_file_whose_tables_are_large_is_refused() -> None:
    """They would take 380 MB."""
    data = _webp(_packed(_groups(1024)))
    assert len(data) < 300_000
    assert peak_memory(data) <= _DECODING_BYTES * MAX_PIXELS
    with pytest.raises(InvalidRequest, match=r"damaged or takes more than 167\.8 MB to decode"):
        decoded(data, "image")


def test_a_file_that_takes_too_long_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    busy = tmp_path / "busy.py"
    busy.write_text("import time\nwhile time.process_time() < 4:\n    pass\n")
    monkeypatch.setattr(webp_process, "__file__", str(busy))
    began = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    with pytest.raises(OSError, match="takes too long to decode"), open_webp(b"", 1):
        pass
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - began < 3


def test_a_process_that_cannot_start_is_not_the_fault_of_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = saved(Image.new("RGB", (9, 5)), "WEBP")

    def popen(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(subprocess, "Popen", popen)
    with pytest.raises(DecoderNotStarted, match="Cannot allocate memory; retry later") as refused:
        decoded(data, "image")
    assert isinstance(refused.value, Unavailable)


def _children() -> set[str]:
    return {*Path("/proc/thread-self/children").read_text().split()}


def test_the_process_ends_with_the_block() -> None:
    picture, others = Image.new("RGBA", (9, 5)), _children()
    with open_webp(saved(picture, "WEBP"), 10) as file:
        assert (file.size, file.orientation) == ((9, 5), 0)
        assert _children() - others
    assert not _children() - others
    with pytest.raises(OSError, match="damaged"), open_webp(b"RIFF", 10):
        pass
    assert not _children() - others
