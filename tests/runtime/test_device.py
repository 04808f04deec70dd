"""The memory of a device: mapped weights, reserved pages, and the end of both."""

from __future__ import annotations

import gc
import mmap
import os
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path

import iree.runtime as rt
import numpy as np
import pytest

from hearthd.bundle import PARAMETERS, BundleError, LanguageManifest, read_manifest_of
from hearthd.runtime.interface import read_prompt
from hearthd.runtime.iree.device import CannotLoad, Device
from hearthd.runtime.language_model import IreeRuntime
from hearthd.runtime.system import mapped_pages
from hearthd.runtime.system.mapped_pages import (
    MappedFile,
    few_mapped_pages,
    move_to_memory,
    release_pages,
)
from tests.server import tiny

_DEADLINE = 20.0  # seconds until pages are released
HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundles") / "tiny"
    tiny.write_bundle(path)
    return path


@pytest.mark.parametrize("laid_out", [0, 1])
def test_pages_of_rearranged_weights_are_returned_to_the_system(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, laid_out: int
) -> None:
    released: list[MappedFile] = []
    monkeypatch.setattr("hearthd.runtime.iree.device.release_pages", released.append)
    manifest = read_manifest_of(bundle, LanguageManifest)
    footprint = replace(manifest.footprint, laid_out=laid_out)
    runtime = IreeRuntime(bundle, replace(manifest, footprint=footprint), threads=1)
    for tokens in ([1, 2, 3], [4, 5]):
        logits = read_prompt(runtime, tokens)
        np.testing.assert_allclose(logits, tiny.expected(tokens), rtol=1e-5, atol=1e-5)
    assert [mapped.path for mapped in released] == [(bundle / PARAMETERS).resolve()] * laid_out


