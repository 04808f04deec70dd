"""The kinds of models that a server has, by their manifests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from hearthd.bundle import ArraysManifest, EncoderManifest, LanguageManifest, SpeechManifest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearthd.bundle import Manifest

Kind: TypeAlias = Literal["language", "listening", "encoder", "speech", "arrays"]
WORDS: Mapping[Kind, str] = {
    "language": "a language model",
    "listening": "a model that reads sound",
    "encoder": "an encoder",
    "speech": "a model of speech",
    "arrays": "array functions",
}


def kinds_of(manifest: Manifest | None) -> frozenset[Kind]:
    """The kinds of a model; one whose manifest cannot be read may be a language model."""
    match manifest:
        case EncoderManifest():
            return frozenset({"encoder"})
        case SpeechManifest():
            return frozenset({"speech"})
        case ArraysManifest():
            return frozenset({"arrays"})
        case LanguageManifest(sound=None):
            return frozenset({"language"})
        case _:
            return frozenset({"language", "listening"})
