"""The store of responses: its limit, its order, its file."""

from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.server.api.stored.store import FILE, CannotOpenState, Store

if TYPE_CHECKING:
    from pathlib import Path


def item(id_: str, text: str = "") -> dict[str, Any]:
    return {"id": id_, "text": text}


def test_the_record_that_was_used_least_recently_is_dropped_first() -> None:
    store = Store(limit=4000)
    for number in range(3):
        store.put("a", f"r{number}", {"n": number}, inputs=[item(f"i{number}", "x" * 1000)])
    assert store.get("a", "r0") == {"n": 0}
    store.put("b", "r3", {"n": 3}, inputs=[item("i3", "x" * 1000)])
    assert [store.get("a", f"r{number}") for number in range(3)] == [{"n": 0}, None, {"n": 2}]
    assert store.item("a", "i1") is None
    assert store.items("a", "r0") == [item("i0", "x" * 1000)]
    store.put("a", "large", {}, inputs=[item("i4", "x" * 5000)])
    assert store.get("a", "large") is None


def test_the_size_is_that_of_the_bodies() -> None:
    """It is kept up to date by triggers: to add up all bodies would stop every stream."""
    store = Store()
    store.put("a", "r", {"n": 1}, inputs=[item("i", "x" * 100)], outputs=[item("o")])
    store.put("a", "r", {"n": 22222}, outputs=[item("p", "x" * 50)])
    store.put("a", "s", {"n": 3}, inputs=[item("q")])
    store.delete_item("a", "r", "o")
    expected = [{"n": 22222}, item("i", "x" * 100), item("p", "x" * 50), {"n": 3}, item("q")]
    assert store.size == sum(len(json.dumps(body)) for body in expected)
    store.delete("a", "r")
    assert store.size == sum(len(json.dumps(body)) for body in expected[3:])


def test_a_record_can_be_read_where_nothing_can_be_written() -> None:
    store = Store()
    store.put("a", "r", {"n": 1})
    store._database.execute("PRAGMA query_only = ON")  # as with a full disk
    assert store.get("a", "r") == {"n": 1}


def test_a_file_keeps_the_records(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    store = Store(folder)
    store.put("a", "r", {"n": 1}, inputs=[item("i")], outputs=[item("o")])
    store.put("a", "r", {"n": 2}, outputs=[item("p", "é")])
    store.close()
    assert stat.S_IMODE((folder / FILE).stat().st_mode) == 0o600
    again = Store(folder)
    assert again.get("a", "r") == {"n": 2}
    assert again.items("a", "r") == [item("i"), item("o"), item("p", "é")]
    assert again.items("a", "r", outputs=False) == [item("i")]
    assert again.get("b", "r") is None
    assert again.delete("a", "r")
    assert not again.delete("a", "r")
    assert again.items("a", "r") == []
    again.close()


def test_a_file_that_is_no_database_is_an_error(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"no database" * 100)
    with pytest.raises(CannotOpenState, match="cannot keep responses here"):
        Store(tmp_path)
    with pytest.raises(CannotOpenState, match=r"cannot keep responses here: File exists$"):
        Store(tmp_path / FILE)


def test_a_record_that_cannot_be_written_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(tmp_path)
    store.close()
    store.put("a", "r", {})
    assert "r was not stored" in caplog.text
