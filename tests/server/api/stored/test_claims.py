"""Claims of processes on the records of one folder."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from hearthd.server.api.stored import claims
from hearthd.server.api.stored.claims import Claims

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

_HOLD = """
import asyncio, pathlib, sys
from hearthd.server.api.stored.claims import Claims

async def hold():
    async with Claims(pathlib.Path(sys.argv[1])).claim("a"):
        print(flush=True)
        await asyncio.sleep(1000)

asyncio.run(hold())
"""


async def is_free(folder: Path, id_: str = "a") -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.1), Claims(folder).claim(id_):
            return True
    return False


def test_a_claim_ends_with_its_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert not asyncio.run(is_free(tmp_path))
        assert asyncio.run(is_free(tmp_path, "b"))
        process.kill()
    assert list(tmp_path.iterdir())
    assert asyncio.run(is_free(tmp_path))
    assert not list(tmp_path.iterdir())


def test_the_next_store_removes_the_files_of_killed_processes(tmp_path: Path) -> None:
    (tmp_path / "a.claim").touch()
    (tmp_path / "insurance.claim").write_text("of another program")
    Claims(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["insurance.claim"]


def test_a_file_that_was_removed_before_its_lock_is_no_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner removed it, and another process has created and locked the next one."""

    def remove(_: int) -> None:
        (tmp_path / "a.claim").unlink()

    monkeypatch.setattr(claims, "lock", remove)
    assert not asyncio.run(is_free(tmp_path))


def test_a_file_system_may_have_no_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    (tmp_path / "a.claim").touch()
    monkeypatch.setattr(claims, "lock", refuse)
    assert asyncio.run(is_free(tmp_path))
