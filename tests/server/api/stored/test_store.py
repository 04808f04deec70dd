"""The store of responses: its limit, its order, its file."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.server.api.stored.store import FILE, CannotOpenState, Store
from hearthd.server.errors import StorageFull, TooLargeToStore

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


def test_what_exceeds_the_limit_is_an_error_and_drops_nothing() -> None:
    store = Store(limit=4000)
    for number in range(2):
        store.put("a", f"r{number}", {"n": number}, inputs=[item(f"i{number}", "x" * 1000)])
    with pytest.raises(TooLargeToStore, match=r"expected at most 4000 \(--state-size\)"):
        store.put("a", "large", {}, inputs=[item("i4", "x" * 5000)])
    with pytest.raises(TooLargeToStore):
        store.put("a", "r1", {"n": 2}, inputs=[item("i5", "x" * 3500)])

    def put_two() -> None:
        with store.transaction():
            store.put("a", "r2", {}, inputs=[item("i6", "x" * 2000)])
            store.put("a", "r3", {}, inputs=[item("i7", "x" * 2000)])

    with pytest.raises(TooLargeToStore):
        put_two()
    assert [store.get("a", f"r{number}") for number in range(4)] == [{"n": 0}, {"n": 1}, None, None]
    assert store.get("a", "large") is None
    assert store.items("a", "r1") == [item("i1", "x" * 1000)]


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


def test_a_record_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put("a", "r", {})
    store._database.execute("PRAGMA query_only = ON")  # as with a full disk
    for write in (lambda: store.put("a", "s", {}), lambda: store.delete("a", "r")):
        with pytest.raises(StorageFull, match="not stored"):
            write()


_FULL_DISK = """
import json, os, sys
from pathlib import Path
from hearthd.server.api.stored.reserve import FILE
from hearthd.server.api.stored.store import Store
from hearthd.server.errors import StorageFull
folder, size, others = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "others"
store, count = Store(folder, limit=2**24), 0
def put():
    store.put("a", f"r{count}", {"n": count}, inputs=[{"id": f"i{count}", "text": "x" * size}])
try:
    while True:
        put()
        count += 1
        if others and count == 9:  # another program fills the disk
            with (folder / "other").open("wb", buffering=0) as file:
                while file.write(bytes(4096)) == 4096:
                    pass
except (StorageFull, OSError):
    pass
full = store.get("a", f"r{count}") is None
deleted = sum(store.delete("a", f"r{number}") for number in range(count))
gone = all(store.get("a", f"r{number}") is None for number in range(count))
(folder / "other").unlink(missing_ok=True)
put()
kept = (folder / FILE).stat().st_size
store.close()
again = Store(folder)
print(json.dumps([count, full, deleted, gone, kept > 0, again.get("a", f"r{count}") is not None]))
"""


@pytest.mark.parametrize("size", [100, 3000, 50_000])
@pytest.mark.parametrize("filled_by", ["records", "others"])
def test_on_a_full_disk_records_can_be_deleted(tmp_path: Path, size: int, filled_by: str) -> None:
    """As often as there are records, and then others can be stored."""
    done = run_on_a_small_disk(tmp_path, [sys.executable, "-c", _FULL_DISK], size, filled_by)
    count, *rest = json.loads(done)
    assert count > 5
    assert rest == [True, count, True, True, True]


def run_on_a_small_disk(folder: Path, command: list[str], *arguments: object) -> str:
    """What a command writes whose folder, its first argument, is a disk of 1 MiB of its own."""
    mount = f'mount -t tmpfs -o size=1m tmpfs {folder} && exec "$@"'
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", mount, "sh", *command, folder, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(f"this system gives tests no disk of their own: {done.stderr}")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_file_with_a_damaged_page_is_refused(tmp_path: Path) -> None:
    """The server would start, and then fail in some requests."""
    store = Store(tmp_path)
    for number in range(200):
        store.put("owner", f"resp_{number}", {"object": "response", "text": "x" * 300})
    store.close()
    content = (tmp_path / FILE).read_bytes()
    page = content.index(b'"text": "xxx')
    for start in range(page & ~4095, len(content), 4096):
        damaged = content[:start] + b"\xff" * 100 + content[start + 100 :]
        (tmp_path / FILE).write_bytes(damaged)
        with pytest.raises(CannotOpenState, match=r"cannot keep responses here: .*(dam|malf)"):
            Store(tmp_path)


@pytest.mark.parametrize("text", ['{"object": "record"}', '{"id": "msg_1", "text": "item"}'])
@pytest.mark.parametrize("damage", [b"x", b"\xff", b"["])
def test_a_file_with_damaged_json_is_refused(text: str, damage: bytes, tmp_path: Path) -> None:
    """SQLite keeps no checksum of its pages."""
    store = Store(tmp_path)
    store.put("owner", "resp_1", {"object": "record"}, inputs=[item("msg_1", "item")])
    store.close()
    file = tmp_path / FILE
    file.write_bytes(file.read_bytes().replace(text.encode(), damage + text[1:].encode()))
    with pytest.raises(CannotOpenState, match=r"cannot keep responses here: .*(damaged|decode)"):
        Store(tmp_path)
