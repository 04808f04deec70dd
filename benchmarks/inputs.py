"""What a benchmark reads: a path that does not exist is one sentence, not a traceback."""

from __future__ import annotations

import argparse
from pathlib import Path

from hearthd.bundle import BundleError, bundle_home, read_manifest


def existing_bundle(text: str) -> Path:
    """A bundle: its folder, or its name in $HEARTH_HOME; raises ArgumentTypeError."""
    try:
        folder = bundle_home.named_bundle(text)
        read_manifest(folder)
    except BundleError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return folder


def existing_path(text: str) -> Path:
    """A file or a folder; raises ArgumentTypeError if it does not exist."""
    path = Path(text)
    if not path.exists():
        raise argparse.ArgumentTypeError(f"{text} does not exist")
    return path
