"""Weights that change while they are read, that the disk fails to read, or that are not files."""

from __future__ import annotations

import errno
import io
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file
from typing_extensions import override

from hearthd.baker.pipeline.bake import bake
from hearthd.baker.pipeline.bake_options import bake_options
from hearthd.baker.weights.open_weights import open_weights
from hearthd.baker.weights.safetensors import SafetensorsFile
from hearthd.baker.weights.source import BadFile, read_array
from hearthd.bundle import read_manifest, record_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TENSORS = {"a": np.ones((64, 64), np.float32), "b": np.zeros(3, np.float32)}


def write_gguf(folder: Path) -> Path:
    writer = gguf.GGUFWriter(folder / "model.gguf", "test")
    writer.add_tensor("a", TENSORS["a"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder / "model.gguf"


def write_folder(folder: Path) -> Path:
    (folder / "config.json").write_text("{}")
    save_file(TENSORS, folder / "model.safetensors")
    return folder


def write_shard(folder: Path) -> Path:
    write_folder(folder)
    (folder / "model.safetensors").rename(folder / "a.safetensors")
    index = '{"weight_map": {"a": "a.safetensors", "b": "a.safetensors"}}'
    (folder / "model.safetensors.index.json").write_text(index)
    return folder


# --- which change


def byte_changed(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\1")


def grown(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\0")


def replaced(path: Path) -> None:
    """By a copy that says it is as old: only its inode tells."""
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    other.replace(path)


def stretched(path: Path) -> None:
    """And again said to be as old: only its size tells."""
    before = path.stat().st_mtime_ns
    grown(path)
    os.utime(path, ns=(before, before))


@pytest.mark.parametrize("change", [byte_changed, grown, replaced, stretched])
@pytest.mark.parametrize("write", [write_gguf, write_folder, write_shard])
def test_a_change_of_any_file_is_detected(
    tmp_path: Path, write: Callable[[Path], Path], change: Callable[[Path], None]
) -> None:
    place = write(tmp_path)
    count = len(open_weights(place).files())
    for at in range(count):
        source = open_weights(place)
        source.require_unchanged()
        path = source.files()[at]
        kept = path.read_bytes()
        change(path)
        with pytest.raises(BadFile, match=rf"{path.name} changed while it was read"):
            source.require_unchanged()
        path.write_bytes(kept)


def test_a_removed_file_is_detected(tmp_path: Path) -> None:
    source = open_weights(write_gguf(tmp_path))
    source.files()[0].unlink()
    with pytest.raises(BadFile, match=r"cannot read .*model\.gguf: No such file"):
        source.require_unchanged()


class Meddler:
    """A Progress that changes a file when a stage begins."""

    def __init__(self, stage: str, path: Path) -> None:
        self._stage, self._path = stage, path
        self.latest = ""

    @contextmanager
    def stage(self, name: str, total: int = 0) -> Iterator[Callable[[int], None]]:  # noqa: ARG002
        self.latest = name
        if name == self._stage:
            byte_changed(self._path)
        yield lambda _: None

    def note(self, text: str) -> None:
        pass


def gru_options(folder: Path) -> dict[str, Any]:
    """To bake small weights, the only file of a folder."""
    shapes = {"weight_ih_l0": (12, 3), "weight_hh_l0": (12, 4), "bias_ih_l0": (12,)}
    tensors = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    weights = folder / "gru.safetensors"
    save_file({**tensors, "bias_hh_l0": tensors["bias_ih_l0"]}, weights)
    return {"model": "gru", "weights": weights, "steps": 2, "out": folder / "gru"}


def test_a_bake_whose_weights_change_leaves_nothing(tmp_path: Path) -> None:
    options = gru_options(tmp_path)
    meddler = Meddler("write the weights", options["weights"])
    with pytest.raises(BadFile, match=r"gru\.safetensors changed while it was read"):
        bake(bake_options(options), meddler)
    assert meddler.latest == "write the weights"
    assert list(tmp_path.iterdir()) == [options["weights"]]


def test_weights_that_change_after_they_were_read_have_the_digest_of_before(
    tmp_path: Path,
) -> None:
    options = gru_options(tmp_path)
    expected = record_file(options["weights"]).sha256
    bundle = bake(
        bake_options(options), Meddler("compute golden values with NumPy", options["weights"])
    )
    (source,) = read_manifest(bundle).provenance.sources
    assert source.sha256 == expected != record_file(options["weights"]).sha256


# --- what the disk does not give


class BadDisk(io.FileIO):
    """A file that cannot be read beyond its first byte."""

    good = 0

    @override
    def readinto(self, buffer: Any) -> int | None:
        if self.tell() >= self.good:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().readinto(memoryview(buffer)[: self.good - self.tell()])


@pytest.fixture
def bad_disk(monkeypatch: pytest.MonkeyPatch) -> type[BadDisk]:
    def opened(path: Path, mode: str = "r", buffering: int = -1, **_: Any) -> Any:
        assert mode == "rb"
        file = BadDisk(path)
        return file if buffering == 0 else io.BufferedReader(file, 64)

    monkeypatch.setattr(Path, "open", opened)
    return BadDisk


def test_a_read_error_has_the_reason_of_the_system() -> None:
    """The first page of a process cannot be read: a real EIO."""
    with (
        Path("/proc/self/mem").open("rb", buffering=0) as file,
        pytest.raises(BadFile, match="cannot read x, tensor a: Input/output error"),
    ):
        read_array(file, Path("x"), 10, "tensor a")


@pytest.mark.parametrize("write", [write_gguf, write_folder])
def test_a_read_error_in_a_tensor_is_not_called_truncation(
    tmp_path: Path, write: Callable[[Path], Path], request: pytest.FixtureRequest
) -> None:
    source = open_weights(write(tmp_path))
    disk = request.getfixturevalue("bad_disk")
    disk.good = source.files()[-1].stat().st_size - 100
    with pytest.raises(BadFile, match=r"cannot read .*, tensor a: Input/output error"):
        source.read("a")


@pytest.mark.parametrize("good", [0, 32, 64])
def test_a_read_error_in_a_header_is_reported(
    tmp_path: Path, good: int, request: pytest.FixtureRequest
) -> None:
    path = write_gguf(tmp_path)
    request.getfixturevalue("bad_disk").good = good
    with pytest.raises(BadFile, match=r"cannot read .*model\.gguf: Input/output error"):
        open_weights(path)


# --- paths that are not regular files


def folder(path: Path) -> None:
    path.mkdir()


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


NO_FILES = {"a named pipe": os.mkfifo, "a folder": folder, "a device": device}


@pytest.mark.parametrize("file_type", NO_FILES)
def test_a_path_that_is_not_a_file_is_named_by_its_type(tmp_path: Path, file_type: str) -> None:
    NO_FILES[file_type](tmp_path / "x")
    with pytest.raises(BadFile, match=rf"x is {file_type}, expected a file"):
        SafetensorsFile(tmp_path / "x")
    if file_type != "a folder":
        with pytest.raises(BadFile, match=rf"x is {file_type}, expected a file"):
            open_weights(tmp_path / "x")


@pytest.mark.parametrize("file_type", NO_FILES)
@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "model.safetensors.index.json"]
)
def test_an_entry_of_a_folder_that_is_not_a_file_is_named_by_its_type(
    tmp_path: Path, file_type: str, name: str
) -> None:
    write_folder(tmp_path)
    (tmp_path / name).unlink(missing_ok=True)
    NO_FILES[file_type](tmp_path / name)
    with pytest.raises(BadFile, match=rf"{name} is {file_type}, expected a file"):
        open_weights(tmp_path)


def test_a_shard_that_is_not_a_file_is_rejected(tmp_path: Path) -> None:
    write_shard(tmp_path)
    (tmp_path / "a.safetensors").unlink()
    os.mkfifo(tmp_path / "a.safetensors")
    with pytest.raises(BadFile, match=r"a\.safetensors is a named pipe, expected a file"):
        open_weights(tmp_path)