def test_experts_have_slots_and_the_other_weights_stay_mapped(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released: list[MappedFile] = []
    monkeypatch.setattr("hearthd.runtime.iree.device.release_pages", released.append)
    manifest = read_manifest_of(bundle, LanguageManifest)
    name, page = "layers.0.experts.up.low", mmap.PAGESIZE
    footprint = replace(manifest.footprint, laid_out=1, read=1, experts=1, expert_arrays={name: 4})
    streamed = replace(manifest, footprint=footprint)
    bundle = shutil.copytree(bundle, tmp_path / "experts")
    experts = np.ones(1 << 20, np.uint8)
    arrays = {"w": tiny.WEIGHTS, "other": np.zeros(1000, np.uint8), name: experts}
    rt.save_archive_file(arrays, bundle / PARAMETERS)
    runtime = IreeRuntime(bundle, streamed, threads=1, expert_memory=3 * (1 << 18) + 4 * page)
    runtime.decode([0], [1], [0])
    size = (bundle / PARAMETERS).stat().st_size
    assert sum(part.size for part in released) == size - page  # without the page of the mark
    with pytest.raises(CannotLoad, match="serve it without --no-mmap"):
        IreeRuntime(bundle, streamed, threads=1, mapped=False)
    monkeypatch.setattr("hearthd.runtime.iree.device.IS_LINUX", False)
    with pytest.raises(CannotLoad, match="have Linux read experts"):
        IreeRuntime(bundle, streamed, threads=1)
    old = replace(manifest, footprint=replace(footprint, expert_arrays=None))
    with pytest.raises(BundleError, match="an earlier version"):
        IreeRuntime(bundle, old, threads=1)


def test_a_system_without_asynchronous_reads_is_named(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = read_manifest_of(bundle, LanguageManifest)
    footprint = replace(manifest.footprint, read=1, experts=1, expert_arrays={"experts.up": 4})
    bundle = shutil.copytree(bundle, tmp_path / "experts")
    arrays = {"w": tiny.WEIGHTS, "experts.up": np.ones(1 << 20, np.uint8)}
    rt.save_archive_file(arrays, bundle / PARAMETERS)
    monkeypatch.setattr("hearthd.runtime.expert_cache.platform.machine", lambda: "vax")
    with pytest.raises(CannotLoad, match="cannot read experts from their file here: vax"):
        IreeRuntime(bundle, replace(manifest, footprint=footprint), threads=1)


@pytest.mark.parametrize("name", ["weights", "a b\nc "])
def test_released_pages_of_a_file_are_read_again(tmp_path: Path, name: str) -> None:
    def resident() -> int:
        """Bytes of the mapping of the file that are in memory."""
        (_, mapping) = Path("/proc/self/smaps").read_text("utf-8").split(f"/{escaped}\n", 1)
        return int(mapping.split("Rss:", 1)[1].split()[0]) * 1024

    size, escaped = 64 * mmap.PAGESIZE, name.replace("\n", "\\012")
    (tmp_path / name).write_bytes(b"x" * size)
    with (
        (tmp_path / name).open("rb") as file,
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped,
    ):
        assert mapped[:: mmap.PAGESIZE] == b"x" * 64
        with few_mapped_pages([MappedFile.at(memoryview(mapped), tmp_path / name)], 0):
            deadline = time.monotonic() + _DEADLINE
            while resident():
                assert time.monotonic() < deadline
                time.sleep(0.01)
        assert mapped[:: mmap.PAGESIZE] == b"x" * 64
        assert resident() == size
        release_pages(MappedFile.at(memoryview(mapped), tmp_path / name))
        assert resident() == 0
        assert mapped[-1:] == b"x"


def test_mapped_weights_are_read_into_huge_pages(bundle: Path) -> None:
    """Where the file system has them: the mapping has the advice, "hg" in proc_pid_smaps(5)."""
    file = (bundle / PARAMETERS).resolve()
    device = Device(bundle, threads=1)
    (_, mapping) = Path("/proc/self/smaps").read_text("utf-8").split(f"{file}\n", 1)
    flags = mapping.split("VmFlags:", 1)[1].split("\n", 1)[0].split()
    assert ("hg" in flags) is HUGE.exists()
    del device


def test_reserved_zeros_take_memory_when_they_are_written(bundle: Path) -> None:
    def resident() -> int:
        pages = Path("/proc/self/statm").read_text("ascii").split()[1]
        return int(pages) * mmap.PAGESIZE

    device, rows, size = Device(bundle, threads=1), 4096, 64 * 2**20
    before = resident()
    view = device.reserve((rows, size // 4 // rows), "f32")
    gc.collect()  # what was only the view's to keep would be gone
    values = view.map().asarray((rows, size // 4 // rows), np.dtype(np.float32))
    assert not values[:: rows // 8].any()
    assert resident() - before < size // 8
    values[: rows // 2] = 1
    assert resident() - before > size // 4


# --- weights in memory


def huge_bytes() -> int:
    """Bytes of this process in huge pages."""
    lines = Path("/proc/self/smaps_rollup").read_text("ascii").splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("AnonHugePages"))


def test_a_mapping_that_moves_to_memory_keeps_its_bytes(tmp_path: Path) -> None:
    """Of a file that ends within a page. Another mapping of the file stays."""
    path, contents = tmp_path / "weights", np.random.default_rng(0).bytes((9 << 20) + 5)
    path.write_bytes(contents)
    before = huge_bytes()
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as moved,
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as other,
    ):
        move_to_memory(MappedFile.at(memoryview(moved), path))
        with path.open("r+b") as written:
            written.write(bytes(len(contents)))
        assert moved[:] == contents
        assert other[:] == bytes(len(contents))
        if "[never]" not in HUGE.read_text("ascii"):
            assert huge_bytes() - before >= 6 << 20
    assert huge_bytes() - before < 6 << 20


def test_each_piece_leaves_the_cache_before_the_next_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the file in memory twice, Linux found no huge pages for half of a copy of 9 GB."""
    path, dropped = tmp_path / "weights", list[int]()
    path.write_bytes(bytes(5 * mmap.PAGESIZE + 1))
    monkeypatch.setattr(mapped_pages, "_PIECE", 2 * mmap.PAGESIZE)
    monkeypatch.setattr(mapped_pages, "drop_cached", lambda _, size: dropped.append(size))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        move_to_memory(MappedFile.at(memoryview(mapped), path))
    assert dropped == [2 * mmap.PAGESIZE, 4 * mmap.PAGESIZE, 5 * mmap.PAGESIZE + 1]


def test_a_file_that_became_shorter_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(3 * mmap.PAGESIZE))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        os.truncate(path, mmap.PAGESIZE)
        with pytest.raises(OSError, match="became shorter"):
            move_to_memory(MappedFile.at(memoryview(mapped), path))


@pytest.mark.parametrize("mapped", [True, False])
def test_the_pages_of_another_device_stay_as_they_are(bundle: Path, mapped: bool) -> None:
    """Of the same file: only the mapping of a device itself is released, or moved."""

    def mappings() -> set[tuple[str, ...]]:
        """The address of each mapping of the weights, and its flags."""
        texts = re.split(r"^(?=[0-9a-f]+-)", smaps.read_text("utf-8"), flags=re.MULTILINE)
        of_file = [text.splitlines() for text in texts if f" {file}\n" in text]
        return {(lines[0], *(line for line in lines if "VmFlags" in line)) for lines in of_file}

    file, smaps = (bundle / PARAMETERS).resolve(), Path("/proc/self/smaps")
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as other:
        before = mappings()
        device = Device(bundle, threads=1, mapped=mapped)
        assert before <= mappings()
        assert len(mappings() - before) == mapped
        assert other[:] == file.read_bytes()
        del device


def test_weights_in_memory_give_the_same_logits(bundle: Path) -> None:
    manifest = read_manifest_of(bundle, LanguageManifest)
    mapped = IreeRuntime(bundle, manifest, threads=1)
    expected = read_prompt(mapped, [1, 2, 3])
    del mapped
    gc.collect()
    copied = IreeRuntime(bundle, manifest, threads=1, mapped=False)
    assert str((bundle / PARAMETERS).resolve()) not in Path("/proc/self/maps").read_text("utf-8")
    assert np.array_equal(read_prompt(copied, [1, 2, 3]), expected)
