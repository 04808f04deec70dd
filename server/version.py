"""The version of Hearth that runs."""

from __future__ import annotations

from importlib import metadata


def version() -> str:
    """The version of the installed package, or "not installed" in a bare source tree."""
    try:
        return metadata.version("hearthd")
    except metadata.PackageNotFoundError:
        return "not installed"
