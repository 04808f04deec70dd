"""The start of a model's files: enough to plan a bake, without the tensors.

A copy has the size of the file and takes the disk space of its header: where the tensors are, it is
sparse. So the readers of weights read it as they read the file.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hearthd.baker.hub.file_choice import is_gguf, is_tensors, weights_in
from hearthd.baker.weights.gguf import tensor_ranges

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hearthd.baker.hub.file_choice import RepositoryFile
    from hearthd.baker.hub.repository import Repository
    from hearthd.baker.progress import Progress

# Bytes of the first request, which have the header of most files: vocabularies take 1 to 8 MB, and
# the tables of tensors much less.
_FIRST_GGUF, _FIRST_TABLE = 8 << 20, 1 << 18
_LENGTH_BYTES = 8  # of the length in front of a safetensors header
# Tensors of a GGUF file that are part of the configuration.
_CONFIGURATION = "rope_"


def copy_headers(
    repository: Repository, files: Sequence[RepositoryFile], folder: Path, progress: Progress
) -> Path:
    """Copy the headers of a model's files to a folder: the path of the weights there.

    Files of a Hugging Face folder that have no tensors are downloaded. Raises HubError,
    RangesUnsupported, or BadFile for a corrupt header.
    """
    for file in files:
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        if is_tensors(file.path):
            _copy_safetensors(repository, file, path)
        elif is_gguf(file):
            # The first shard of a split file has the vocabulary.
            first = _FIRST_GGUF if file is files[0] else _FIRST_TABLE
            _copy_gguf(repository, file, path, first)
        else:
            path.symlink_to(repository.fetch(file, progress))
    return weights_in(folder, files)


def _copy_gguf(repository: Repository, file: RepositoryFile, path: Path, first: int) -> None:
    size = _copy(repository, file, path, range(first))
    while (tensors := tensor_ranges(path)) is None and path.stat().st_size < size:
        start = path.stat().st_size
        _copy(repository, file, path, range(start, 2 * start))
    for name, bytes_ in (tensors or {}).items():
        if name.startswith(_CONFIGURATION):
            _copy(repository, file, path, bytes_)
    os.truncate(path, size)


def _copy_safetensors(repository: Repository, file: RepositoryFile, path: Path) -> None:
    size = _copy(repository, file, path, range(_FIRST_TABLE))
    with path.open("rb") as opened:
        end = _LENGTH_BYTES + int.from_bytes(opened.read(_LENGTH_BYTES), "little")
    if _FIRST_TABLE < end <= size:
        _copy(repository, file, path, range(_FIRST_TABLE, end))
    os.truncate(path, size)


def _copy(repository: Repository, file: RepositoryFile, path: Path, bytes_: range) -> int:
    """Copy a range of a file; returns the size of the file."""
    data, size = repository.read(file, bytes_)
    with path.open("r+b" if path.exists() else "wb") as opened:
        opened.seek(bytes_.start)
        opened.write(data)
    return size
