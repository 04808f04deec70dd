"""A digest of a file or folder of weights: fast, and another one after every change."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from hearthd.bundle.source_digest import source_digest

if TYPE_CHECKING:
    from pathlib import Path


def overwrite(path: Path, offset: int, data: bytes) -> None:
    """Change bytes in place, and keep the size and the time of the last change."""
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_a_copy_that_keeps_the_time_has_the_digest_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a.gguf"
    file.write_bytes(bytes(5 * 2**20))
    digest = source_digest(file)
    assert len(digest) == 64
    shutil.copy2(file, tmp_path / "b.gguf")
    assert source_digest(tmp_path / "b.gguf") == digest


def test_the_time_the_size_the_header_and_the_end_are_in_the_digest(tmp_path: Path) -> None:
    file = tmp_path / "a.gguf"
    file.write_bytes(bytes(5 * 2**20))
    digests = [source_digest(file)]
    for offset in (0, 2**20 - 1, 5 * 2**20 - 1, 5 * 2**20):
        overwrite(file, offset, b"x")
        digests.append(source_digest(file))
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 1))
    digests.append(source_digest(file))
    assert len(set(digests)) == len(digests)


def test_samples_are_spread_over_the_file(tmp_path: Path) -> None:
    """Other weights of the same header, size and time have another digest."""
    file = tmp_path / "a.gguf"
    part = 2 * 2**20
    file.write_bytes(bytes(16 * part))
    digest = source_digest(file)
    for start in range(0, 16 * part, part):
        overwrite(file, start, b"x" * part)
        assert source_digest(file) != digest
        overwrite(file, start, bytes(part))
    assert source_digest(file) == digest


def test_the_digest_of_a_folder_has_every_file_that_is_not_hidden(tmp_path: Path) -> None:
    (tmp_path / "2_Dense").mkdir()
    files = [tmp_path / "config.json", tmp_path / "2_Dense" / "config.json"]
    for file in files:
        file.write_text("{}")
    digests = [source_digest(tmp_path)]
    for file in files:
        overwrite(file, 0, b"[]")
        digests.append(source_digest(tmp_path))
    files[0].rename(tmp_path / "renamed.json")
    digests.append(source_digest(tmp_path))
    assert len(set(digests)) == len(digests)
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "lock").touch()
    assert source_digest(tmp_path) == digests[-1]


def test_the_digest_of_a_shard_is_that_of_all_shards(tmp_path: Path) -> None:
    shards = [tmp_path / f"m-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    for shard in shards:
        shard.write_bytes(bytes(10))
    digests = [source_digest(shards[0])]
    assert digests == [source_digest(shards[1])] == [source_digest(shards[2])]
    for shard in shards:
        overwrite(shard, 0, b"x")
        digests.append(source_digest(shards[0]))
    shards[1].unlink()  # reading the weights names it
    digests.append(source_digest(shards[0]))
    assert len(set(digests)) == len(digests)
    with pytest.raises(FileNotFoundError):
        source_digest(shards[1])


def test_an_empty_file_has_a_digest(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert len(source_digest(tmp_path / "empty")) == 64
