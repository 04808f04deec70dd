"""The fields that all manifests share, and their JSON form.

The fields of language models and of array programs are in language_manifest.py and
array_manifest.py.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hearthd.bundle.bundle_errors import NotABundle
from hearthd.bundle.file_records import MANIFEST, VMFB, FileRecord, verify_file
from hearthd.bundle.provenance import OMITTED, Provenance

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "FORMAT",
    "PARAMETER_SCOPE",
    "SEAL",
    "Manifest",
    "ProgramFile",
    "Target",
    "answer_identity",
    "digest",
    "verify_files",
    "write_manifest",
]

FORMAT = 9
# The scope of the compiled program's parameters in params.irpa.
PARAMETER_SCOPE = "model"
# The last field of manifest.json: the sha256 of the text without it.
SEAL = "sha256"

_END = "\n}"


@dataclass(frozen=True, kw_only=True)
class Target:
    """The machine that the program was compiled for.

    `cpu` is LLVM's name of it, with features that are added to the CPU's, such as
    x86-64-v3+avxvnni. `features` are the CPU features that the program needs, with LLVM's names
    (avx2, avx512vnni, i8mm).
    """

    name: str
    triple: str
    cpu: str
    features: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ProgramFile:
    """A compiled program of a bundle.

    `instructions` are its kernels', as in KernelBuild.
    """

    file: str
    target: Target
    instructions: str | None

    @property
    def text(self) -> str:
        """The target and the instructions as text."""
        return f"{self.target.name} ({self.instructions or 'no kernels'})"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The fields of every bundle.

    config          depends on the architecture
    tolerance       largest difference from the golden values that the self-test accepts
    target          the machine that model.vmfb was compiled for
    other_programs  the same program, compiled for other machines; all read the same params.irpa
    statistics      counts of the traced graph, for people
    """

    format: int
    kind: str
    architecture: str
    config: dict[str, Any]
    precision: str
    tolerance: float
    target: Target
    other_programs: tuple[ProgramFile, ...] = field(default=(), metadata=OMITTED)
    statistics: dict[str, int]
    provenance: Provenance
    files: tuple[FileRecord, ...]

    def __post_init__(self) -> None:
        """Raises NotABundle for a program that is not a file of the bundle."""
        names = {file.name for file in self.files}
        for program in self.other_programs:
            if program.file not in names:
                raise NotABundle(
                    f"{MANIFEST}.other_programs: got {program.file!r:.80}, expected one of `files`"
                )

    @property
    def programs(self) -> tuple[ProgramFile, ...]:
        """All programs. The last one that a machine can run is its fastest."""
        instructions = self.provenance.kernels.instructions
        first = ProgramFile(file=VMFB, target=self.target, instructions=instructions)
        return (first, *self.other_programs)

    @property
    def own_memory(self) -> int:
        """Bytes that the bundle adds to SHARED_MEMORY: about the size of its files.

        One of its programs is loaded.
        """
        sizes = {file.name: file.bytes for file in self.files}
        programs = [sizes.pop(program.file, 0) for program in self.programs]
        return sum(sizes.values()) + max(programs)

    def to_json(self) -> str:
        """The text of manifest.json: the fields, then their sha256."""
        return f'{_fields(self).removesuffix(_END)},\n "{SEAL}": "{digest(self)}"{_END}\n'


def digest(manifest: Manifest) -> str:
    """The identity of a bundle, 64 hex digits: the sha256 of its manifest, which has all others."""
    return hashlib.sha256(_fields(manifest).encode()).hexdigest()


def answer_identity(manifest: Manifest) -> str:
    """As `digest`, without golden values and their tolerance.

    A comparison after the bake writes these: the answers of the bundle, and what caches have of
    them, are the same before it and after it.
    """
    kept = {
        name: value
        for name, value in _plain(manifest).items()
        if name != "tolerance" and not name.startswith("golden")
    }
    return hashlib.sha256(_text(kept).encode()).hexdigest()


def verify_files(bundle: Path, manifest: Manifest) -> None:
    """Compare every file's size and sha256 with the manifest; raises Corrupt."""
    for record in manifest.files:
        verify_file(bundle, record)


def write_manifest(bundle: Path, manifest: Manifest) -> None:
    """Write the manifest, the last file of a bundle, atomically."""
    temporary = bundle / (MANIFEST + ".part")
    with temporary.open("w", encoding="utf-8", newline="\n") as file:
        file.write(manifest.to_json())
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(bundle / MANIFEST)


def _fields(manifest: Manifest) -> str:
    return _text(_plain(manifest))


def _text(fields: Any) -> str:
    return json.dumps(fields, indent=1, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    """Records as objects, without the fields that are omitted and have their default."""
    if dataclasses.is_dataclass(value):
        omitted = _omitted(type(value))
        return {
            field.name: _plain(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if field.name not in omitted or getattr(value, field.name) != _default(field)
        }
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


def _default(field: dataclasses.Field[Any]) -> Any:
    makes = field.default_factory
    return field.default if makes is dataclasses.MISSING else makes()


def _omitted(type_: Any) -> set[str]:
    """The fields that JSON lacks if they have their default."""
    return {field.name for field in dataclasses.fields(type_) if field.metadata == OMITTED}
