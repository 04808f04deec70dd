"""What to do with weights where a bundle is expected."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from hearthd.bundle.file_records import MANIFEST

if TYPE_CHECKING:
    from pathlib import Path

_GGUF = ".gguf"
WEIGHTS_CONFIG = "config.json"  # of a Hugging Face folder


def bake_first(path: Path) -> str:
    """The end of an error for a path that is not a bundle: what to do if it has weights."""
    is_bundle = (path / MANIFEST).exists()
    if not is_bundle and (path.suffix == _GGUF or (path / WEIGHTS_CONFIG).is_file()):
        return f"; it has weights: bake them with `hearth bake {shlex.quote(str(path))}`"
    return ""
