"""A folder with the GGUF file of one model, as LM Studio keeps each of its models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.bundle.file_records import MANIFEST
from hearthd.bundle.parsing.shard_names import shard_name
from hearthd.bundle.projector_files import is_projector_name

if TYPE_CHECKING:
    from pathlib import Path


def gguf_file_in(path: Path) -> Path:
    """The GGUF file of a folder that has one model, of a split one a shard; else the path."""
    is_another_folder = (path / MANIFEST).exists() or any(path.glob("*.safetensors"))
    if not path.is_dir() or is_another_folder:
        return path
    models = model_files_in(path)
    return models[0] if len(models) == 1 else path


def model_files_in(folder: Path) -> list[Path]:
    """The GGUF files of models in a folder: of a split one its first shard, and no projector."""
    first: dict[str, Path] = {}
    for file in sorted(folder.glob("*.gguf")):
        if not is_projector_name(file.name):
            shard = shard_name(file.name)
            first.setdefault(shard.model if shard else file.name, file)
    return list(first.values())
