"""Projectors of images in the folder of a GGUF file: mmproj-*.gguf."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def is_projector_name(name: str) -> bool:
    """Whether a file has the name of a projector, as `llama-server -hf` finds it."""
    return "mmproj" in name.lower() and name.lower().endswith(".gguf")


def projectors_beside(path: Path) -> tuple[Path, ...]:
    """The projectors in the folder of a GGUF file, by name; none for a folder or a projector."""
    if not path.is_file() or is_projector_name(path.name):
        return ()
    return tuple(
        file
        for file in sorted(path.parent.glob("*.*"))
        if is_projector_name(file.name) and file.is_file()
    )
