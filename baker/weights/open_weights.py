"""Open weights at a path or in an installed package."""

from __future__ import annotations

import importlib
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hearthd.baker.temporary_folder import temporary_folder
from hearthd.baker.weights.ctranslate2 import CTranslate2Source, is_ctranslate2
from hearthd.baker.weights.gguf_scales import open_gguf
from hearthd.baker.weights.parametrized import WithoutAdapters, has_adapters
from hearthd.baker.weights.quantized_folder.quantized_source import (
    QuantizedFolder,
    quantization_settings,
)
from hearthd.baker.weights.safetensors import CONFIG, SafetensorsSource
from hearthd.baker.weights.source import BadFile, NoWeights
from hearthd.bundle.instead_of_weights import instead_of_weights

if TYPE_CHECKING:
    from hearthd.baker.weights.source import WeightSource


@dataclass(frozen=True, kw_only=True)
class PackagedWeights:
    """A GGUF file in a Python package.

    package  the import name of the package
    install  the command that installs it
    file     the file in the package; None if the package joins it from parts, by `assemble`
    """

    package: str
    install: str
    file: str | None = None


def open_weights(path: Path | PackagedWeights) -> WeightSource:
    """Open a GGUF file, a Hugging Face folder, or the weights in a package.

    Raises NoWeights if there are no weights, BadFile if they cannot be read; of a quantized folder
    also UnsupportedType and ConfigError.
    """
    if isinstance(path, PackagedWeights):
        return open_gguf(packaged_file(path))
    if path.is_dir():
        if not (path / CONFIG).exists():
            raise NoWeights(f"{path} has no {CONFIG}; {instead_of_weights(path)}")
        if is_ctranslate2(path):
            return CTranslate2Source(path)
        source = SafetensorsSource(path)
        if has_adapters(source):
            return WithoutAdapters(source)
        settings = quantization_settings(source.metadata())
        return source if settings is None else QuantizedFolder(source, settings)
    if not path.exists():
        raise NoWeights(f"{path} does not exist; specify a GGUF file or a Hugging Face folder")
    return open_gguf(path)


def packaged_file(weights: PackagedWeights) -> Path:
    """The GGUF file of a package, which is joined first if it has parts; raises a WeightsError."""
    return _in_package(weights) if weights.file is not None else _joined(weights)


def _in_package(weights: PackagedWeights) -> Path:
    """The file in the package. Not imported, since its dependencies may be missing."""
    spec = importlib.util.find_spec(weights.package)
    folders = (spec.submodule_search_locations if spec else None) or ()
    paths = [path for folder in folders if (path := Path(folder, weights.file or "")).is_file()]
    if not paths:
        raise NoWeights(_missing(weights))
    return paths[0]


def _missing(weights: PackagedWeights) -> str:
    return f"the package that has the weights is not installed ({weights.install})"


def _joined(weights: PackagedWeights) -> Path:
    """The model as one file in the cache folder, joined from its parts the first time."""
    try:
        package = importlib.import_module(weights.package)
    except ImportError as error:
        raise NoWeights(_missing(weights)) from error
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hearth"
    path: Path = cache / package.EXPECTED_SHA256[:16] / package.MODEL_NAME
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        # A temporary folder beside it: the rename is atomic, and two bakes do not collide.
        with temporary_folder(".hearth.", path.parent) as folder:
            try:
                assembled: Path = package.assemble(folder / path.name)
            except (ImportError, FileNotFoundError, ValueError) as error:
                raise BadFile(
                    f"the weights of {weights.package} are incomplete ({error}); reinstall them "
                    f"with --force-reinstall: {weights.install}"
                ) from error
            assembled.replace(path)
    return path
