"""Files that are read past the system's cache, and the memory that they are read into."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hearthd.runtime.expert_cache import open_direct
from hearthd.runtime.system.operating_system import IS_LINUX, new_pages

if TYPE_CHECKING:
    from mmap import mmap


@pytest.mark.skipif(not IS_LINUX, reason="only Linux reads experts from a file")
def test_a_file_system_may_refuse_direct_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"weights")

    def refuse(*_: object) -> int:
        raise OSError(errno.EINVAL, "refused")

    monkeypatch.setattr(os, "preadv", refuse)
    file = open_direct(tmp_path / "file")
    assert os.read(file, 7) == b"weights"
    os.close(file)


def is_inherited(pages: mmap) -> bool:
    """Whether a forked process has them too: their mapping lacks "dc" in proc_pid_smaps(5)."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    start = end = 0
    for line in Path("/proc/self/smaps").read_text("utf-8").splitlines():
        name, *rest = line.split()
        if not name.endswith(":"):
            start, end = (int(bound, 16) for bound in name.split("-"))
        elif name == "VmFlags:" and start <= address < end:
            return "dc" not in rest
    raise AssertionError(f"no mapping has {address:x}")


@pytest.mark.skipif(not IS_LINUX, reason="only Linux reads experts from a file")
@pytest.mark.parametrize("huge", [False, True])
def test_a_forked_process_lacks_the_pages_that_are_read_into(huge: bool) -> None:
    with new_pages(1 << 16, huge=huge) as pages:
        assert not is_inherited(pages)
