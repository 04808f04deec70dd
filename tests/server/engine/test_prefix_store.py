"""Blocks on disk: complete or absent, whatever happens to the file or to the process."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING
from unittest import mock

import numpy as np
import pytest

from hearthd.server.engine.prefixes import prefix_store
from hearthd.server.engine.prefixes.prefix_cache import PrefixCache
from hearthd.server.engine.prefixes.prefix_store import CannotStore, PrefixStore
from tests.patience import PATIENCE
from tests.server.engine.test_prefix_cache import used

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hearthd.runtime.interface import Rows

BUNDLE = hashlib.sha256(b"bundle").digest()
SIZE = 100_000


def block(number: int) -> tuple[bytes, Rows]:
    """The key and the rows of a block; every byte of the rows is its number."""
    return hashlib.sha256(b"%d" % number).digest(), np.full(SIZE, number % 256, np.uint8)


def write(folder: Path, *numbers: int, limit: int = 2**40, bundle: bytes = BUNDLE) -> None:
    store = PrefixStore(folder, bundle=bundle, limit_bytes=limit)
    for number in numbers:
        store.save(*block(number))
    store.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PrefixStore]:
    store = PrefixStore(tmp_path, bundle=BUNDLE, limit_bytes=2**40)
    yield store
    store.close()


def file_of(folder: Path, number: int) -> Path:
    (path,) = folder.rglob(f"{block(number)[0].hex()}.kv")
    return path


def test_the_files_used_least_are_deleted_first(tmp_path: Path) -> None:
    store = PrefixStore(tmp_path, bundle=BUNDLE, limit_bytes=3 * SIZE + 1000)
    for number in (1, 2, 3):
        store.save(*block(number))
    store.use({block(number)[0]: penalty for number, penalty in ((1, 0.0), (9, 0.5), (2, 1.0))})
    store.save(*block(4), 2.0)
    store.save(*block(5))
    store.close()
    kept = [number for number in range(1, 6) if store.load(block(number)[0]) is not None]
    assert kept == [1, 3, 5]


def test_files_from_before_the_clock_was_set_back_are_deleted_first(tmp_path: Path) -> None:
    write(tmp_path, 1, 2, 3)
    later = time.time() + 86_400
    for number in (1, 2):
        os.utime(file_of(tmp_path, number), (later, later))
    write(tmp_path, 4, 5, limit=3 * SIZE + 1000)
    names = {path.stem for path in tmp_path.rglob("*.kv")}
    assert names == {block(number)[0].hex() for number in (3, 4, 5)}


def test_another_process_loads_saved_blocks(tmp_path: Path, store: PrefixStore) -> None:
    write(tmp_path, 1, 2)
    for number in (1, 2):
        key, rows = block(number)
        loaded = store.load(key)
        assert loaded is not None
        np.testing.assert_array_equal(loaded, rows)
    assert store.load(block(3)[0]) is None


def test_another_bundle_loads_nothing(tmp_path: Path) -> None:
    write(tmp_path, 1)
    other = PrefixStore(tmp_path, bundle=bytes(32), limit_bytes=2**40)
    assert other.load(block(1)[0]) is None
    other.close()


def damage(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    match how:
        case "empty":
            data = bytearray()
        case "header only":
            data = data[: prefix_store._HEADER.size]
        case "short":
            data = data[:-1]
        case "long":
            data += b"x"
        case "another format":
            data[7] ^= 1
        case "a bit of the rows":
            data[-SIZE // 2] ^= 1
        case "a bit of the checksum":
            data[prefix_store._HEADER.size - 1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    "how",
    [
        *("empty", "header only", "short", "long"),
        *("another format", "a bit of the rows", "a bit of the checksum"),
    ],
)
def test_a_damaged_file_is_deleted_with_a_warning(
    tmp_path: Path, store: PrefixStore, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, 1)
    path = file_of(tmp_path, 1)
    damage(path, how)
    assert store.load(block(1)[0]) is None
    assert f"{path}: damaged file" in caplog.text
    assert not path.exists()
    assert store.load(block(1)[0]) is None


@pytest.mark.parametrize("foreign", ["another key", "another bundle"])
def test_a_file_under_a_wrong_name_is_deleted(
    tmp_path: Path, store: PrefixStore, foreign: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, 1)
    place = file_of(tmp_path, 1)
    if foreign == "another key":
        write(tmp_path, 2)
        file_of(tmp_path, 2).replace(place)
    else:
        write(tmp_path / "other", 1, bundle=bytes(32))
        file_of(tmp_path / "other", 1).replace(place)
    assert store.load(block(1)[0]) is None
    assert "damaged file" in caplog.text


def test_the_least_recently_used_files_are_deleted_first(
    tmp_path: Path, store: PrefixStore
) -> None:
    other = bytes(32)
    write(tmp_path, 1, 2)
    write(tmp_path, 3, bundle=other)
    for age, number in ((30, 1), (10, 2), (20, 3)):
        then = time.time() - age
        os.utime(file_of(tmp_path, number), (then, then))
    assert store.load(block(1)[0]) is not None  # now it is the most recently used
    write(tmp_path, 4, limit=3 * (SIZE + 200))
    left = {path.stem for path in tmp_path.rglob("*.kv")}
    assert left == {block(number)[0].hex() for number in (1, 2, 4)}


def test_files_of_others_in_the_cache_dir_are_not_deleted(tmp_path: Path) -> None:
    foreign = [
        tmp_path / name / file
        for name in ("photos", BUNDLE.hex())
        for file in ("old.jpg", f"{BUNDLE.hex()}.jpg")
    ]
    for path in foreign:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(SIZE))
        os.utime(path, (1, 1))
    write(tmp_path, 1, 2, limit=SIZE + 200)
    assert all(path.exists() for path in foreign)
    assert [path.stem for path in tmp_path.rglob("*.kv")] == [block(2)[0].hex()]


def test_a_file_that_cannot_be_deleted_does_not_keep_the_others(tmp_path: Path) -> None:
    write(tmp_path, 1)
    path = file_of(tmp_path, 1)
    path.unlink()
    path.mkdir()  # as undeletable as a file of another user
    os.utime(path, (1, 1))
    write(tmp_path, 2, 3, limit=SIZE + 10_000)
    assert {kept.stem for kept in path.parent.iterdir()} == {path.stem, block(3)[0].hex()}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no modes")
def test_only_the_user_of_the_server_can_read_the_rows(tmp_path: Path) -> None:
    (tmp_path / BUNDLE.hex()).mkdir()  # as an earlier version made it
    write(tmp_path, 1)
    write(tmp_path, 1, bundle=bytes(32))
    folders = (tmp_path / BUNDLE.hex(), tmp_path / bytes(32).hex())
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in folders] == [0o700, 0o700]


def test_part_files_of_a_killed_process_are_deleted(tmp_path: Path) -> None:
    write(tmp_path, 1)
    part = file_of(tmp_path, 1).with_suffix(".123.part")
    part.write_bytes(bytes(SIZE))
    os.utime(part, (1, 1))
    write(tmp_path, 2, limit=2 * (SIZE + 200))
    assert not part.exists()
    assert len(list(tmp_path.rglob("*.kv"))) == 2


def test_a_slow_disk_loses_blocks_and_does_not_delay_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = threading.Event()
    write_file = prefix_store._write

    def wait_and_write(path: Path, header: bytes, rows: Rows) -> None:
        assert slow.wait(PATIENCE)
        write_file(path, header, rows)

    monkeypatch.setattr(prefix_store, "_write", wait_and_write)
    monkeypatch.setattr(prefix_store, "_MAX_WAITING", 20 * SIZE + 1)
    store = PrefixStore(tmp_path, bundle=BUNDLE, limit_bytes=2**40)
    for number in range(50):
        store.save(*block(number))
    slow.set()
    store.close()
    assert len(list(tmp_path.rglob("*.kv"))) == 20


def test_a_block_larger_than_all_that_may_wait_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefix_store, "_MAX_WAITING", 1)
    for number in range(3):
        write(tmp_path, number)
    assert len(list(tmp_path.rglob("*.kv"))) == 3


def test_a_failed_write_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(prefix_store, "_write", full)
    write(tmp_path, 1, 2)
    assert caplog.text.count("No space left on device") == 1  # in a minute
    assert not list(tmp_path.rglob("*.kv"))


def test_an_error_in_the_thread_does_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as fault:
        fault.setattr(prefix_store, "_write", broken)
        store = PrefixStore(tmp_path, bundle=BUNDLE, limit_bytes=2**40)
        store.save(*block(1))
        while not caplog.text:
            time.sleep(0.001)
    store.save(*block(2))
    store.close()
    assert file_of(tmp_path, 2).exists()


def test_a_store_that_fails_costs_no_request() -> None:
    store = mock.Mock()
    store.load.side_effect = MemoryError
    assert PrefixCache(limit_bytes=1, store=store).find(used((b"key",)), 0).blocks == []


def test_an_unreadable_file_is_a_warning(
    tmp_path: Path, store: PrefixStore, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, 1)
    path = file_of(tmp_path, 1)
    path.unlink()
    path.mkdir()
    assert store.load(block(1)[0]) is None
    assert f"{path}: cannot read" in caplog.text


def test_a_cache_dir_that_is_not_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotStore, match=r"file: cannot store the prefix cache"):
        PrefixStore(tmp_path / "file", bundle=BUNDLE, limit_bytes=1)


def test_a_file_is_renamed_after_it_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []

    def fsync(file: int) -> None:
        synced.append((os.fstat(file).st_size, len(list(tmp_path.rglob("*.kv")))))

    monkeypatch.setattr(os, "fsync", fsync)
    write(tmp_path, 1)
    assert synced[0] == (SIZE + prefix_store._HEADER.size, 0)
    assert [named for _, named in synced[1:]] == [1]  # and then the folder


def test_a_process_killed_while_it_writes_leaves_only_whole_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.server.engine.store_writer", str(tmp_path)],
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"writing\n"
        process.kill()
        process.wait()
        process.stdout.close()
    store = PrefixStore(tmp_path, bundle=BUNDLE, limit_bytes=2**40)
    number = 0
    while (rows := store.load(block(number)[0])) is not None:
        np.testing.assert_array_equal(rows, block(number)[1])
        number += 1
    store.close()
    assert number > 10
    assert len(list(tmp_path.rglob("*.kv"))) == number
    assert not caplog.records


def test_on_a_full_disk_no_part_of_a_file_remains(
    full_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (full_disk / "rest").unlink()
    store = PrefixStore(full_disk, bundle=bytes(32), limit_bytes=1 << 30)
    block = np.zeros(600_000, np.uint8)  # the disk has room for one
    for key in (b"a" * 32, b"b" * 32, b"c" * 32):
        store.save(key, block)
    store.close()
    assert len(list(full_disk.glob("*/*"))) == 1
    assert caplog.text.count("cannot write") == 1
    assert "cannot write 600000 bytes" in caplog.text
    assert "No space left on device" in caplog.text
