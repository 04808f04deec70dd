"""Which files of a repository are downloaded.

A GGUF file is chosen as `llama-server -hf` chooses it: by the quantization in its path, Q4_K_M or
else Q8_0 by default, or else the first one. Of a split file all shards are downloaded. A repository
without GGUF files is a folder of safetensors.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from hearthd.baker.hub.hub_errors import HubError
from hearthd.baker.weights.safetensors import CONFIG, INDEX, SINGLE
from hearthd.bundle.parsing.shard_names import quantization_in, shard_name
from hearthd.bundle.projector_files import is_projector_name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hearthd.baker.hub.reference import Reference

_DEFAULTS = ("Q4_K_M", "Q8_0")
# GGUF files that are not language models: projectors of images, importance matrices; and drafters,
# in lower case as llama-server tells them from models whose name has MTP.
_OTHER_GGUF = ("mmproj", "imatrix")
_DRAFTERS = ("mtp-", "eagle3-", "dflash-", "dspark-")
_SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
# What the baker reads beside tensors: configurations, tokenizers, chat templates, the license.
_DESCRIPTIONS = (".json", ".jinja", ".txt", ".model", "README.md")
# The folders of modules that sentence-transformers saves.
_MODULES = ("_Pooling", "_Dense")
_MAX_NAMED = 12


@dataclass(frozen=True, kw_only=True)
class RepositoryFile:
    """A file of a repository, by its path there; its size is 0 if the hub does not say it."""

    path: str
    bytes: int

    @property
    def name(self) -> str:
        """The last part of the path."""
        return PurePosixPath(self.path).name


def gguf_models(files: Sequence[RepositoryFile]) -> tuple[RepositoryFile, ...]:
    """The GGUF files with a model, in the order of the repository; of a split one the first."""
    return tuple(
        file
        for file in files
        if is_gguf(file)
        and not any(word in file.name.lower() for word in _OTHER_GGUF)
        and not any(word in file.name for word in _DRAFTERS)
        and ((shard := shard_name(file.path)) is None or shard.number == 1)
    )


def choose(files: Sequence[RepositoryFile], reference: Reference) -> tuple[RepositoryFile, ...]:
    """The files of a repository that a reference names: of a GGUF file, or of a folder.

    Raises HubError if there are none, or if a shard of the GGUF file is missing.
    """
    models = gguf_models(files)
    if reference.file is not None:
        chosen = next((file for file in files if file.path == reference.file), None)
        if chosen is None:
            raise HubError(f"{reference}: the repository has no such file{_instead(models)}")
    elif models:
        chosen = _by_quant(models, reference)
    elif reference.quant is not None:
        raise HubError(f"{reference}: the repository has no GGUF file; omit :{reference.quant}")
    else:
        return _folder(files, reference)
    return _with_shards(chosen, files, reference)


def projector_of(files: Sequence[RepositoryFile], model: RepositoryFile) -> RepositoryFile | None:
    """The projector of images beside a GGUF model that `llama-server -hf` reads with it, if any.

    Of several it is the one whose bits are closest to the model's. Another model than a GGUF file
    has none.
    """
    folder = PurePosixPath(model.path).parent
    beside = [
        file
        for file in files
        if is_gguf(model)
        and is_projector_name(file.name)
        and PurePosixPath(file.path).parent == folder
    ]
    return min(beside, key=lambda file: abs(_bits(file) - _bits(model)), default=None)


def weights_in(folder: Path, files: Sequence[RepositoryFile]) -> Path:
    """The path of the weights that chosen files are in a copy of the repository."""
    return folder / files[0].path if is_gguf(files[0]) else folder


def is_gguf(file: RepositoryFile) -> bool:
    """Whether a file is a GGUF file."""
    return file.name.lower().endswith(".gguf")


def quant_of(file: RepositoryFile) -> str | None:
    """The quantization in the name of a GGUF file, such as Q4_K_M, if it has one."""
    return quantization_in(file.name)


def _bits(file: RepositoryFile) -> int:
    """The first number in the quantization that the name of a GGUF file has; 0 without one."""
    found = re.search(r"\d+", quant_of(file) or "")
    return int(found[0]) if found else 0


def _by_quant(models: Sequence[RepositoryFile], reference: Reference) -> RepositoryFile:
    for quant in _DEFAULTS if reference.quant is None else (reference.quant,):
        pattern = re.compile(re.escape(quant) + "[.-]", re.IGNORECASE)
        for model in models:
            if pattern.search(model.path):
                return model
    if reference.quant is not None:
        raise HubError(f"{reference}: no GGUF file has {reference.quant}{_instead(models)}")
    return models[0]


def _with_shards(
    chosen: RepositoryFile, files: Sequence[RepositoryFile], reference: Reference
) -> tuple[RepositoryFile, ...]:
    """All shards of a split file, in order; else the file alone."""
    if (shard := shard_name(chosen.path)) is None:
        return (chosen,)
    by_path = {file.path: file for file in files}
    shards = shard.all_shards()
    for number, path in enumerate(shards, 1):
        if path not in by_path:
            models = [model for model in gguf_models(files) if model.path not in shards]
            raise HubError(
                f"{reference}: there is no {path}, which is shard {number} of {shard.count} of a "
                f"split GGUF file{_instead(models)}"
            )
    return tuple(by_path[path] for path in shards)


def _instead(models: Sequence[RepositoryFile]) -> str:
    """The end of a message: what can be chosen."""
    names = [quant_of(model) or model.path for model in models]
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return f"; it has {', '.join(names[:_MAX_NAMED])}{more}" if names else ""


def _folder(files: Sequence[RepositoryFile], reference: Reference) -> tuple[RepositoryFile, ...]:
    """The files that a bake reads from a Hugging Face folder, those without tensors first."""
    top = {file.path: file for file in files if "/" not in file.path}
    tensors = [file for path, file in top.items() if path == SINGLE or _SHARD.fullmatch(path)]
    if CONFIG not in top or not tensors:
        raise HubError(
            f"{reference}: the repository has neither GGUF files nor {CONFIG} with {SINGLE} or "
            f"{INDEX}; look for a repository whose name ends in -GGUF"
        )
    modules = [
        file
        for file in files
        if file.path.count("/") == 1 and file.path.partition("/")[0].endswith(_MODULES)
    ]
    descriptions = [file for path, file in top.items() if path.endswith(_DESCRIPTIONS)]
    chosen = (*descriptions, *modules, *tensors)
    return tuple(sorted(chosen, key=lambda file: is_tensors(file.path)))


def is_tensors(path: str) -> bool:
    """Whether a file is a safetensors file."""
    return path.endswith(".safetensors")
