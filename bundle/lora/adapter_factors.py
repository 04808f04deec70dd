"""An adapter in the form that the program of a bundle reads."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.bundle import BadSignature, require_signed_files
from hearthd.bundle.lora.adapter_folder import files_digest
from hearthd.bundle.lora.adapter_settings import BadAdapter
from hearthd.bundle.lora.read_adapter import adapter_files, read_adapter

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.bundle import AdapterMatrix, AdapterPlaces, PublicKey
    from hearthd.bundle.lora.adapter_folder import LoraAdapter

    Array = NDArray[Any]

_NUMPY = {"i8": np.int8, "f16": np.float16, "f32": np.float32}
_MAX_INTEGER = 127
# Of a row of zeros: the smallest f16.
_MIN_SCALE = np.float32(2.0**-24)
# The power of two that the largest scale of a row, f16, is below.
_SCALE_POWER = 15


@dataclass(frozen=True, kw_only=True)
class AdapterFactors:
    """An adapter that was checked against a bundle.

    arrays  the factors, an array for each of the bundle's `adapters.arrays`
    scale   of the terms, when a request uses the adapter with scale 1
    digest  sha256 of the adapter's files
    """

    arrays: tuple[Array, ...]
    scale: float
    digest: bytes


def read_factors(
    path: Path, places: AdapterPlaces, keys: Sequence[PublicKey] = ()
) -> AdapterFactors:
    """Read an adapter: a folder of PEFT's or Hearth's, or a GGUF file; raises BadAdapter.

    If there are `keys`, one of them must have signed the adapter.
    """
    modules = {matrix.module: matrix for matrix in places.matrices}
    adapter = (
        _read_signed(path, places, keys)
        if keys
        else read_adapter(path, places.matrices, places.gguf_architecture, places.rank)
    )
    # Powers of two keep numbers in the range of f16 and change no bits.
    a_power = _power(term.a for term in adapter.terms.values())
    matrices = {
        modules[module]: (np.ldexp(term.a, -a_power), term.b)
        for module, term in adapter.terms.items()
    }
    is_small = any(array.dtype == "i8" for array in places.arrays)
    if is_small:
        matrices = {matrix: _with_integers(a, b) for matrix, (a, b) in matrices.items()}
    b_power = _power(b for _, b in matrices.values())
    if is_small:
        b_power -= _SCALE_POWER + _MAX_INTEGER.bit_length() - 1
    arrays = tuple(np.zeros(array.shape[1:], _NUMPY[array.dtype]) for array in places.arrays)
    for matrix, (a, b) in matrices.items():
        _write(arrays, matrix, places.lanes(matrix), a, np.ldexp(b, -b_power))
    scale = adapter.settings.scale * 2.0 ** (a_power + b_power)
    if abs(scale) > float(np.finfo(np.float32).max):
        raise BadAdapter(f"{path}: lora_alpha: got {adapter.settings.alpha}, which is too large")
    return AdapterFactors(arrays=arrays, scale=scale, digest=adapter.digest)


def _read_signed(path: Path, places: AdapterPlaces, keys: Sequence[PublicKey]) -> LoraAdapter:
    """Read an adapter after its signature was checked; raises BadAdapter."""
    if not path.is_dir():
        raise BadAdapter(
            f"{path}: a GGUF file has no signature, and a signature is required; specify a folder "
            "that PEFT wrote and `hearth sign` signed"
        )
    try:
        signed = require_signed_files(path, keys)
    except BadSignature as error:
        raise BadAdapter(str(error)) from error
    adapter = read_adapter(path, places.matrices, places.gguf_architecture, places.rank)
    # The files may have been replaced meanwhile, and `digest` is of the bytes that were parsed.
    digests = [signed.sha256.get(file.name, "") for file in adapter_files(path)]
    if adapter.digest != files_digest(map(bytes.fromhex, digests)):
        raise BadAdapter(f"{path}: was changed after it was signed; copy it again")
    return adapter


def _power(matrices: Iterable[Array]) -> int:
    """The power of two that the largest magnitude of matrices is below."""
    return max(math.frexp(float(np.abs(matrix).max()))[1] for matrix in matrices)


def _with_integers(a: Array, b: Array) -> tuple[Array, Array]:
    """A with rows of integers up to 127, and B times the scales of these rows."""
    scales = _scales(a)
    return _integers(a, scales), b * scales


def _scales(matrix: Array) -> Array:
    """The scale of each row."""
    scales: Array = np.abs(matrix).max(axis=1) / np.float32(_MAX_INTEGER)
    return np.where(scales > 0, scales, np.float32(1))


def _integers(matrix: Array, scales: Array) -> Array:
    """The integers of each row by its scale."""
    integers: Array = np.rint(matrix / scales[:, None]).clip(-_MAX_INTEGER, _MAX_INTEGER)
    return integers


def _write(
    arrays: tuple[Array, ...], matrix: AdapterMatrix, lanes: int, a: Array, b: Array
) -> None:
    """Write the factors of a matrix; terms that the adapter does not have are zeros.

    `lanes` is the number of outputs of a block.
    """
    rank, rows = a.shape[0], b.shape[0]
    arrays[matrix.down][matrix.first_term : matrix.first_term + rank] = a
    stored, blocks = arrays[matrix.up], -(-rows // lanes)
    together = stored.shape[2] // lanes
    adapter_blocks = slice(matrix.first_block, matrix.first_block + blocks)
    padded = np.zeros((blocks * lanes, stored.shape[1] * together), np.float32)
    padded[:rows, :rank] = b
    if stored.dtype == np.int8:
        scales = np.maximum(_scales(padded), _MIN_SCALE).astype(np.float16)
        padded = _integers(padded, scales.astype(np.float32))
        arrays[matrix.up + 1][adapter_blocks] = scales.reshape(blocks, lanes)
    by_block = padded.reshape(blocks, lanes, -1, together).transpose(0, 2, 1, 3)
    stored[adapter_blocks] = by_block.reshape(stored[adapter_blocks].shape)
