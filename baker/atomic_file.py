"""Write files atomically: complete or not at all."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hearthd.baker.temporary_folder import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def write_atomically(folder: Path, contents: Mapping[str, str | bytes]) -> None:
    """Write bytes or UTF-8 texts by file name; all are on disk before the first is moved in place.

    Whatever interrupts this, each file has its old content or the new one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with temporary_folder(".hearth.", folder) as temporary:
        for name, content in contents.items():
            with (temporary / name).open("wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
        for name in contents:
            (temporary / name).replace(folder / name)
