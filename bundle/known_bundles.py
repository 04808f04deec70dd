"""The bundles that this machine knows: those that it baked, verified with a key, or warned about.

The file `known-bundles` in $HEARTH_HOME has the digest of each, one per line. Nothing is written to
a bundle. If the file cannot be written, the warning is repeated in the next process.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from hearthd.bundle import bundle_home
from hearthd.bundle.bundle_errors import NotABundle
from hearthd.bundle.manifests.manifest import digest

if TYPE_CHECKING:
    from pathlib import Path

    from hearthd.bundle.manifests.manifest import Manifest

log = logging.getLogger(__name__)

FILE = "known-bundles"

_warned: set[str] = set()  # in this process


def remember(manifest: Manifest) -> None:
    """Record a bundle as known, if the file can be written."""
    known = digest(manifest)
    with contextlib.suppress(OSError, NotABundle):
        if known not in _recorded():
            folder = bundle_home.home()
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / FILE).open("a", encoding="utf-8") as file:
                file.write(f"{known}\n")  # one write: processes do not mix lines


def remember_copy(manifest: Manifest, copy: Manifest) -> None:
    """Record a copy of a bundle, with another manifest, as known if the bundle is known."""
    with contextlib.suppress(OSError, NotABundle):
        if digest(manifest) in _recorded():
            remember(copy)


def warn_if_unknown(bundle: Path, manifest: Manifest) -> None:
    """Log a warning before the code of a bundle runs here for the first time."""
    found = digest(manifest)
    if found in _warned:
        return
    with contextlib.suppress(OSError, NotABundle):
        if found in _recorded():
            return
    _warned.add(found)
    log.warning(
        "%s: this bundle was not baked on this machine, and no known key signed it: its machine "
        "code can do everything that your user can; if you do not trust its source, stop, and "
        "require a signature: see hearth verify --key and hearth serve --require-signature",
        bundle,
    )
    remember(manifest)


def _recorded() -> set[str]:
    """The digests in the file; raises OSError or NotABundle."""
    try:
        text = (bundle_home.home() / FILE).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return set()
    return set(text.split())
