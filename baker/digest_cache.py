"""Files that took long to make, each kept by the digest of all that decides its bytes."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from hearthd.baker.atomic_file import write_atomically
from hearthd.bundle.parsing import strict_json
from hearthd.bundle.parsing.typed_json import typed

if TYPE_CHECKING:
    from pathlib import Path

Record = TypeVar("Record")


class Kept(NamedTuple, Generic[Record]):
    """A kept file: its bytes and its record."""

    data: bytes
    record: Record


@dataclass(frozen=True, kw_only=True)
class DigestCache(Generic[Record]):
    """A folder of files with one suffix, each with a record in JSON.

    record       the dataclass of the records
    limit_bytes  size of all files; the ones that were used longest ago make room
    """

    folder: Path
    suffix: str
    record: type[Record]
    limit_bytes: int

    def find(self, digest: str) -> Kept[Record] | None:
        """The file of a digest; None if it is not kept, or damaged."""
        path = self._path(digest)
        try:
            entry: Any = strict_json.parse(path.with_suffix(".json").read_text(encoding="utf-8"))
            data = path.read_bytes()
            record = typed(self.record, entry["record"])
            os.utime(path)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return Kept(data, record) if entry.get("sha256") == _sha256(data) else None

    def keep(self, digest: str, data: bytes, record: Record) -> None:
        """Keep a file, if the folder can be written."""
        path = self._path(digest)
        fields: Any = record
        entry = {"sha256": _sha256(data), "record": asdict(fields)}
        contents: dict[str, str | bytes] = {
            path.name: data,
            path.with_suffix(".json").name: json.dumps(entry),
        }
        with suppress(OSError):
            write_atomically(self.folder, contents)
            self._make_room()

    def _path(self, digest: str) -> Path:
        return self.folder / f"{digest}{self.suffix}"

    def _make_room(self) -> None:
        files = sorted(
            ((path.stat(), path) for path in self.folder.glob(f"*{self.suffix}")),
            key=lambda entry: entry[0].st_mtime_ns,
            reverse=True,
        )
        total = 0
        for status, path in files:
            total += status.st_size
            if total > self.limit_bytes:
                path.unlink(missing_ok=True)
                path.with_suffix(".json").unlink(missing_ok=True)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
