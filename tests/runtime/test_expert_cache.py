"""Files that are read past the system's cache."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from hearthd.runtime.expert_cache import open_direct
from hearthd.runtime.system.operating_system import IS_LINUX

if TYPE_CHECKING:
    from pathlib import Path


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
