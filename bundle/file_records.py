"""The files of a bundle: their records in the manifest, and how files are checked against them.

It knows names, sizes and digests, and nothing about the contents.
"""

from __future__ import annotations

import hashlib
import stat
from dataclasses import dataclass
from pathlib import Path

from hearthd.bundle.bundle_errors import Corrupt

__all__ = [
    "MANIFEST",
    "PARAMETERS",
    "VMFB",
    "FileRecord",
    "file_type",
    "record_file",
    "verify_file",
]

MANIFEST = "manifest.json"
VMFB = "model.vmfb"
PARAMETERS = "params.irpa"

_MAX_NAME_LENGTH = 63  # characters, so at most 252 bytes: file systems allow 255


@dataclass(frozen=True, kw_only=True)
class FileRecord:
    """A file of the bundle, or a file that the bundle was made from."""

    name: str
    bytes: int
    sha256: str


def file_type(path: Path) -> str:
    """The type of file at a path, in words, following links; raises OSError if there is none."""
    kinds = {stat.S_IFREG: "a file", stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe"}
    kinds |= {stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    return kinds[stat.S_IFMT(path.stat().st_mode)]


def record_file(path: Path) -> FileRecord:
    """The name, size and sha256 of a file."""
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return FileRecord(name=path.name, bytes=path.stat().st_size, sha256=sha256)


def verify_file(bundle: Path, record: FileRecord, *, contents: bool = True) -> None:
    """Compare a file's size and, with `contents`, its sha256 with the record; raises Corrupt."""
    path = bundle / record.name
    inside = Path(record.name).name == record.name and len(record.name) <= _MAX_NAME_LENGTH
    if not inside or path.is_symlink():
        raise Corrupt(
            f"{MANIFEST}: {record.name!r:.80} is a file outside the bundle; copy the bundle again"
        )
    if not path.exists():
        raise Corrupt(f"{path}: missing file; copy the whole bundle again")
    if not path.is_file():
        raise Corrupt(f"{path}: got {file_type(path)}, expected a file; copy the bundle again")
    if path.stat().st_size != record.bytes:
        raise Corrupt(
            f"{path}: wrong size: got {path.stat().st_size} bytes, expected {record.bytes}; "
            "copy the bundle again"
        )
    if contents and record_file(path).sha256 != record.sha256:
        raise Corrupt(f"{path}: wrong sha256: differs from what was baked; copy the bundle again")
