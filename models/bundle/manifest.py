"""What the manifests of all bundles share: the machine, the origin, and the JSON form.

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
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from models.bundle.bundle_errors import NotABundle
from models.bundle.file_records import MANIFEST, FileRecord, verify_file
from models.bundle.provenance import Provenance  # noqa: TC001  the manifest's types are read

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "FORMAT",
    "PARAMETER_SCOPE",
    "SEAL",
    "Manifest",
    "Target",
    "digest",
    "verify_files",
    "write_manifest",
]

FORMAT = 6
# The scope under which the compiled program looks its parameters up.
PARAMETER_SCOPE = "model"
# The last field of manifest.json: the sha256 of the text without it.
SEAL = "sha256"

T = TypeVar("T")

_END = "\n}"


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
class Manifest:
    """What every bundle says of itself, and where it came from.

    `config` has keys of the architecture's own; `tolerance` is the largest difference from the
    golden values that the bundle's precision explains.
    """

    format: int
    kind: str
    architecture: str
    config: dict[str, Any]
    precision: str
    tolerance: float
    target: Target
    statistics: dict[str, int]
    provenance: Provenance
    files: tuple[FileRecord, ...]

    def to_json(self) -> str:
        """The text of manifest.json: the fields, and behind them their digest."""
        return f'{_fields(self).removesuffix(_END)},\n "{SEAL}": "{digest(self)}"{_END}\n'


def digest(manifest: Manifest) -> str:
    """What a bundle is, in 64 hex digits: its manifest, which has the digest of every file."""
    return hashlib.sha256(_fields(manifest).encode()).hexdigest()


def verify_files(bundle: Path, manifest: Manifest) -> None:
    """Compare every file's size and sha256 with the manifest; raises Corrupt."""
    for record in manifest.files:
        verify_file(bundle, record)


def write_manifest(bundle: Path, manifest: Manifest) -> None:
    """Write the manifest, the last file of a bundle, so that it is on disk whole or not at all."""
    temporary = bundle / (MANIFEST + ".part")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(manifest.to_json())
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(bundle / MANIFEST)


def _fields(manifest: Manifest) -> str:
    return json.dumps(dataclasses.asdict(manifest), indent=1, ensure_ascii=False)


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
    if kind in (int, str, bool) and type(value) is kind:
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
