"""The origin of a bundle: the version of Hearth, the files of weights, the tools."""

from __future__ import annotations

import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from hearthd.baker.compiler.kernel_objects import PACKAGE
from hearthd.bundle import Hearth, SourceRecord

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hearthd.bundle import FileRecord, KernelBuild

_PACKAGE = "hearthd"
_ROOT = Path(__file__).resolve().parents[2]
# Packages that read weights, write files or compute golden values.
_TOOLS = ("gguf", "iree-base-runtime", "ml_dtypes", "numpy", "safetensors", "tokenizers")


def hearth() -> Hearth:
    """The running version of Hearth, with its revision in a git checkout."""
    revision = _git("rev-parse", "HEAD")
    return Hearth(
        version=metadata.version(_PACKAGE),
        revision=revision,
        modified=bool(revision and _git("status", "--porcelain", "--", *_code())),
    )


def _code() -> list[str]:
    """The folders of a checkout that decide the bytes of a bundle: the package, and its links."""
    links = (path.name for path in (_ROOT / _PACKAGE).iterdir() if path.is_symlink())
    return [_PACKAGE, *sorted(links)]


def tools(kernels: KernelBuild) -> dict[str, str]:
    """Versions, by name, of the tools other than the compiler that decide a bundle's bytes."""
    names = (*_TOOLS, PACKAGE) if kernels.names else _TOOLS
    return {"python": platform.python_version()} | {name: metadata.version(name) for name in names}


def source_records(records: Iterable[FileRecord], package: str | None) -> tuple[SourceRecord, ...]:
    """Records of sources; `package` is the import name of the package that has them, if any."""
    name = metadata.packages_distributions()[package][0] if package else None
    version = metadata.version(name) if name else None
    return tuple(
        SourceRecord(
            name=record.name,
            bytes=record.bytes,
            sha256=record.sha256,
            package=name,
            version=version,
        )
        for record in records
    )


def _git(*command: str) -> str | None:
    """The output of a git command in this checkout; None without a checkout or git."""
    if not (
        _ROOT / ".git"
    ).exists():  # else git would search the folders above an installed package
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(_ROOT), *command], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
