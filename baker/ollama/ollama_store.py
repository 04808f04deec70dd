"""Models that Ollama has: `ollama:NAME`, as `ollama list` shows it.

Ollama keeps GGUF files and settings under their digests, and for each name a manifest that says
which they are.
Source: Ollama, manifest/ and types/model/name.go.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hearthd.baker.ollama.described_model import OTHER_TEMPLATE, DescribedModel
from hearthd.baker.weights.source import NoWeights
from hearthd.bundle import Preset, PresetMessage
from hearthd.bundle.parsing import strict_json
from hearthd.bundle.parsing.typed_json import typed
from hearthd.text.preset_options import combined, preset_fields

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

T = TypeVar("T")

PREFIX = "ollama:"
_FOLDER = "OLLAMA_MODELS"
_SERVICE = Path("/usr/share/ollama/.ollama/models")  # of the user that Ollama's service runs as
_HOST, _NAMESPACE, _TAG = "registry.ollama.ai", "library", "latest"
_PART = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_DIGEST = re.compile(r"sha256[:-][0-9a-fA-F]{64}")
_LAYER = "application/vnd.ollama.image."
_KINDS = ("model", "adapter", "projector", "template", "system", "license", "messages", "params")
_PULL_AGAIN = "pull it with `ollama pull` again"
_PROMPT_ALONE = "{{ .Prompt }}"  # the template of a base model


def is_stored(text: str) -> bool:
    """Whether a text is meant as the name of a model in Ollama's folder."""
    return text.startswith(PREFIX)


def find_stored(reference: str) -> DescribedModel:
    """A model that Ollama downloaded or created.

    Raises NoWeights for a name that Ollama does not have, and for a model that is not one GGUF
    file.
    """
    host, namespace, model, tag = _parts(reference)
    for store in _stores():
        manifest = store / "manifests" / host / namespace / model / tag
        if manifest.is_file():
            name = model if tag == _TAG else f"{model}-{tag}"
            return _described(name, _layers(store, manifest, reference), reference)
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


def _layers(store: Path, manifest: Path, reference: str) -> dict[str, list[Path]]:
    """The files of a manifest by their kinds; raises NoWeights."""
    try:
        data: Any = json.loads(manifest.read_bytes())
        layers = [(str(layer["mediaType"]), str(layer["digest"])) for layer in data["layers"]]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise NoWeights(
            f"{reference}: cannot read {manifest}: {type(error).__name__}: {error}; {_PULL_AGAIN}"
        ) from error
    files: dict[str, list[Path]] = {}
    for kind, digest in layers:
        if _DIGEST.fullmatch(digest) and kind.removeprefix(_LAYER) in _KINDS:
            path = store / "blobs" / digest.replace(":", "-")
            if not path.is_file():
                raise NoWeights(f"{reference}: {path} is missing; {_PULL_AGAIN}")
            files.setdefault(kind.removeprefix(_LAYER), []).append(path)
    return files


def _described(name: str, layers: Mapping[str, list[Path]], reference: str) -> DescribedModel:
    """What the files of a model say; raises NoWeights."""
    paths = layers.get("model", [])
    if len(paths) != 1:
        raise NoWeights(f"{reference}: it has {len(paths)} GGUF files, expected 1")
    files: dict[str, Path] = {}
    for kind, option in (("adapter", "adapter"), ("projector", "mmproj")):
        for path in layers.get(kind, ()):
            if option in files:
                raise NoWeights(f"{reference}: it has several files of the kind {kind}, expected 1")
            files[option] = path
    fields, notes = _settings(layers)
    return DescribedModel(
        base=str(paths[0]),
        name=name,
        files=files,
        preset=Preset(**fields),
        notes=tuple(f"{reference}: {note}" for note in notes),
    )


def _settings(layers: Mapping[str, list[Path]]) -> tuple[dict[str, Any], list[str]]:
    """The fields of a preset that files set, and notes about what is not used."""
    notes = []
    if any(_text(path).strip() != _PROMPT_ALONE for path in layers.get("template", ())):
        notes.append(f"its template {OTHER_TEMPLATE}")
    fields: dict[str, Any] = {}
    for kind in ("system", "license"):
        if paths := layers.get(kind):
            fields[kind] = "\n\n".join(map(_text, paths))
    for path in layers.get("messages", ()):
        fields["messages"] = _read(tuple[PresetMessage, ...], path, notes) or ()
    for path in layers.get("params", ()):
        options = _read(dict[str, Any], path, notes) or {}
        for name, value in options.items():
            try:
                fields = combined(fields, preset_fields({name: value}))
            except ValueError as error:
                notes.append(f"its parameter is not used: {error}")
    return fields, notes


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _read(type_: type[T], path: Path, notes: list[str]) -> T | None:
    """The JSON of a file; None, with a note, if it is damaged."""
    try:
        return typed(type_, strict_json.parse(_text(path)))
    except ValueError as error:
        notes.append(f"{path} is not used: {error}")
        return None
