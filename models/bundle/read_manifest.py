"""From a bundle's folder to the manifest of whichever kind it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, TypeVar

from models import strict_json
from models.bundle.array_manifest import ArraysManifest
from models.bundle.bundle_errors import Corrupt, NotABundle, WrongFormat, WrongKind
from models.bundle.file_records import MANIFEST, kind_of_file
from models.bundle.language_manifest import LanguageManifest
from models.bundle.manifest import FORMAT, SEAL, typed

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "AnyManifest",
    "parse_manifest",
    "read_manifest",
    "read_manifest_of",
]

AnyManifest: TypeAlias = LanguageManifest | ArraysManifest
M = TypeVar("M", LanguageManifest, ArraysManifest)

_KINDS: dict[str, type[LanguageManifest] | type[ArraysManifest]] = {
    "language": LanguageManifest,
    "arrays": ArraysManifest,
}
_WORDS = {LanguageManifest: "a language model", ArraysManifest: "functions on arrays"}


def read_manifest(bundle: Path) -> AnyManifest:
    """Read a bundle's manifest without looking at the other files.

    Raises as parse_manifest, and Corrupt unless it is to the byte what was written.
    """
    try:
        for path, wanted in ((bundle, "a folder"), (bundle / MANIFEST, "a file")):
            if (kind := kind_of_file(path)) != wanted:
                raise NotABundle(f"{bundle} is not a bundle: {path} is {kind}, wanted {wanted}")
        text = (bundle / MANIFEST).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NotABundle(f"{bundle} is not a bundle: cannot read {MANIFEST}: {error}") from error
    manifest = parse_manifest(text)
    if text != manifest.to_json():
        raise Corrupt(
            f"{bundle / MANIFEST} differs from what was baked (its own sha256): copy the bundle "
            "again"
        )
    return manifest


def read_manifest_of(bundle: Path, kind: type[M]) -> M:
    """As read_manifest, of one kind; raises WrongKind for the other."""
    manifest = read_manifest(bundle)
    if not isinstance(manifest, kind):
        raise WrongKind(f"{bundle} holds {_WORDS[type(manifest)]}, wanted {_WORDS[kind]}")
    return manifest


def parse_manifest(text: str) -> AnyManifest:
    """Read manifest.json's text, but for its digest; raises NotABundle or WrongFormat.

    Messages name the field.
    """
    try:
        data = strict_json.parse(text)
    except ValueError as error:
        raise NotABundle(f"{MANIFEST} is not JSON: {error}") from error
    found = data.get("format") if isinstance(data, dict) else None
    if found != FORMAT:
        raise WrongFormat(
            f"{MANIFEST} has format {found!r:.80}, this version of Hearth reads {FORMAT}: "
            "bake the bundle again"
        )
    if "kind" not in data:
        raise NotABundle(f"{MANIFEST}.kind: missing field")
    kind = data["kind"]
    if not isinstance(kind, str) or kind not in _KINDS:
        raise NotABundle(f"{MANIFEST}.kind: expected {' or '.join(_KINDS)}, got {kind!r:.80}")
    if not isinstance(data.pop(SEAL, None), str):
        raise NotABundle(f"{MANIFEST}.{SEAL}: missing field, or no digest")
    return typed(_KINDS[kind], data, MANIFEST)
