"""Putting a bundle to its place: at every moment there is the old one or the new one, whole."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hearthd.baker import atomic_folder as staging
from hearthd.baker.atomic_folder import BakeError, check_destination, folder_beside
from hearthd.baker.pipeline.bake import bake
from hearthd.baker.pipeline.bake_options import bake_options
from hearthd.bundle import MANIFEST, NotABundle, WrongFormat, read_manifest
from tests.conftest import Silent

# A manifest of a version that is not read: enough to be a bundle that may be replaced.
_OLD, _NEW = '{"format": 1}', '{"format": 2}'


def put(out: Path, manifest: str = _NEW) -> None:
    with folder_beside(out, size=0) as folder:
        (folder / MANIFEST).write_text(manifest)


def test_a_bundle_is_replaced_and_no_temporary_folder_remains(tmp_path: Path) -> None:
    out = tmp_path / "bundle"
    for manifest in (_OLD, _NEW):
        put(out, manifest)
        assert (out / MANIFEST).read_text() == manifest
        assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_the_cache_forgets_the_files_once_they_are_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What maps the weights next reads them into huge pages."""
    done: list[tuple[object, int]] = []
    monkeypatch.setattr("os.fsync", lambda file: done.append(("on disk", os.fstat(file).st_ino)))
    monkeypatch.setattr(
        "os.posix_fadvise", lambda file, *advice: done.append((advice, os.fstat(file).st_ino))
    )
    put(tmp_path / "bundle")
    number = (tmp_path / "bundle" / MANIFEST).stat().st_ino
    forget = (0, 0, os.POSIX_FADV_DONTNEED)
    assert [what for what, file in done if file == number] == ["on disk", forget]


def test_a_complete_bundle_exists_at_every_moment_of_a_replacement(tmp_path: Path) -> None:
    out = tmp_path / "bundle"
    put(out, _OLD)
    done = threading.Event()
    missing = []

    def look() -> None:
        while not done.is_set():
            try:
                read_manifest(out)
            except WrongFormat:
                pass
            except NotABundle as error:
                missing.append(error)

    watcher = threading.Thread(target=look)
    watcher.start()
    for _ in range(50):
        put(out)
    done.set()
    watcher.join()
    assert not missing


def test_without_exchange_a_replacement_takes_two_renames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_one: Path, other: Path) -> None:
        raise OSError(errno.EINVAL, "no", str(other))

    monkeypatch.setattr(staging, "_exchange", refuse)
    put(tmp_path / "bundle", _OLD)
    put(tmp_path / "bundle")
    assert (tmp_path / "bundle" / MANIFEST).read_text() == _NEW
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_the_target_of_a_symbolic_link_is_replaced(tmp_path: Path) -> None:
    put(tmp_path / "bundle", _OLD)
    (tmp_path / "current").symlink_to("bundle")
    put(tmp_path / "current")
    assert (tmp_path / "current").is_symlink()
    assert (tmp_path / "bundle" / MANIFEST).read_text() == _NEW


_HANG = """
import sys, time
from pathlib import Path
from hearthd.baker.atomic_folder import folder_beside
with folder_beside(Path(sys.argv[1]), size=0) as folder:
    (folder / "manifest.json").write_text("{}")
    print("made", flush=True)
    time.sleep(60)
"""


def test_a_bake_removes_folders_of_killed_bakes_but_not_of_running_ones(
    tmp_path: Path,
) -> None:
    out = tmp_path / "bun[d]le"
    put(out, _OLD)
    command = [sys.executable, "-c", _HANG, str(out)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as killed,
        subprocess.Popen(command, stdout=subprocess.PIPE) as running,
    ):
        for process in (killed, running):
            assert process.stdout is not None
            assert process.stdout.readline() == b"made\n"
        killed.kill()
        killed.wait()
        assert len(list(tmp_path.iterdir())) == 3
        assert (out / MANIFEST).read_text() == _OLD
        put(out)
        assert (out / MANIFEST).read_text() == _NEW
        assert len(list(tmp_path.iterdir())) == 2
        running.send_signal(signal.SIGINT)
        running.wait()
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


def test_a_disk_that_is_too_small_is_an_error_before_the_bake(full_disk: Path) -> None:
    with (
        pytest.raises(
            BakeError, match=r"needs about 5 MB, and .* 0 MB free; free .* another folder$"
        ),
        folder_beside(full_disk / "bundle", size=5_000_000),
    ):
        raise AssertionError("the work began")
    assert [path.name for path in full_disk.iterdir()] == ["rest"]


def test_a_disk_that_becomes_full_leaves_nothing(full_disk: Path) -> None:
    with (
        pytest.raises(BakeError, match=r"the bundle cannot be written \(No space left on device\)"),
        folder_beside(full_disk / "bundle", size=1000) as folder,
    ):
        (folder / MANIFEST).write_text(" " * (1 << 20))
    assert [path.name for path in full_disk.iterdir()] == ["rest"]


@pytest.mark.parametrize("out", ["/proc/bundle", "/proc/folder/bundle"])
def test_a_folder_that_cannot_be_written_is_named(out: str) -> None:
    with (
        pytest.raises(BakeError, match=f"^--out: {out} cannot be written: No such file"),
        folder_beside(Path(out), size=1),
    ):
        raise AssertionError("the folder was made")


@pytest.mark.parametrize("out", ["/proc/bundle", "/proc/folder/bundle"])
def test_a_destination_is_refused_before_the_weights_are_opened(out: str, tmp_path: Path) -> None:
    missing = tmp_path / "missing.safetensors"
    for model in ("gru", "bert", "gemma3"):
        options = bake_options({"model": model, "weights": missing, "out": out})
        with pytest.raises(BakeError, match=f"^--out: {out} cannot be written: No such file"):
            bake(options, Silent())


def test_a_destination_is_checked_without_a_trace(tmp_path: Path) -> None:
    check_destination(None)
    check_destination(tmp_path / "new" / "bundle")
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    for out, reason in (("file", "not a bundle"), ("file/bundle", "Not a directory")):
        with pytest.raises(BakeError, match=f"^--out: {tmp_path / out}\\b.*{reason}"):
            check_destination(tmp_path / out)


@pytest.mark.parametrize(
    ("manifest", "other", "error"),
    [
        ('{"manifest_version": 3}', "background.js", "not a bundle"),
        (_OLD, "adapters/config.json", "not only a bundle: it contains 'adapters'"),
    ],
    ids=["of a browser extension", "with a folder"],
)
def test_a_folder_with_other_files_is_not_replaced(
    manifest: str, other: str, error: str, tmp_path: Path
) -> None:
    path = tmp_path / "out" / other
    path.parent.mkdir(parents=True)
    path.touch()
    (tmp_path / "out" / MANIFEST).write_text(manifest)
    with pytest.raises(BakeError, match=rf"^--out: {tmp_path}/out: {error}.*; choose another"):
        put(tmp_path / "out")
    assert path.exists()


def test_other_errors_are_not_reported_as_a_full_disk(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), folder_beside(tmp_path / "bundle", size=0):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    assert not list(tmp_path.iterdir())
