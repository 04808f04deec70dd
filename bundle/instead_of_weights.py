"""What to do with a folder that has no weights, but something else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hearthd.bundle.bake_first import WEIGHTS_CONFIG
from hearthd.bundle.file_records import MANIFEST
from hearthd.bundle.gguf_folder import model_files_in
from hearthd.bundle.lora.adapter_settings import CONFIG
from hearthd.bundle.parsing.file_formats import OTHER_FILE
from hearthd.bundle.parsing.unfinished_download import unfinished_download
from hearthd.bundle.projector_files import is_projector_name

if TYPE_CHECKING:
    from pathlib import Path

_CACHED = re.compile(r"models--([^-].*?)--(.+)")  # a model in the cache of the hub
_SAVE_AGAIN = "load the model with transformers, and save it with save_pretrained"
# Weights that Hearth does not read: a pattern of their files, the format, and what to do.
_OTHER_WEIGHTS = (
    ("consolidated*.pth", "Meta's own form", OTHER_FILE),
    ("consolidated*.safetensors", "Mistral's own form", OTHER_FILE),
    ("output*.safetensors", "the form of EXL2", OTHER_FILE),
    ("openvino_model*", "the form of OpenVINO", OTHER_FILE),
    ("*.onnx", "the form of ONNX", OTHER_FILE),
    ("onnx/*.onnx", "the form of ONNX", OTHER_FILE),
    ("ndarray-cache*.json", "the form of MLC", OTHER_FILE),
    ("*.engine", "the form of TensorRT-LLM", OTHER_FILE),
    ("coremldata.bin", "the form of Core ML", OTHER_FILE),
    ("Data/com.apple.CoreML", "the form of Core ML", OTHER_FILE),
    ("tf_model*.h5", "the form of TensorFlow", OTHER_FILE),
    ("flax_model*.msgpack", "the form of Flax", OTHER_FILE),
    ("*.bin", "the form of PyTorch", _SAVE_AGAIN),
    ("*.pt*", "the form of PyTorch", _SAVE_AGAIN),
)


def other_weights(folder: Path) -> str | None:
    """The weights of a folder that Hearth does not read, and what to do; None if it has none."""
    for path in sorted(folder.glob("*")):
        if unfinished := unfinished_download(path):
            return f"{path.name}: {unfinished}"
    for pattern, form, action in _OTHER_WEIGHTS:
        for found in sorted(folder.glob(pattern)):
            return f"{found.name} has weights in {form}: {action}"
    return None


def instead_of_weights(folder: Path) -> str:
    """What to do with a folder that is not one of weights."""
    if (folder / MANIFEST).is_file():
        return "it is a bundle, which is baked already: `hearth serve` opens it"
    if (folder / CONFIG).is_file():
        return "it is a LoRA adapter: specify the model, and this folder with --adapter"
    if store := _store_of_models(folder):
        return store
    if (folder / "model_index.json").is_file():
        return "it is a model that draws images or videos: specify a language model"
    files, inside = _models_in(folder)
    if len(files) == 1:
        return f"specify {files[0]}"
    if files:
        return f"specify one of its GGUF files, such as {files[0]}"
    if inside is not None:
        return f"specify a model in it, such as {inside}"
    return other_weights(folder) or _incomplete_folder(folder) or OTHER_FILE


def _incomplete_folder(folder: Path) -> str | None:
    """What to do with a folder that has safetensors alone; None for another folder."""
    if weights := next(folder.glob("*.safetensors"), None):
        return f"it has {weights.name}: download the other files of its repository, too"
    return None


def _store_of_models(folder: Path) -> str | None:
    """What to do with the folder in which a program keeps its models; None for another folder."""
    stores = (folder, folder / "models", folder.parent)
    if any((store / "blobs").is_dir() and (store / "manifests").is_dir() for store in stores):
        return "it is Ollama's folder of models: specify ollama:NAME, as `ollama list` shows it"
    for path in (folder.resolve(), *sorted(folder.glob("*")), *sorted(folder.glob("hub/*"))):
        if cached := _CACHED.fullmatch(path.name):
            reference = f"hf:{cached[1]}/{cached[2]}"
            return f"it is the cache of the Hugging Face Hub: specify a model, as {reference}"
    return None


def _models_in(folder: Path) -> tuple[list[Path], Path | None]:
    """The GGUF files of models in a folder, without projectors; else a model in folders in it."""
    for depth in ("", "*/", "*/*/", "models/*/*/"):
        try:
            found = sorted(folder.glob(f"{depth}*.gguf"))
        except OSError:  # a folder in it has vanished, as in /proc
            return [], None
        if not depth and (models := model_files_in(folder)):
            return models, None
        files = [file for file in found if not is_projector_name(file.name)]
        models = [
            *files,
            *(path.parent for path in sorted(folder.glob(f"{depth}{WEIGHTS_CONFIG}"))),
        ]
        if models:
            return [], models[0]
    return [], None
