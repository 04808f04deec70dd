"""The folder that keeps bundles by name, so that a command can name a bundle from anywhere."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from hearthd.bundle.bundle_errors import NotABundle
from hearthd.bundle.file_records import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Iterator

ENVIRONMENT = "HEARTH_HOME"
DEFAULT = Path("~/.local/share/hearth")
HELP = (
    "Folder that keeps bundles by name. A model that is not a bundle is baked into it, `hearth "
    "list` and `hearth rm` manage it, and every BUNDLE can be a name in it."
)
_FILE_URL = "file://"
_MAX_NAME_BYTES, _MAX_PATH_BYTES = 255, 4095  # of Linux
BUNDLE_HELP = f"Folder that `hearth bake` wrote, or a name in ${ENVIRONMENT}."


def home(folder: Path | None = None) -> Path:
    """The folder, or without one $HEARTH_HOME, or the default; raises NotABundle as `expanded`."""
    return expanded(Path(os.environ.get(ENVIRONMENT, DEFAULT)) if folder is None else folder)


def expanded(folder: Path) -> Path:
    """The folder, with the user's home in place of ~; raises NotABundle if that is not known."""
    try:
        return folder.expanduser()
    except RuntimeError as error:
        raise NotABundle(
            f"{folder}: the home folder of this user is not known; set HOME or {ENVIRONMENT}"
        ) from error


def typed_path(text: str | Path) -> Path:
    """The path that a user typed: also a file:// URL, and with ~ where the shell left it.

    Raises NotABundle if no path can be so long, or the text is empty.
    """
    typed = str(text)
    if not typed:
        raise NotABundle("MODEL is empty; specify a GGUF file, a Hugging Face folder or a bundle")
    longest = max(len(os.fsencode(part)) for part in typed.split("/"))
    if longest > _MAX_NAME_BYTES or len(os.fsencode(typed)) > _MAX_PATH_BYTES:
        raise NotABundle(
            f"{typed[:40]}...: not a bundle: {len(typed)} characters are too long for a path; give "
            "a model first, and then the prompt"
        )
    if typed.startswith(_FILE_URL):
        return Path(unquote(urlsplit(typed).path))
    path = Path(typed)
    return path if path.exists() else expanded(path)


def find_bundle(bundle: str | Path, folder: Path | None = None) -> Path:
    """The folder of a bundle: the path, or if it does not exist, the bundle with this name.

    `folder` keeps the bundles, as for `home`. If there is neither, the path is returned. Raises
    NotABundle as `typed_path`.
    """
    path = typed_path(bundle)
    if path.exists() or len(path.parts) != 1:
        return path
    named = home(folder) / path
    return named if named.exists() else path


def find_baked(bundle: str | Path, folder: Path | None = None) -> Path:
    """As `find_bundle`, but weights with the name of a bundle do not hide it."""
    found = find_bundle(bundle, folder)
    if is_bundle(found) or len(Path(bundle).parts) != 1:
        return found
    kept = home(folder) / bundle
    return kept if is_bundle(kept) else found


def named_bundle(bundle: str | Path, folder: Path | None = None) -> Path:
    """The bundle that `find_baked` finds; raises NotABundle if there is none."""
    found = find_baked(bundle, folder)
    if not found.exists():
        raise unknown_bundle(found, folder)
    return found


def unknown_bundle(bundle: Path, folder: Path | None = None) -> NotABundle:
    """The error for a path that does not exist; it lists the bundles with similar names."""
    folder = home(folder)
    near = similar_names(bundle.name, folder)
    listed = f"expected a folder, or {' or '.join(near)}" if near else "bake one with `hearth bake`"
    return NotABundle(
        f"{bundle}: not a bundle: there is no such path, and no bundle of this name in {folder}; "
        f"{listed}"
    )


def require_link_target(path: Path) -> None:
    """Raise NotABundle for a symbolic link to a path that does not exist."""
    if path.is_symlink() and not path.exists():
        raise NotABundle(
            f"{path}: a symbolic link to {path.readlink()}, which does not exist; copy or download "
            "the file again"
        )


def similar_path(path: Path) -> str:
    """The end of an error for a path that does not exist: a similar one beside it, if any."""
    try:
        names = {other.name.lower(): other.name for other in path.parent.iterdir()}
    except OSError:
        return ""
    name = path.name.lower()
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.75)
    near = [f"{name}.gguf"] if f"{name}.gguf" in names else near
    return f"; did you mean {path.with_name(names[near[0]])}?" if near else ""


def similar_names(name: str, folder: Path | None = None) -> list[str]:
    """The names of bundles in a folder that begin with a name or are similar; all if none is."""
    return similar(name, [path.name for path in bundles_in(home(folder))])


def similar(name: str, names: list[str]) -> list[str]:
    """The names that begin with a name, and those that are similar; all if none is."""
    longer = (other for other in names if other.lower().startswith(name.lower()))
    return list(dict.fromkeys((*longer, *difflib.get_close_matches(name, names)))) or names


def completed_names(incomplete: str) -> list[str]:
    """The names of bundles that begin with a text, for the completion of a shell."""
    try:
        return [path.name for path in bundles_in(home()) if path.name.startswith(incomplete)]
    except NotABundle:
        return []


def is_bundle(folder: Path) -> bool:
    """Whether a folder has a manifest."""
    return (folder / MANIFEST).is_file()


def bundles_in(folder: Path) -> Iterator[Path]:
    """The bundles in a folder, by name."""
    return (manifest.parent for manifest in sorted(expanded(folder).glob(f"*/{MANIFEST}")))
