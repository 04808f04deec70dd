"""The version of Hearth that runs."""

from __future__ import annotations

from functools import cache
from importlib import metadata


@cache
def version() -> str:
    """The version of the installed package, or "not installed" in a bare source tree."""
    try:
        return metadata.version("hearthd")
    except metadata.PackageNotFoundError:
        return "not installed"
