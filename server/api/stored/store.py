"""Stored responses, conversations and batches: in memory, or in a file that outlives the server.

A record is a response, a conversation or a batch, with its items. Each belongs to an API key, and
no other key finds it. When all records take more than the limit, those that were used least
recently are dropped.

On a full disk nothing more is stored. SQLite writes to its log before it deletes, so another file
keeps disk space for the log: see reserve.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from typing import TYPE_CHECKING, Any

from hearthd.bundle.parsing.text_files import reason
from hearthd.server.api.stored.claims import Claims
from hearthd.server.api.stored.reserve import Reserve
from hearthd.server.errors import StorageFull, TooLargeToStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

FILE = "state.sqlite3"
_SCHEMA = """
PRAGMA auto_vacuum = FULL;
PRAGMA foreign_keys = ON;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS records (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL, id TEXT NOT NULL, used INTEGER NOT NULL, body TEXT NOT NULL,
    UNIQUE (owner, id)
);
CREATE TABLE IF NOT EXISTS items (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    record INTEGER NOT NULL REFERENCES records ON DELETE CASCADE,
    id TEXT NOT NULL, is_output INTEGER NOT NULL, body TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS size (bytes INTEGER NOT NULL);
INSERT INTO size SELECT 0 WHERE NOT EXISTS (SELECT * FROM size);
CREATE TRIGGER IF NOT EXISTS record_added AFTER INSERT ON records
    BEGIN UPDATE size SET bytes = bytes + length(new.body); END;
CREATE TRIGGER IF NOT EXISTS record_changed AFTER UPDATE OF body ON records
    BEGIN UPDATE size SET bytes = bytes + length(new.body) - length(old.body); END;
CREATE TRIGGER IF NOT EXISTS record_deleted AFTER DELETE ON records
    BEGIN UPDATE size SET bytes = bytes - length(old.body); END;
CREATE TRIGGER IF NOT EXISTS item_added AFTER INSERT ON items
    BEGIN UPDATE size SET bytes = bytes + length(new.body); END;
CREATE TRIGGER IF NOT EXISTS item_deleted AFTER DELETE ON items
    BEGIN UPDATE size SET bytes = bytes - length(old.body); END;
CREATE INDEX IF NOT EXISTS records_by_use ON records (used);
CREATE INDEX IF NOT EXISTS items_of_record ON items (record);
CREATE INDEX IF NOT EXISTS items_by_id ON items (id);
"""
# The oldest record, unless the transaction wrote it.
_DROP_OLDEST = (
    "DELETE FROM records WHERE number = "
    "(SELECT number FROM records WHERE used < ? ORDER BY used LIMIT 1)"
)
_ALL = "SELECT id, body FROM records UNION ALL SELECT id, body FROM items"

# Memory of a byte of JSON, with its row and its indexes: measured with items of 140 bytes. Items of
# 3 KB take 1.5.
_MEMORY_PER_BYTE = 2.6

Item = dict[str, Any]  # as JSON, with an id


def limit_in_memory(free: int) -> int:
    """The limit of a store without a folder that takes at most `free` bytes of memory."""
    return max(0, int(free / _MEMORY_PER_BYTE))


class CannotOpenState(Exception):
    """The file of the state cannot be used."""


class Store:
    """Records of all owners, of at most `limit` bytes of JSON.

    `folder` keeps them across restarts; None keeps them in memory. Calls take microseconds and are
    made by one thread. `claims` are for work on records of the folder. Raises CannotOpenState.
    """

    def __init__(self, folder: Path | None = None, *, limit: int = 2**24) -> None:
        self._limit = limit
        self._first_use = 0  # of the transaction
        self.memory = 0 if folder else round(_MEMORY_PER_BYTE * limit)  # bytes, when it is full
        try:
            self._reserve = Reserve(folder) if folder else None
            path = ":memory:" if folder is None else _private_file(folder)
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._database.executescript(_SCHEMA)
            self._require_intact()
            self.claims = Claims(folder)
            if self._reserve is not None:
                self._database.execute(f"PRAGMA wal_autocheckpoint = {self._reserve.log_pages}")
        except (OSError, sqlite3.Error, UnicodeDecodeError) as error:
            raise CannotOpenState(
                f"{folder}: cannot keep responses here: {reason(error)}"
            ) from error

    def _require_intact(self) -> None:
        """Raise sqlite3.DatabaseError for damaged pages or JSON. 147 MB take 0.5 s."""
        found: str = self._database.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise _damaged(found.rpartition("\n")[2])
        for id_, body in self._database.execute(_ALL):
            try:
                intact = isinstance(json.loads(body), dict)
            except (ValueError, RecursionError):
                intact = False
            if not intact:
                raise _damaged(f"{id_} is not a JSON object")

    @property
    def size(self) -> int:
        """Bytes of all records and items, as JSON."""
        size: int = self._database.execute("SELECT bytes FROM size").fetchone()[0]
        return size

    def put(
        self,
        owner: str,
        id_: str,
        body: Item,
        *,
        inputs: Iterable[Item] = (),
        outputs: Iterable[Item] = (),
    ) -> None:
        """Add a record, or replace its body and add items to it; older records may be dropped.

        Raises TooLargeToStore for what exceeds the limit without any other record, and StorageFull.
        """
        new = [
            (item["id"], is_output, json.dumps(item))
            for is_output, items in ((False, inputs), (True, outputs))
            for item in items
        ]
        if self._reserve is not None and not self._reserve.keep():
            raise StorageFull("not stored: the disk of --state-dir is full")
        with self.transaction():
            self._database.execute(
                "INSERT INTO records (owner, id, used, body) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (owner, id) DO UPDATE SET used = excluded.used, "
                "body = excluded.body",
                (owner, id_, self._next_use(), json.dumps(body)),
            )
            record = self._number(owner, id_)
            self._database.executemany(
                "INSERT INTO items (record, id, is_output, body) VALUES (?, ?, ?, ?)",
                [(record, *item) for item in new],
            )
            while (size := self.size) > self._limit:
                if not self._database.execute(_DROP_OLDEST, (self._first_use,)).rowcount:
                    raise TooLargeToStore(size, self._limit)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Either all that the block stores is stored, or nothing; raises StorageFull."""
        if self._database.in_transaction:
            yield
            return
        try:
            self._database.execute("BEGIN IMMEDIATE")
            with self._database:
                self._first_use = self._next_use()
                yield
        except sqlite3.Error as error:
            raise StorageFull(f"not stored: the disk of --state-dir: {error}") from error

    def get(self, owner: str, id_: str) -> Item | None:
        """The body of a record, which counts as used now, or None."""
        with contextlib.suppress(sqlite3.OperationalError):  # such as a full disk
            self._database.execute(
                "UPDATE records SET used = ? WHERE owner = ? AND id = ?",
                (self._next_use(), owner, id_),
            )
        row = self._database.execute(
            "SELECT body FROM records WHERE owner = ? AND id = ?", (owner, id_)
        ).fetchone()
        return None if row is None else json.loads(row[0])

    def records(self, prefix: str) -> list[tuple[str, Item]]:
        """The owners and bodies of the records whose id begins with a prefix, newest first."""
        rows = self._database.execute(
            "SELECT owner, body FROM records WHERE substr(id, 1, ?) = ? ORDER BY number DESC",
            (len(prefix), prefix),
        )
        return [(owner, json.loads(body)) for owner, body in rows]

    def items(self, owner: str, id_: str, *, outputs: bool = True) -> list[Item]:
        """The items of a record, oldest first; without `outputs` the request's only."""
        rows = self._database.execute(
            "SELECT body FROM items WHERE record = ? AND is_output <= ? ORDER BY number",
            (self._number(owner, id_), outputs),
        )
        return [json.loads(body) for (body,) in rows]

    def outputs_of_inputs(
        self, owner: str, id_: str, *, suffix: str, after: int, limit: int
    ) -> list[tuple[int, str]]:
        """The JSON of outputs in the order of their inputs, with the inputs' numbers.

        An output has the id of its input and `suffix`. The page begins after an input's number and
        has at most `limit` outputs.
        """
        rows: list[tuple[int, str]] = self._database.execute(
            "SELECT asked.number, answer.body FROM items AS asked JOIN items AS answer "
            "ON answer.id = asked.id || ? AND answer.record = asked.record "
            "WHERE asked.record = ? AND asked.number > ? AND NOT asked.is_output "
            "ORDER BY asked.number LIMIT ?",
            (suffix, self._number(owner, id_), after, limit),
        ).fetchall()
        return rows

    def item(self, owner: str, id_: str) -> Item | None:
        """The newest item with an id, or None."""
        row = self._database.execute(
            "SELECT items.body FROM items JOIN records ON items.record = records.number "
            "WHERE records.owner = ? AND items.id = ? ORDER BY items.number DESC LIMIT 1",
            (owner, id_),
        ).fetchone()
        return None if row is None else json.loads(row[0])

    def delete(self, owner: str, id_: str) -> bool:
        """Delete a record with its items; return whether there was one. Raises StorageFull."""
        return self._delete("DELETE FROM records WHERE owner = ? AND id = ?", (owner, id_))

    def delete_item(self, owner: str, record: str, id_: str) -> bool:
        """Delete an item of a record; return whether there was one. Raises StorageFull."""
        return self._delete(
            "DELETE FROM items WHERE record = ? AND id = ?", (self._number(owner, record), id_)
        )

    def _delete(self, statement: str, values: tuple[object, ...]) -> bool:
        """Delete rows, on a full disk with the space of the reserve."""
        try:
            with self.transaction():
                return self._database.execute(statement, values).rowcount > 0
        except StorageFull:
            if self._reserve is None:
                raise
        self._reserve.free()
        self._truncate_log()
        with self.transaction():
            deleted = self._database.execute(statement, values).rowcount > 0
        self._truncate_log()
        self._reserve.keep()
        return deleted

    def _truncate_log(self) -> None:
        """Move the pages of SQLite's log to the file, if there is space for them."""
        with contextlib.suppress(sqlite3.OperationalError):
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _number(self, owner: str, id_: str) -> int | None:
        row: Sequence[int] | None = self._database.execute(
            "SELECT number FROM records WHERE owner = ? AND id = ?", (owner, id_)
        ).fetchone()
        return None if row is None else row[0]

    def _next_use(self) -> int:
        last: int = self._database.execute("SELECT coalesce(max(used), 0) FROM records").fetchone()[
            0
        ]
        return last + 1


def _damaged(reason_: str) -> sqlite3.DatabaseError:
    return sqlite3.DatabaseError(f"{FILE} is damaged: {reason_:.200}; move it elsewhere")


def _private_file(folder: Path) -> Path:
    """The file in a folder, both created if they are missing, which others cannot read."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    return path
