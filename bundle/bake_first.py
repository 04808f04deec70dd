"""What to do with weights where a bundle is expected."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from hearthd.bundle.file_records import MANIFEST

if TYPE_CHECKING:
    from pathlib import Path

_GGUF = ".gguf"
WEIGHTS_CONFIG = "config.json"  # of a Hugging Face folder


def bake_first(path: Path) -> str:
    """The end of an error for a path that is not a bundle: what to do if it has weights."""
    # os.path, unlike Path, answers False for a folder that cannot be read.
    is_bundle = os.path.exists(path / MANIFEST)  # noqa: PTH110
    has_config = os.path.isfile(path / WEIGHTS_CONFIG)  # noqa: PTH113
    if not is_bundle and (path.suffix == _GGUF or has_config):
        return (
            "; it has weights: give their bundle, as `hearth list` shows it, or bake them with "
            f"`hearth bake {shlex.quote(str(path))}`"
        )
    return ""
