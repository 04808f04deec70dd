"""Temporary folders are removed, at last by a later process."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from hearthd.baker.temporary_folder import temporary_folder
from hearthd.runtime.system import operating_system

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

_PREFIX = ".hearth."
_KILLED = """
import os, sys
from pathlib import Path
from hearthd.baker.temporary_folder import temporary_folder
with temporary_folder(".hearth.", Path(sys.argv[1])) as folder:
    (folder / "file").write_text("half")
    os.kill(os.getpid(), 9)
"""


def test_the_next_folder_replaces_what_a_killed_process_left(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 1
    with temporary_folder(_PREFIX, tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder]
    assert not list(tmp_path.iterdir())


def test_a_folder_in_use_or_of_another_name_stays(tmp_path: Path) -> None:
    others = [tmp_path / f"{_PREFIX}{name}" for name in ("notes", "0123456789", "0123456")]
    for other in others:
        other.mkdir()
    with temporary_folder(_PREFIX, tmp_path) as used, temporary_folder(_PREFIX, tmp_path) as folder:
        assert {*tmp_path.iterdir()} == {*others, used, folder}


def test_a_folder_that_is_removed_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removals = [shutil.rmtree]

    def open_folder(path: Path, *, follow: bool = True) -> int:
        descriptor = operating_system.open_folder(path, follow=follow)
        if removals:
            removals.pop()(path)
        return descriptor

    monkeypatch.setattr("hearthd.baker.temporary_folder.open_folder", open_folder)
    with temporary_folder(_PREFIX, tmp_path) as folder:
        assert not removals
        assert folder.is_dir()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "parent" / f"{_PREFIX}01234567"
    target.mkdir()
    link.parent.mkdir()
    link.symlink_to(target)
    with temporary_folder(_PREFIX, link.parent):
        pass
    assert link.is_symlink()
    assert target.is_dir()
