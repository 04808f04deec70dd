"""What the manifests of all bundles share: files, digests, the machine, and the JSON form.

It knows no kind of program: language.py and arrays.py do.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

__all__ = [
    "FORMAT",
    "MANIFEST",
    "PARAMETERS",
    "PARAMETER_SCOPE",
    "VMFB",
    "BundleError",
    "Compiler",
    "Corrupt",
    "FileRecord",
    "Manifest",
    "NotABundle",
    "Target",
    "WrongFormat",
    "WrongKind",
    "digest",
    "record_file",
    "verify_files",
    "write_manifest",
]

FORMAT = 3
MANIFEST = "manifest.json"
VMFB = "model.vmfb"
PARAMETERS = "params.irpa"
# The scope under which the compiled program looks its parameters up.
PARAMETER_SCOPE = "model"

_LONGEST_NAME = 63  # bytes at most 252: file systems end at 255

T = TypeVar("T")


class BundleError(Exception):
    """A bundle cannot be used. The message says what is wrong with it and what to do.

    BundleError
     +- NotABundle        no readable manifest there
     +- WrongFormat       written by another version of Hearth
     +- WrongKind         a bundle of the other kind than what was wanted
     +- Corrupt           a file is missing, or its size or digest is not the manifest's
    """


class NotABundle(BundleError):
    """The path holds no readable manifest."""


class WrongFormat(BundleError):
    """The manifest is of a format that this version does not read."""


class WrongKind(BundleError):
    """The bundle holds another kind of program than was wanted."""


class Corrupt(BundleError):
    """A file of the bundle is missing or differs from what the manifest says."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """The machine that the program was compiled for.

    `features` are the CPU features it needs, by LLVM's names (avx2, avx512vnni, dotprod, i8mm).
    """

    name: str
    triple: str
    cpu: str
    features: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class FileRecord:
    """A file of the bundle, or a file that the bundle was made from."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Compiler:
    """What made model.vmfb."""

    name: str
    version: str
    flags: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What every bundle says of itself, and where it came from.

    `config` has keys of the architecture's own; `tolerance` is the largest difference from the
    golden values that the bundle's precision explains.
    """

    format: int
    kind: str
    hearth: str
    architecture: str
    config: dict[str, Any]
    precision: str
    tolerance: float
    target: Target
    compiler: Compiler
    statistics: dict[str, int]
    sources: tuple[FileRecord, ...]
    files: tuple[FileRecord, ...]

    def to_json(self) -> str:
        """The text of manifest.json."""
        return json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=False) + "\n"


def verify_files(bundle: Path, manifest: Manifest) -> None:
    """Compare every file's size and sha256 with the manifest; raises Corrupt."""
    for record in manifest.files:
        path = bundle / record.name
        inside = Path(record.name).name == record.name and len(record.name) <= _LONGEST_NAME
        if not inside or path.is_symlink():
            raise Corrupt(f"{MANIFEST} names {record.name!r:.80}, a file outside the bundle")
        if not path.is_file():
            raise Corrupt(f"{path} is missing: copy the whole bundle again")
        if path.stat().st_size != record.bytes:
            raise Corrupt(
                f"{path} has {path.stat().st_size} bytes, the manifest says {record.bytes}: "
                "copy the bundle again"
            )
        if record_file(path).sha256 != record.sha256:
            raise Corrupt(f"{path} differs from what was baked (sha256): copy the bundle again")


def digest(manifest: Manifest) -> str:
    """What a bundle is, in 64 hex digits: its manifest, which has the digest of every file."""
    return hashlib.sha256(manifest.to_json().encode()).hexdigest()


def record_file(path: Path) -> FileRecord:
    """Name, size and sha256 of a file."""
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return FileRecord(name=path.name, bytes=path.stat().st_size, sha256=sha256)


def write_manifest(bundle: Path, manifest: Manifest) -> None:
    """Write the manifest, the last file of a bundle, so that it is on disk whole or not at all."""
    temporary = bundle / (MANIFEST + ".part")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(manifest.to_json())
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(bundle / MANIFEST)


def typed(kind: type[T], value: Any, where: str) -> T:
    """JSON data as the dataclass, tuple or scalar `kind`; raises NotABundle naming `where`."""
    return typing.cast("T", _convert(kind, value, where))


def _convert(kind: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _convert_record(kind, value, where)
    if origin is tuple and isinstance(value, list):
        return tuple(_convert(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin is Literal and value in arguments:
        return value
    if origin is dict and isinstance(value, dict):
        return {key: _convert(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    if kind is Any:
        return value
    if origin is types.UnionType and type(value) in arguments:
        return value
    if kind is float and type(value) in (int, float):
        return float(value)
    if kind in (int, str) and type(value) is kind:
        return value
    raise NotABundle(f"{where}: expected {getattr(kind, '__name__', kind)}, got {value!r:.80}")


def _convert_record(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise NotABundle(f"{where}: expected an object, got {value!r:.80}")
    hints = typing.get_type_hints(kind)
    for name in hints.keys() ^ value.keys():
        problem = "missing" if name in hints else "unknown"
        raise NotABundle(f"{where}.{name}: {problem} field")
    return kind(
        **{name: _convert(hint, value[name], f"{where}.{name}") for name, hint in hints.items()}
    )
