"""The folder that PEFT keeps an adapter in: adapter_config.json and adapter_model.safetensors.

Both files are read once, so that the digest is of exactly what was checked. In shape comments `R`
is the rank of an adapter, `K` the columns and `N` the rows of a matrix.
"""

from __future__ import annotations

import hashlib
import math
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from hearthd.bundle.lora.adapter_settings import CONFIG, BadAdapter, parse_settings
from hearthd.bundle.parsing import safetensors_file
from hearthd.bundle.parsing.file_formats import HEAD_BYTES, other_format
from hearthd.bundle.parsing.head_rows import half_after_half

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.bundle import ModelMatrix
    from hearthd.bundle.lora.adapter_settings import AdapterSettings

    Matrix = NDArray[np.float32]

TENSORS = "adapter_model.safetensors"
PREFIX = "base_model.model."
WEIGHT = ".weight"
_FACTORS = ("lora_A", "lora_B")
_MAX_CONFIG = 1 << 20
_DO_NOT_WAIT = getattr(os, "O_NONBLOCK", 0)  # for a pipe; Windows has none among files
# Bytes of a header for each tensor, and of metadata.
_HEADER_BYTES = 1 << 10


@dataclass(frozen=True, kw_only=True)
class LowRank:
    """The term scale * B A of a matrix (N, K), with A (R, K) and B (N, R)."""

    a: Matrix
    b: Matrix
    scale: float


@dataclass(frozen=True, kw_only=True)
class LoraAdapter:
    """An adapter that was read and checked.

    terms   by the names of the modules in Hugging Face's models
    digest  sha256 of the files
    """

    settings: AdapterSettings
    terms: Mapping[str, LowRank]
    digest: bytes


def read_peft_adapter(
    folder: Path, matrices: Collection[ModelMatrix], max_rank: int | None
) -> LoraAdapter:
    """Read an adapter for a model with these matrices; `max_rank` as in require_rank.

    Raises BadAdapter: it is of another model, damaged, or uses an option that is not supported.
    """
    config, tensors = folder / CONFIG, folder / TENSORS
    text = _read(config, _MAX_CONFIG)
    settings = parse_settings(text, config)
    require_rank(settings.rank, matrices, max_rank, f"{config}: r")
    shapes = {matrix.module: (matrix.rows, matrix.columns) for matrix in matrices}
    heads = {matrix.module: matrix.interleaved for matrix in matrices if matrix.folder_interleaved}
    floats = settings.rank * sum(rows + columns for rows, columns in shapes.values())
    data = _read(tensors, 4 * floats + _HEADER_BYTES * (2 * len(shapes) + 64))
    file = _Tensors(data, tensors)
    terms = {}
    for module in file.modules(shapes):
        rows, columns = shapes[module]
        a = file.matrix(f"{PREFIX}{module}.lora_A{WEIGHT}", (settings.rank, columns))
        b = file.matrix(f"{PREFIX}{module}.lora_B{WEIGHT}", (rows, settings.rank))
        if module in heads:
            b = half_after_half(b, heads[module])
        terms[module] = LowRank(a=a, b=b, scale=settings.scale)
    if not terms:
        raise BadAdapter(f"{tensors} has no tensors")
    digest = files_digest(hashlib.sha256(content).digest() for content in (text, data))
    return LoraAdapter(settings=settings, terms=terms, digest=digest)


def require_rank(
    rank: int, matrices: Iterable[ModelMatrix], max_rank: int | None, where: str
) -> None:
    """Raise BadAdapter for a rank that exceeds every matrix of a model, or a bundle's `max_rank`.

    A file may have as many bytes as its rank says, so the rank is checked before it is read.
    """
    largest = max((max(matrix.rows, matrix.columns) for matrix in matrices), default=0)
    if rank > largest:
        raise BadAdapter(
            f"{where}: got {rank}, expected at most {largest}, the largest size of a matrix of "
            "this model"
        )
    if max_rank is not None and rank > max_rank:
        raise BadAdapter(
            f"{where}: got {rank}, expected at most {max_rank}, the --rank of the bundle; bake it "
            "again with a larger one"
        )


def files_digest(digests: Iterable[bytes]) -> bytes:
    """The sha256 of an adapter: of the digests of its files."""
    return hashlib.sha256(b"".join(digests)).digest()


class _Tensors:
    """The tensors of a safetensors file in memory."""

    def __init__(self, data: bytes, path: Path) -> None:
        self._path = path
        try:
            self._entries, self._data = safetensors_file.parse(data)
        except (ValueError, KeyError, TypeError) as error:
            is_whole = data[safetensors_file.LENGTH_BYTES :][:1] == b"{"
            reason = None if is_whole else other_format(data[:HEAD_BYTES])
            raise BadAdapter(
                f"{path} is not a complete safetensors file: {reason or error}"
            ) from error

    def modules(self, known: Mapping[str, Any]) -> list[str]:
        """The modules that have tensors; raises BadAdapter for a tensor of none that is known."""
        known_modules: dict[str, None] = {}
        for name in sorted(self._entries):
            path, _, factor = name.removesuffix(WEIGHT).rpartition(".")
            module = path.removeprefix(PREFIX)
            is_factor = path.startswith(PREFIX) and name.endswith(WEIGHT) and factor in _FACTORS
            if not is_factor or module not in known:
                raise BadAdapter(
                    f"{self._path}: tensor {name:.200} does not fit any matrix of this model"
                )
            known_modules[module] = None
        return list(known_modules)

    def matrix(self, name: str, shape: tuple[int, int]) -> Matrix:
        """A matrix of finite numbers."""
        if name not in self._entries:
            raise BadAdapter(f"{self._path}: tensor {name} is missing")
        stored, stored_shape, start = self._entries[name]
        if stored_shape != shape:
            raise BadAdapter(
                f"{self._path}: tensor {name} has shape {stored_shape}, expected {shape}"
            )
        raw = self._data[start : start + math.prod(shape) * safetensors_file.BYTES[stored]]
        matrix = safetensors_file.floats(raw, stored).reshape(shape)
        require_finite(matrix, name, self._path)
        return matrix


def require_finite(matrix: Matrix, name: str, path: Path) -> None:
    """Raise BadAdapter for a tensor with a value that is not finite."""
    if not np.isfinite(matrix).all():
        raise BadAdapter(f"{path}: tensor {name} has values that are not finite")


def open_file(path: Path) -> BinaryIO:
    """Open a file; raises OSError, or BadAdapter for a pipe or a device."""
    file = os.fdopen(os.open(path, os.O_RDONLY | _DO_NOT_WAIT), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise BadAdapter(f"{path} is not a file")
    return file


def _read(path: Path, limit: int) -> bytes:
    """The bytes of a file, at most `limit`; raises BadAdapter, also for a pipe or a device."""
    try:
        with open_file(path) as file:
            size = file.seek(0, os.SEEK_END)
            if size > limit:
                raise BadAdapter(
                    f"{path} has {size} bytes, expected at most {limit} for this model"
                )
            file.seek(0)
            return file.read(size)
    except FileNotFoundError as error:
        other = path.with_suffix(".bin")
        found = f", but {other.name}; save the adapter as safetensors" if other.exists() else ""
        raise BadAdapter(f"cannot read {path}: {error.strerror}{found}") from error
    except OSError as error:
        raise BadAdapter(f"cannot read {path}: {error.strerror}") from error
