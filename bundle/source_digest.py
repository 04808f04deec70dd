"""A fast digest of a file or folder of weights, to find again what was baked from it.

Of each file it has the name in the folder, the size, the time of the last change, the first MiB,
which has the header of a GGUF or safetensors file, and 64 samples of 4 KiB, spread evenly. A file
of many GB takes milliseconds. A split GGUF file has a digest of all its shards. A copy of a file is
another one, unless it keeps the time (`cp -p`). It is not a check of the contents: the manifest of
a bundle has the sha256 of its sources.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from hearthd.bundle.parsing.shard_names import shard_paths

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_HEADER_BYTES = 2**20
_SAMPLES, _SAMPLE_BYTES = 64, 4096


def source_digest(path: Path) -> str:
    """The digest of a file and its other shards, or of the files in a folder: 64 hex digits.

    Hidden files in a folder do not count. The path itself is not a part of the digest. Raises
    OSError.
    """
    digest = hashlib.sha256()
    for name, file in _named_files(path):
        status = file.stat()
        digest.update(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\0".encode(errors="replace"))
        with file.open("rb", buffering=0) as opened:
            for offset, count in _samples(status.st_size):
                digest.update(os.pread(opened.fileno(), count, offset))
    return digest.hexdigest()


def _named_files(path: Path) -> Iterator[tuple[str, Path]]:
    """The files of weights, in order, with the names that count."""
    if path.is_dir():
        for file in sorted(_files_in(path)):
            yield file.relative_to(path).as_posix(), file
        return
    for shard in shard_paths(path):
        if shard == path or shard.exists():  # a bake says which one is missing
            yield ".", shard


def _files_in(folder: Path) -> Iterator[Path]:
    """The files in a folder and its sub-folders that are not hidden."""
    for path in folder.rglob("*"):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and not hidden:
            yield path


def _samples(size: int) -> Iterator[tuple[int, int]]:
    """Offset and length of the ranges that are read, in bytes; the last one is the end."""
    yield 0, min(size, _HEADER_BYTES)
    if size > _HEADER_BYTES:
        last = size - _SAMPLE_BYTES
        for index in range(1, _SAMPLES + 1):
            yield last * index // _SAMPLES, _SAMPLE_BYTES
