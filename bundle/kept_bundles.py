"""The bundles in --home that commands baked from weights, found again by a digest of the source.

The file `baked-sources` in the folder has one line for each bake: what was baked, from where, the
digest of the bundle, and its name. A bundle counts as long as it is the one of its line, so a
bundle that was removed, replaced or damaged is baked again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from hearthd.bundle import bundle_home
from hearthd.bundle.bundle_errors import BundleError
from hearthd.bundle.manifests.manifest import digest
from hearthd.bundle.manifests.read_manifest import read_manifest

if TYPE_CHECKING:
    from pathlib import Path

FILE = "baked-sources"
_MAX_NAME = 100  # characters; file systems allow 255 bytes
_SUFFIX = 8  # hex digits of the source, for a name that is taken


class Source(NamedTuple):
    """The sources of a bundle.

    digest  of the contents of the weights, and of the options of the bake
    origin  digest of the path or name that was typed, and of the options
    """

    digest: str
    origin: str


class _Line(NamedTuple):
    source: Source
    bundle: str
    name: str


def find_kept(home: Path, source: Source) -> Path | None:
    """The bundle that was baked from a source, if it is still there."""
    for line in reversed(_lines(home)):
        if line.source.digest == source.digest and _digest(home / line.name) == line.bundle:
            return home / line.name
    return None


def destination(home: Path, name: str, source: Source) -> Path:
    """The folder for a bundle with a readable name.

    It is free, or has a bundle of the same origin, whose source has changed since.
    """
    readable = readable_name(name)
    folder = home / readable
    if not folder.exists() or _origin(home, folder) == source.origin:
        return folder
    return home / f"{readable}-{source.digest[:_SUFFIX]}"


def name_of(path: Path) -> str:
    """The name of a folder, or of a file without its suffix."""
    return path.name if path.is_dir() else path.stem


def readable_name(name: str) -> str:
    """A name for a folder, with - in place of characters that names of files should not have."""
    return re.sub(r"[^\w.+-]+", "-", name).strip(".-")[:_MAX_NAME] or "model"


def keep(home: Path, source: Source, bundle: Path) -> None:
    """Record that a bundle in the folder was baked from a source."""
    _record(home, _Line(source, str(_digest(bundle)), bundle.name))


def is_kept(bundle: Path) -> bool:
    """Whether a command baked this bundle into its folder, so that it can be baked again."""
    return _origin(bundle.parent, bundle) is not None and not bundle.is_symlink()


def keep_as(bundle: Path, before: str, after: str) -> None:
    """Record a bundle, if it is recorded with the digest `before`, also with the digest `after`.

    To be called before it gets that digest: it is then found at any moment.
    """
    for line in _lines(bundle.parent):
        if (line.name, line.bundle) == (bundle.name, before):
            _record(bundle.parent, line._replace(bundle=after))


def _record(home: Path, line: _Line) -> None:
    with (home / FILE).open("a", encoding="utf-8") as file:
        file.write(f"{' '.join((*line.source, line.bundle, line.name))}\n")  # one write: not mixed


def _lines(home: Path) -> list[_Line]:
    """The lines of the file; those that are damaged are left out."""
    try:
        text = (home / FILE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    words = (line.split(" ") for line in text.splitlines())
    return [_Line(Source(*line[:2]), *line[2:]) for line in words if len(line) == len("dobn")]


def _digest(bundle: Path) -> str | None:
    """The digest of a bundle; None if it is missing or cannot be read."""
    try:
        return digest(read_manifest(bundle))
    except BundleError:
        return None


def _origin(home: Path, bundle: Path) -> str | None:
    """The origin of a bundle that was baked by `keep`; None for any other."""
    found = _digest(bundle)
    for line in reversed(_lines(home)):
        if line.name == bundle.name:
            # One of an older version of Hearth has no digest, and can be replaced.
            ours = found in (line.bundle, None) and bundle_home.is_bundle(bundle)
            return line.source.origin if ours else None
    return None
