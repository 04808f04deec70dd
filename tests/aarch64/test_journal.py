"""The journal with which `scripts/run_aarch64` resumes after an interruption."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.aarch64.journal import Journal

if TYPE_CHECKING:
    from pathlib import Path


def test_finished_work_is_not_repeated(tmp_path: Path) -> None:
    seen = []

    def work() -> dict[str, object]:
        seen.append("work")
        return {"text": " the", "ids": [1, 2]}

    for _ in range(2):
        journal = Journal(file=tmp_path / "done.json")
        for part in ("one", "two"):
            assert journal.once(part, work) == {"text": " the", "ids": [1, 2]}
    assert len(seen) == 2


def test_failed_or_interrupted_work_is_repeated(tmp_path: Path) -> None:
    journal = Journal(file=tmp_path / "done.json")
    journal.once("before", lambda: 1)

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        journal.once("part", interrupted)
    assert journal.once("part", lambda: 2) == 2
    assert journal.once("before", lambda: 3) == 1
