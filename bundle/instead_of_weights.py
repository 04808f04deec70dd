"""What to do with a folder that has no weights, but something else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.bundle.file_records import MANIFEST
from hearthd.bundle.lora.adapter_settings import CONFIG

if TYPE_CHECKING:
    from pathlib import Path


def instead_of_weights(folder: Path) -> str:
    """What to do with a folder that is not one of weights."""
    if (folder / MANIFEST).is_file():
        return "it is a bundle, which is baked already: `hearth serve` opens it"
    if (folder / CONFIG).is_file():
        return "it is a LoRA adapter: specify the model, and this folder with --adapter"
    files = sorted(folder.glob("*.gguf"))
    if len(files) == 1:
        return f"specify {files[0]}"
    if files:
        return f"specify one of its GGUF files, such as {files[0]}"
    return "specify a GGUF file or a Hugging Face folder"
