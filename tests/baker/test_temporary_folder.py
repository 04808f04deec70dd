"""Temporary folders are removed, at last by a later process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from hearthd.baker.temporary_folder import temporary_folder

if TYPE_CHECKING:
    from pathlib import Path

_PREFIX = ".hearth."
_KILLED = """
import os, sys
from pathlib import Path
from hearthd.baker.temporary_folder import temporary_folder
with temporary_folder(".hearth.", Path(sys.argv[1])) as folder:
    (folder / "file").write_text("half")
    os.kill(os.getpid(), 9)
"""


def _make_old(folder: Path) -> None:
    os.utime(folder, (0, 0))


def test_the_next_folder_replaces_what_a_killed_process_left(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    (leftover,) = tmp_path.iterdir()
    _make_old(leftover)
    with temporary_folder(_PREFIX, tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder]
    assert not list(tmp_path.iterdir())


def test_a_folder_in_use_or_of_another_name_stays(tmp_path: Path) -> None:
    others = [tmp_path / f"{_PREFIX}{name}" for name in ("notes", "0123456789", "0123456")]
    for other in others:
        other.mkdir()
        _make_old(other)
    with temporary_folder(_PREFIX, tmp_path) as used:
        _make_old(used)
        with temporary_folder(_PREFIX, tmp_path) as folder:
            assert {*tmp_path.iterdir()} == {*others, used, folder}


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "parent" / f"{_PREFIX}01234567"
    target.mkdir()
    link.parent.mkdir()
    link.symlink_to(target)
    _make_old(target)
    with temporary_folder(_PREFIX, link.parent):
        pass
    assert link.is_symlink()
    assert target.is_dir()
