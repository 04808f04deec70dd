"""Blocks of KV rows: their keys, and the file of blocks in a bundle.

A *block* has the rows that reading one chunk of a prompt writes into the caches of a slot. Only the
rest of a prompt, after its whole chunks, is a shorter block.
Its key is a digest of the block's tokens and the previous block's key, so it identifies all tokens
from position 0 to the block's end, and the adapter: in one bundle, equal keys mean equal rows.

A file of blocks is a header (magic, number of blocks), the keys, and the rows of the blocks, all of
one size. Its digest is in the bundle's manifest, so its rows have no checksums.
"""

from __future__ import annotations

import hashlib
import struct
from array import array
from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.bundle import Corrupt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from hearthd.runtime.interface import Rows

_MAGIC = b"hearthb1"
_HEADER = struct.Struct("<8sQ")
_KEY_BYTES = hashlib.sha256().digest_size


def block_keys(
    tokens: Sequence[int], chunk: int, adapter: bytes = b"", *, rest: bool = False
) -> tuple[bytes, ...]:
    """The keys of the whole chunks of `chunk` tokens in `tokens`, in order.

    `adapter` is the key of the LoRA adapter that reads the tokens. With `rest`, the tokens after
    the last whole chunk have a key, too.
    """
    keys: list[bytes] = []
    for start in range(0, len(tokens) if rest else len(tokens) - chunk + 1, chunk):
        before = keys[-1] if keys else adapter
        chunk_bytes = array("q", tokens[start : start + chunk]).tobytes()
        keys.append(hashlib.sha256(before + chunk_bytes).digest())
    return tuple(keys)


def write_blocks(path: Path, blocks: Mapping[bytes, Rows]) -> None:
    """Write blocks, by their keys, to a file."""
    with path.open("wb") as file:
        file.write(_HEADER.pack(_MAGIC, len(blocks)))
        file.write(b"".join(blocks))
        for rows in blocks.values():
            file.write(rows.data)


def read_blocks(path: Path, block_bytes: int) -> dict[bytes, Rows]:
    """The blocks of a file by their keys, memory-mapped.

    Raises Corrupt unless every block has `block_bytes` bytes.
    """
    size = path.stat().st_size if path.is_file() else 0
    if size < _HEADER.size:
        raise Corrupt(
            f"{path}: truncated: got {size} bytes, expected at least {_HEADER.size}; "
            "bake the bundle again"
        )
    data = np.memmap(path, np.uint8, mode="r")
    magic, count = _HEADER.unpack(data[: _HEADER.size].tobytes())
    start = _HEADER.size + count * _KEY_BYTES
    if magic != _MAGIC or count == 0 or size - start != count * block_bytes or not block_bytes:
        raise Corrupt(
            f"{path}: not a file of {count} blocks of {block_bytes} bytes; bake the bundle again"
        )
    keys = data[_HEADER.size : start].tobytes()
    return {
        keys[i * _KEY_BYTES : (i + 1) * _KEY_BYTES]: rows
        for i, rows in enumerate(data[start:].reshape(count, -1))
    }
