"""Files whose download is not finished. Some have their final size, and zeros in place of data."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# How browsers, the hub's client and other programs name a file until it is complete.
_SUFFIXES = (
    ".part", ".partial", ".crdownload", ".opdownload", ".fdmdownload", ".download", ".incomplete",
    ".downloadInProgress", ".!qB", ".!ut", ".aria2",
)  # fmt: skip
_BESIDE = ".aria2"  # aria2 removes this file when the other one is complete


def unfinished_download(path: Path) -> str | None:
    """The end of an error for a file that a program is downloading; None for another one."""
    beside = path.with_name(path.name + _BESIDE)
    if beside.exists():
        return f"its download is not finished, as {beside.name} shows; continue it"
    if path.name.endswith(_SUFFIXES):
        return f"its download is not finished, as the name {path.name} shows; continue it"
    return None
