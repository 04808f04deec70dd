"""Read the manifest of a bundle: a language model's or an array program's."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, TypeVar

from hearthd.bundle.bake_first import bake_first
from hearthd.bundle.bundle_errors import Corrupt, NotABundle, WrongFormat, WrongKind
from hearthd.bundle.file_records import MANIFEST, VMFB, file_type
from hearthd.bundle.manifests.array_manifest import ArraysManifest
from hearthd.bundle.manifests.encoder_manifest import EncoderManifest
from hearthd.bundle.manifests.language_manifest import LanguageManifest
from hearthd.bundle.manifests.manifest import FORMAT, SEAL
from hearthd.bundle.manifests.speech_manifest import SpeechManifest
from hearthd.bundle.parsing import strict_json
from hearthd.bundle.parsing.text_files import read_bytes, reason
from hearthd.bundle.parsing.typed_json import typed

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "AnyManifest",
    "parse_manifest",
    "read_manifest",
    "read_manifest_of",
    "require_only_bundle",
]

AnyManifest: TypeAlias = LanguageManifest | ArraysManifest | EncoderManifest | SpeechManifest
M = TypeVar("M", LanguageManifest, ArraysManifest, EncoderManifest, SpeechManifest)

_KINDS: dict[str, type[AnyManifest]] = {
    "language": LanguageManifest,
    "arrays": ArraysManifest,
    "encoder": EncoderManifest,
    "speech": SpeechManifest,
}
_WORDS = {
    LanguageManifest: "a language model",
    ArraysManifest: "array functions",
    EncoderManifest: "an encoder",
    SpeechManifest: "a model of speech",
}


def read_manifest(bundle: Path) -> AnyManifest:
    """Read a bundle's manifest; the other files are not read.

    Raises as parse_manifest, and Corrupt if the text is not exactly what was written.
    """
    try:
        for path, expected in ((bundle, "a folder"), (bundle / MANIFEST, "a file")):
            if (actual := file_type(path)) != expected:
                named = "" if path == bundle else f" {path}:"
                raise NotABundle(
                    f"{bundle}: not a bundle:{named} got {actual}, expected {expected}"
                    f"{bake_first(bundle)}"
                )
        text = read_bytes(bundle / MANIFEST).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise NotABundle(
            f"{bundle}: not a bundle: cannot read {MANIFEST}: {reason(error)}{bake_first(bundle)}"
        ) from error
    manifest = parse_manifest(text)
    if text != manifest.to_json():
        raise Corrupt(
            f"{bundle / MANIFEST}: wrong sha256: differs from what was baked; copy the bundle again"
        )
    return manifest


def require_only_bundle(folder: Path) -> None:
    """Raise NotABundle unless a folder has a bundle, which may be damaged, and no other folder.

    What is not a bundle is neither removed nor replaced.
    """
    if not (_has_format(folder) or ((folder / MANIFEST).is_file() and (folder / VMFB).is_file())):
        raise NotABundle(f"{folder}: not a bundle: it has no {MANIFEST}, or another program's")
    if other := [path.name for path in folder.iterdir() if path.is_dir() or path.is_symlink()]:
        raise NotABundle(f"{folder}: not only a bundle: it contains {min(other)!r}")


def _has_format(folder: Path) -> bool:
    """Whether a folder has a manifest of any version."""
    try:
        data = strict_json.parse(read_bytes(folder / MANIFEST).decode())
    except (OSError, ValueError):
        return False
    return isinstance(data, dict) and isinstance(data.get("format"), int)


def read_manifest_of(bundle: Path, manifest_type: type[M]) -> M:
    """As read_manifest, for one type of manifest; raises WrongKind for the other."""
    manifest = read_manifest(bundle)
    if not isinstance(manifest, manifest_type):
        raise WrongKind(
            f"{bundle}: got a bundle of {_WORDS[type(manifest)]}, expected {_WORDS[manifest_type]}"
        )
    return manifest


def parse_manifest(text: str) -> AnyManifest:
    """Parse the text of manifest.json, without comparing its sha256.

    Raises NotABundle or WrongFormat; the messages name the field.
    """
    try:
        data = strict_json.parse(text)
    except ValueError as error:
        raise NotABundle(f"{MANIFEST}: {error}") from error
    version = data.get("format") if isinstance(data, dict) else None
    if version != FORMAT:
        raise WrongFormat(
            f"{MANIFEST}: unsupported format: got {version!r:.80}, expected {FORMAT}; bake the "
            "bundle again with this version of Hearth"
        )
    if "kind" not in data:
        raise NotABundle(f"{MANIFEST}.kind: missing field")
    manifest_kind = data["kind"]
    if not isinstance(manifest_kind, str) or manifest_kind not in _KINDS:
        raise NotABundle(
            f"{MANIFEST}.kind: got {manifest_kind!r:.80}, expected {' or '.join(_KINDS)}"
        )
    if not isinstance(data.pop(SEAL, None), str):
        raise NotABundle(f"{MANIFEST}.{SEAL}: missing field or not a digest")
    try:
        return typed(_KINDS[manifest_kind], data, MANIFEST)
    except ValueError as error:
        raise NotABundle(str(error)) from error
