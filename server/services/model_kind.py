"""The kinds of models that a server has, by their manifests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from hearthd.bundle import ArraysManifest, EncoderManifest, SpeechManifest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearthd.bundle import Manifest

Kind: TypeAlias = Literal["language", "encoder", "speech", "arrays"]
WORDS: Mapping[Kind, str] = {
    "language": "a language model",
    "encoder": "an encoder",
    "speech": "a model of speech",
    "arrays": "array functions",
}


def kind_of(manifest: Manifest | None) -> Kind:
    """The kind of a model; one whose manifest cannot be read may be a language model."""
    match manifest:
        case EncoderManifest():
            return "encoder"
        case SpeechManifest():
            return "speech"
        case ArraysManifest():
            return "arrays"
        case _:
            return "language"
