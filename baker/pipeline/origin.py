"""Where a bundle comes from, found out while it is baked: this Hearth, the weights, the tools.

It knows git and installed packages, and nothing of what is baked.
"""

from __future__ import annotations

import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from baker.compiler.kernel_objects import PACKAGE
from models.bundle import Hearth, SourceRecord, record_file

if TYPE_CHECKING:
    from collections.abc import Iterable

    from models.bundle import Kernels

_PACKAGE = "hearth"
_ROOT = Path(__file__).parents[2]
# What of a checkout has a say in a bundle's bytes.
_CODE = ("baker", "configs", "hearth", "models", "runtime", "server")
# Packages that read weights, write files or compute golden values.
_TOOLS = ("gguf", "iree-base-runtime", "ml_dtypes", "numpy", "safetensors", "tokenizers")


def hearth() -> Hearth:
    """The Hearth that runs; its revision where it runs from a git checkout."""
    revision = _git("rev-parse", "HEAD")
    return Hearth(
        version=metadata.version(_PACKAGE),
        revision=revision,
        modified=bool(revision and _git("status", "--porcelain", "--", *_CODE)),
    )


def tools(kernels: Kernels) -> dict[str, str]:
    """Versions, by name, of what has a say in a bundle's bytes beside the compiler."""
    names = (*_TOOLS, PACKAGE) if kernels.names else _TOOLS
    return {"python": platform.python_version()} | {name: metadata.version(name) for name in names}


def source_records(paths: Iterable[Path], package: str | None) -> tuple[SourceRecord, ...]:
    """What the provenance says of some files, out of the package of that import name, if any."""
    name = metadata.packages_distributions()[package][0] if package else None
    version = metadata.version(name) if name else None
    return tuple(_source(path, name, version) for path in paths)


def _source(path: Path, package: str | None, version: str | None) -> SourceRecord:
    found = record_file(path)
    return SourceRecord(
        name=found.name,
        bytes=found.bytes,
        sha256=found.sha256,
        package=package,
        version=version,
    )


def _git(*command: str) -> str | None:
    """What git says of the checkout that this file is in; None where there is none."""
    if not (_ROOT / ".git").exists():  # an installed package may lie in another's checkout
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(_ROOT), *command], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
