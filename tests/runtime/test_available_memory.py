"""The memory that a process may use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hearthd.runtime.system import available_memory as memory
from hearthd.runtime.system.operating_system import physical_memory

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("limit", "free", "available"),
    [
        ("max", "MemFree: 1 kB\nMemAvailable:    3 kB\n", 3 * 1024),
        ("2048", "MemFree: 1 kB\nMemAvailable:    3 kB\n", 2048),
        ("4096", "MemFree: 1 kB\nMemAvailable:    3 kB\n", 3 * 1024),
        ("max", None, physical_memory()),
    ],
)
def test_the_limit_of_a_control_group_or_what_linux_has_left_is_available(
    limit: str, free: str | None, available: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "memory.max").write_text(limit)
    (tmp_path / "own").write_text("0::/\n")
    if free is not None:
        (tmp_path / "free").write_text(free)
    monkeypatch.setattr(memory, "CGROUPS", tmp_path)
    monkeypatch.setattr(memory, "PROCESS_CGROUPS", tmp_path / "own")
    monkeypatch.setattr(memory, "_MEMORY", tmp_path / "free")
    assert memory.available_memory() == available
