"""Digests of files that are computed while the files are written or read."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hearthd.baker.pipeline import file_digests
from hearthd.baker.pipeline.file_digests import FileDigests
from hearthd.bundle import record_file

if TYPE_CHECKING:
    from pathlib import Path

CHUNK = 64


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Files of 1,000, 0 and 77 bytes."""
    monkeypatch.setattr(file_digests, "_CHUNK", CHUNK)
    monkeypatch.setattr(file_digests, "_KEPT", 3 * CHUNK)
    rng = np.random.default_rng(0)
    paths = [tmp_path / name for name in "abc"]
    for path, size in zip(paths, (1000, 0, 77), strict=True):
        path.write_bytes(rng.bytes(size))
    return paths


@pytest.mark.parametrize("drops", [False, True])
def test_the_records_are_those_of_the_files(files: list[Path], drops: bool) -> None:
    with FileDigests(files, drops=drops) as digests:
        digests.advance(500)
        digests.advance(1003)
        assert digests.records() == tuple(record_file(path) for path in files)


def test_a_file_that_grows_is_hashed_up_to_the_bytes_that_are_final(
    files: list[Path], tmp_path: Path
) -> None:
    path = tmp_path / "growing"  # it does not exist yet
    content = files[0].read_bytes()
    with FileDigests([path]) as digests:
        time.sleep(0.02)
        path.write_bytes(content[:500] + bytes(500))
        digests.advance(500)
        time.sleep(0.02)  # the thread could hash the zeros now
        path.write_bytes(content)
        (record,) = digests.records()
    assert record == record_file(path)


def test_only_what_was_hashed_some_time_ago_may_leave_the_cache(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[int] = []
    monkeypatch.setattr(file_digests, "drop_cached", lambda _, size: dropped.append(size))
    for drops in (False, True):
        with FileDigests(files, drops=drops) as digests:
            digests.records()
        assert dropped == ([192, 384, 576, 768] if drops else [])


def test_an_error_ends_the_thread(files: list[Path]) -> None:
    began = time.monotonic()
    with pytest.raises(ValueError, match="no weights"), FileDigests(files):
        raise ValueError("no weights")
    assert time.monotonic() - began < 10


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), FileDigests([tmp_path / "none"]) as digests:
        digests.records()
