"""Read an adapter in either form: the folder of PEFT, or the GGUF file of llama.cpp."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.bundle.lora.adapter_folder import TENSORS, LoraAdapter, read_peft_adapter
from hearthd.bundle.lora.adapter_settings import CONFIG
from hearthd.bundle.lora.gguf_adapter import read_gguf_adapter

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from hearthd.bundle import ModelMatrix


def adapter_files(path: Path) -> tuple[Path, ...]:
    """The files of an adapter: those in a folder, or the GGUF file."""
    return (path / CONFIG, path / TENSORS) if path.is_dir() else (path,)


def adapter_name(path: Path) -> str:
    """The name of an adapter whose user gives none."""
    return path.name.removesuffix(".gguf")


def read_adapter(
    path: Path,
    matrices: Collection[ModelMatrix],
    architecture: str,
    max_rank: int | None = None,
) -> LoraAdapter:
    """Read an adapter for a model of an architecture, as GGUF files name it, with these matrices.

    `max_rank` is the --rank of a bundle; None if nothing but the matrices limits it. Raises
    BadAdapter: it is of another model, damaged, or computes something else.
    """
    if path.is_dir():
        return read_peft_adapter(path, matrices, max_rank)
    return read_gguf_adapter(path, matrices, architecture, max_rank)
