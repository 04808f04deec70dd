"""Models that Ollama downloaded: `ollama:NAME`, as `ollama list` shows it.

Ollama keeps GGUF files under their digests, and for each name a manifest that says which they are.
Source: Ollama, manifest/ and types/model/name.go.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hearthd.baker.weights.source import NoWeights

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX = "ollama:"
_FOLDER = "OLLAMA_MODELS"
_SERVICE = Path("/usr/share/ollama/.ollama/models")  # of the user that Ollama's service runs as
_HOST, _NAMESPACE, _TAG = "registry.ollama.ai", "library", "latest"
_PART = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_DIGEST = re.compile(r"sha256[:-][0-9a-fA-F]{64}")
_LAYER = "application/vnd.ollama.image."


@dataclass(frozen=True, kw_only=True)
class StoredModel:
    """A GGUF file in Ollama's folder; `name` is a readable name for a bundle of it."""

    path: Path
    name: str


def is_stored(text: str) -> bool:
    """Whether a text is meant as the name of a model in Ollama's folder."""
    return text.startswith(PREFIX)


def find_stored(reference: str) -> StoredModel:
    """The file of a model that Ollama downloaded.

    Raises NoWeights if there is none, or if it is not one GGUF file.
    """
    host, namespace, model, tag = _parts(reference)
    for store in _stores():
        manifest = store / "manifests" / host / namespace / model / tag
        if manifest.is_file():
            name = model if tag == _TAG else f"{model}-{tag}"
            return StoredModel(path=_blob(store, manifest, reference), name=name)
    if not (known := ", ".join(sorted(_names()))):
        folders = " and ".join(map(str, _stores()))
        raise NoWeights(
            f"{reference}: Ollama has no models in {folders}; set {_FOLDER} to its folder of "
            "models, or give hf:ORG/REPO for a model on huggingface.co"
        )
    raise NoWeights(f"{reference}: Ollama did not download it; expected one of: {known}")


def _stores() -> list[Path]:
    if folder := os.environ.get(_FOLDER):
        return [Path(folder).expanduser()]
    return [Path.home() / ".ollama" / "models", _SERVICE]


def _parts(reference: str) -> tuple[str, str, str, str]:
    """The host, namespace, model and tag; raises NoWeights."""
    path, _, tag = reference.removeprefix(PREFIX).partition(":")
    parts = path.split("/")
    missing = [_HOST, _NAMESPACE][: 3 - len(parts)]
    if len(parts) > 3 or not all(_PART.fullmatch(part) for part in (*parts, tag or _TAG)):
        raise NoWeights(
            f"{reference}: expected {PREFIX}NAME or {PREFIX}NAME:TAG, as `ollama list` shows it"
        )
    host, namespace, model = (*missing, *parts)
    return host, namespace, model, tag or _TAG


def _names() -> Iterator[str]:
    """The references of all models."""
    for store in _stores():
        for manifest in (store / "manifests").glob("*/*/*/*"):
            host, namespace, model, tag = manifest.parts[-4:]
            named = [host, namespace, model]
            while len(named) > 1 and named[0] in (_HOST, _NAMESPACE):
                del named[0]
            yield f"{PREFIX}{'/'.join(named)}:{tag}"


def _blob(store: Path, manifest: Path, reference: str) -> Path:
    """The file of a manifest's model; raises NoWeights."""
    try:
        data: Any = json.loads(manifest.read_bytes())
        layers = [(str(layer["mediaType"]), str(layer["digest"])) for layer in data["layers"]]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise NoWeights(
            f"{reference}: cannot read {manifest}: {type(error).__name__}: {error}; pull it with "
            "`ollama pull` again"
        ) from error
    blobs = [
        (kind.removeprefix(_LAYER), store / "blobs" / digest.replace(":", "-"))
        for kind, digest in layers
        if _DIGEST.fullmatch(digest)
    ]
    paths = [path for kind, path in blobs if kind == "model"]
    if len(paths) != 1:
        raise NoWeights(f"{reference}: it has {len(paths)} GGUF files, expected 1")
    path = paths[0]
    for kind, adapter in blobs:
        if kind == "adapter":
            raise NoWeights(
                f"{reference}: it has a LoRA adapter, {adapter}, beside {path}; bake that file "
                "with --adapter"
            )
    if not path.is_file():
        raise NoWeights(f"{reference}: {path} is missing; pull it with `ollama pull` again")
    return path
