"""What to do with a folder that has no weights, but something else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.bundle.bake_first import WEIGHTS_CONFIG
from hearthd.bundle.file_records import MANIFEST
from hearthd.bundle.lora.adapter_settings import CONFIG
from hearthd.bundle.projector_files import is_projector_name

if TYPE_CHECKING:
    from pathlib import Path


def instead_of_weights(folder: Path) -> str:
    """What to do with a folder that is not one of weights."""
    if (folder / MANIFEST).is_file():
        return "it is a bundle, which is baked already: `hearth serve` opens it"
    if (folder / CONFIG).is_file():
        return "it is a LoRA adapter: specify the model, and this folder with --adapter"
    stores = (folder, folder / "models")
    if any((store / "blobs").is_dir() and (store / "manifests").is_dir() for store in stores):
        return "it is Ollama's folder of models: specify ollama:NAME, as `ollama list` shows it"
    if (folder / "model_index.json").is_file():
        return "it is a model that draws images or videos: specify a language model"
    if weights := next(folder.glob("*.safetensors"), None):
        return f"it has {weights.name}: download the other files of its repository, too"
    files, inside = _models_in(folder)
    if len(files) == 1:
        return f"specify {files[0]}"
    if files:
        return f"specify one of its GGUF files, such as {files[0]}"
    if inside is not None:
        return f"specify a model in it, such as {inside}"
    return "specify a GGUF file or a Hugging Face folder"


def _models_in(folder: Path) -> tuple[list[Path], Path | None]:
    """The GGUF files of models in a folder, without projectors; else a model in folders in it."""
    for depth in ("", "*/", "*/*/"):
        found = sorted(folder.glob(f"{depth}*.gguf"))
        files = [file for file in found if not is_projector_name(file.name)]
        if not depth and files:
            return files, None
        models = [
            *files,
            *(path.parent for path in sorted(folder.glob(f"{depth}{WEIGHTS_CONFIG}"))),
        ]
        if models:
            return [], models[0]
    return [], None
