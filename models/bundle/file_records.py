"""The files of a bundle: what the manifest says of each, and whether it is so.

It knows names, sizes and digests, and nothing of what is in a file.
"""

from __future__ import annotations

import hashlib
import stat
from dataclasses import dataclass
from pathlib import Path

from models.bundle.bundle_errors import Corrupt

__all__ = [
    "MANIFEST",
    "PARAMETERS",
    "VMFB",
    "FileRecord",
    "kind_of_file",
    "record_file",
    "verify_file",
]

MANIFEST = "manifest.json"
VMFB = "model.vmfb"
PARAMETERS = "params.irpa"

_LONGEST_NAME = 63  # bytes at most 252: file systems end at 255


@dataclass(frozen=True, kw_only=True)
class FileRecord:
    """A file of the bundle, or a file that the bundle was made from."""

    name: str
    bytes: int
    sha256: str


def kind_of_file(path: Path) -> str:
    """What is at a path, in words, looking through links; raises OSError if nothing is."""
    kinds = {stat.S_IFREG: "a file", stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe"}
    kinds |= {stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    return kinds[stat.S_IFMT(path.stat().st_mode)]


def record_file(path: Path) -> FileRecord:
    """Name, size and sha256 of a file."""
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return FileRecord(name=path.name, bytes=path.stat().st_size, sha256=sha256)


def verify_file(bundle: Path, record: FileRecord, *, contents: bool = True) -> None:
    """Compare a file's size and, unless told not to, sha256 with its record; raises Corrupt."""
    path = bundle / record.name
    inside = Path(record.name).name == record.name and len(record.name) <= _LONGEST_NAME
    if not inside or path.is_symlink():
        raise Corrupt(f"{MANIFEST} names {record.name!r:.80}, a file outside the bundle")
    if not path.exists():
        raise Corrupt(f"{path} is missing: copy the whole bundle again")
    if not path.is_file():
        raise Corrupt(f"{path} is {kind_of_file(path)}, wanted a file: copy the bundle again")
    if path.stat().st_size != record.bytes:
        raise Corrupt(
            f"{path} has {path.stat().st_size} bytes, the manifest says {record.bytes}: "
            "copy the bundle again"
        )
    if contents and record_file(path).sha256 != record.sha256:
        raise Corrupt(f"{path} differs from what was baked (sha256): copy the bundle again")
