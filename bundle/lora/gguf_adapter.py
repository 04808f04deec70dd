"""A GGUF file with an adapter, as llama.cpp's convert_lora_to_gguf.py writes it.

Its tensors are the tensors of PEFT's folder under GGUF's names: `blk.0.attn_q.weight.lora_a`,
(R, K), and `.lora_b`, (N, R), whose rows have the order of the base's rows in a GGUF file. The file
is read once, so that the digest is of exactly what was checked.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
from typing import TYPE_CHECKING

import numpy as np

from hearthd.bundle.lora.adapter_folder import (
    LoraAdapter,
    LowRank,
    files_digest,
    open_file,
    require_finite,
    require_rank,
)
from hearthd.bundle.lora.adapter_settings import AdapterSettings, BadAdapter
from hearthd.bundle.parsing import safetensors_file
from hearthd.bundle.parsing.gguf_header import BadGguf, read_header, require_disjoint
from hearthd.bundle.parsing.head_rows import half_after_half

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path
    from typing import BinaryIO

    from hearthd.bundle import ModelMatrix
    from hearthd.bundle.lora.adapter_folder import Matrix
    from hearthd.bundle.parsing.gguf_header import GgufHeader, GgufTensor

_ALPHA, _ACTIVATION = "adapter.lora.alpha", "adapter.alora.invocation_tokens"
_A, _B = _FACTORS = (".lora_a", ".lora_b")
# Number of a type -> its name, and elements and bytes of a block.
_TYPES = {0: ("F32", 1, 4), 1: ("F16", 1, 2), 30: ("BF16", 1, 2), 8: ("Q8_0", 32, 34)}
_Q8_0 = np.dtype([("scale", "<f2"), ("integers", "i1", 32)])
_MAX_PADDING = 1 << 20  # bytes after the last tensor


def read_gguf_adapter(
    path: Path, matrices: Collection[ModelMatrix], architecture: str, max_rank: int | None
) -> LoraAdapter:
    """Read an adapter for a model of an architecture, as GGUF files name it, with these matrices.

    `max_rank` as in require_rank. Raises BadAdapter: it is of another model, damaged, or not a LoRA
    adapter.
    """
    if not architecture:
        raise BadAdapter(
            f"{path}: the bundle has no names of GGUF tensors, since an older version of Hearth "
            "baked it; bake it again, or load the folder that PEFT wrote"
        )
    try:
        with open_file(path) as file:
            header = read_header(file, path)
            _Contents(path, header, matrices, architecture, max_rank).require_size(file)
            file.seek(0)
            data = file.read()
        copy = io.BytesIO(data)
        contents = _Contents(path, read_header(copy, path), matrices, architecture, max_rank)
        contents.require_size(copy)
    except BadGguf as error:
        raise BadAdapter(str(error)) from error
    except OSError as error:
        raise BadAdapter(f"cannot read {path}: {error.strerror}") from error
    settings = AdapterSettings(rank=contents.rank, alpha=contents.alpha, projections=())
    terms = {}
    for matrix in contents.adapted:
        a, b = (contents.values(data, matrix.gguf + factor) for factor in _FACTORS)
        if matrix.interleaved and matrix.gguf_interleaved:
            b = half_after_half(b, matrix.interleaved)
        if (rank := len(a)) < contents.rank:
            a, b = _with_zeros(a, b, contents.rank)
            b *= np.float32(contents.relative_scale(rank))
        terms[matrix.module] = LowRank(a=a, b=b, scale=settings.scale)
    digest = files_digest([hashlib.sha256(data).digest()])
    return LoraAdapter(settings=settings, terms=terms, digest=digest)


class _Contents:
    """The contents of a header, checked against a model.

    adapted  the matrices that have factors
    rank     the largest one of a matrix
    alpha    rank * the scale of the terms of that rank
    """

    def __init__(
        self,
        path: Path,
        header: GgufHeader,
        matrices: Collection[ModelMatrix],
        architecture: str,
        max_rank: int | None,
    ) -> None:
        """Raises BadAdapter."""
        self._path, self._tensors = path, header.tensors
        _require_kind(path, header.metadata, architecture)
        self.adapted = self._adapted({matrix.gguf: matrix for matrix in matrices})
        ranks = [self._rank(matrix) for matrix in self.adapted]
        self.rank = max(ranks)
        require_rank(self.rank, matrices, max_rank, f"{path}: rank")
        for matrix, rank in zip(self.adapted, ranks, strict=True):
            shapes = (rank, matrix.columns), (matrix.rows, rank)
            for factor, shape in zip(_FACTORS, shapes, strict=True):
                self._require_shape(matrix.gguf + factor, shape)
        alpha = header.metadata.get(_ALPHA, 0.0)
        if not isinstance(alpha, float | int) or not math.isfinite(alpha):
            raise BadAdapter(f"{path}: {_ALPHA}: got {alpha!r:.80}, expected a number")
        self._has_alpha = bool(alpha)
        self.alpha = float(alpha or self.rank)  # llama.cpp: without one, the scale is 1

    def relative_scale(self, rank: int) -> float:
        """The scale of the terms of a rank, divided by the scale of the largest rank."""
        return self.rank / rank if self._has_alpha else 1.0

    def require_size(self, file: BinaryIO) -> None:
        """Raise BadAdapter unless a file ends where its tensors do, or BadGguf if they overlap."""
        size = file.seek(0, os.SEEK_END)
        stored = {name: _bytes(tensor) for name, tensor in self._tensors.items()}
        require_disjoint(self._path, stored)
        end = max(bytes_.stop for bytes_ in stored.values())
        if not end <= size <= end + _MAX_PADDING:
            raise BadAdapter(
                f"{self._path} has {size} bytes, and its last tensor ends at byte {end}; download "
                "or copy it again"
            )

    def values(self, data: bytes, name: str) -> Matrix:
        """The values of a tensor; raises BadAdapter if they are not finite."""
        tensor = self._tensors[name]
        bytes_ = _bytes(tensor)
        raw = memoryview(data)[bytes_.start : bytes_.stop]
        stored, *_ = _TYPES[tensor.type]
        if stored == "Q8_0":
            blocks = np.frombuffer(raw, _Q8_0)
            values = blocks["scale"].astype(np.float32)[:, None] * blocks["integers"]
        else:
            values = safetensors_file.floats(raw, stored)
        matrix: Matrix = values.reshape(tensor.shape)
        require_finite(matrix, name, self._path)
        return matrix

    def _adapted(self, known: Mapping[str, ModelMatrix]) -> list[ModelMatrix]:
        """The matrices that have tensors, in the order of the file."""
        names: dict[str, None] = {}
        for name in self._tensors:
            base = name.removesuffix(_A).removesuffix(_B)
            if not name.endswith(_FACTORS) or base not in known:
                raise BadAdapter(
                    f"{self._path}: tensor {name:.200} does not fit any matrix of this model"
                )
            names[base] = None
        if not names:
            raise BadAdapter(f"{self._path} has no tensors")
        return [known[name] for name in names]

    def _rank(self, matrix: ModelMatrix) -> int:
        """The rank of a matrix; raises BadAdapter."""
        for name in (matrix.gguf + factor for factor in _FACTORS):
            if name not in self._tensors:
                raise BadAdapter(f"{self._path}: tensor {name} is missing")
        *_, rank = (0, *self._tensors[matrix.gguf + _B].shape)
        if rank == 0:
            raise BadAdapter(f"{self._path}: rank: got 0, expected at least 1")
        return rank

    def _require_shape(self, name: str, shape: tuple[int, int]) -> None:
        tensor = self._tensors[name]
        if tensor.shape != shape:
            raise BadAdapter(
                f"{self._path}: tensor {name} has shape {tensor.shape}, expected {shape}"
            )
        if tensor.type not in _TYPES or tensor.shape[-1] % _TYPES[tensor.type][1]:
            raise BadAdapter(
                f"{self._path}: tensor {name} has the type number {tensor.type}, expected one of "
                f"{', '.join(name for name, *_ in _TYPES.values())}, in complete blocks"
            )


def _with_zeros(a: Matrix, b: Matrix, rank: int) -> tuple[Matrix, Matrix]:
    """The factors with zeros up to a rank, which change no value of B A."""
    missing = rank - len(a)
    return np.pad(a, ((0, missing), (0, 0))), np.pad(b, ((0, 0), (0, missing)))


def _require_kind(path: Path, metadata: Mapping[str, object], architecture: str) -> None:
    """Raise BadAdapter unless a file has a LoRA adapter for a model of this architecture."""
    stored = metadata.get("general.architecture")
    if stored == "controlvector":
        raise BadAdapter(f"{path} is a control vector, expected a LoRA adapter")
    if (kind := metadata.get("general.type")) != "adapter":
        raise BadAdapter(f"{path}: general.type: got {kind!r:.80}, expected 'adapter'")
    if (kind := metadata.get("adapter.type")) != "lora":
        raise BadAdapter(f"{path}: adapter.type: got {kind!r:.80}, expected 'lora'")
    if stored != architecture:
        raise BadAdapter(
            f"{path}: general.architecture: got {stored!r:.80}, expected {architecture!r}, as "
            "in this model"
        )
    if metadata.get(_ACTIVATION):
        raise BadAdapter(
            f"{path}: {_ACTIVATION}: got tokens after which the adapter begins, expected an "
            "adapter of all tokens"
        )


def _bytes(tensor: GgufTensor) -> range:
    """The offsets of the stored bytes of a tensor of a known type."""
    _, block, size = _TYPES[tensor.type]
    return range(tensor.offset, tensor.offset + math.prod(tensor.shape) // block * size)
