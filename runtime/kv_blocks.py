"""Blocks of KV rows: what they are called, and the file of them that a bundle may hold.

A *block* is what reading one whole chunk of a prompt leaves in the caches of a slot. Its key is a
digest of the block's tokens and the key of the block before, so that it stands for all tokens from
position 0 to the block's end: in one bundle, equal keys mean equal rows.

A file of blocks is a header (magic, how many), the keys, and the rows of the blocks, all of one
size. The bundle's manifest has its digest, so its rows are not checked again.
"""

from __future__ import annotations

import hashlib
import struct
from array import array
from typing import TYPE_CHECKING

import numpy as np

from models.bundle import Corrupt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from runtime.interface import Rows

_MAGIC = b"hearthb1"
_HEADER = struct.Struct("<8sQ")
_KEY_BYTES = hashlib.sha256().digest_size


def block_keys(tokens: Sequence[int], chunk: int) -> tuple[bytes, ...]:
    """The keys of the whole chunks of `chunk` tokens that lie in `tokens`, first to last."""
    keys: list[bytes] = []
    for start in range(0, len(tokens) - chunk + 1, chunk):
        before = keys[-1] if keys else b""
        own = array("q", tokens[start : start + chunk]).tobytes()
        keys.append(hashlib.sha256(before + own).digest())
    return tuple(keys)


def write_blocks(path: Path, blocks: Mapping[bytes, Rows]) -> None:
    """Write a file of blocks, by their keys."""
    with path.open("wb") as file:
        file.write(_HEADER.pack(_MAGIC, len(blocks)))
        file.write(b"".join(blocks))
        for rows in blocks.values():
            file.write(rows.data)


def read_blocks(path: Path, block_bytes: int) -> dict[bytes, Rows]:
    """The blocks of a file by their keys, mapped and not read.

    Raises Corrupt unless they are of `block_bytes` each.
    """
    size = path.stat().st_size if path.is_file() else 0
    if size < _HEADER.size:
        raise Corrupt(f"{path} has {size} bytes, a file of blocks has more: bake the bundle again")
    data = np.memmap(path, np.uint8, mode="r")
    magic, count = _HEADER.unpack(data[: _HEADER.size].tobytes())
    start = _HEADER.size + count * _KEY_BYTES
    if magic != _MAGIC or count == 0 or size - start != count * block_bytes or not block_bytes:
        raise Corrupt(
            f"{path} is no file of {count} blocks of {block_bytes} bytes: bake the bundle again"
        )
    keys = data[_HEADER.size : start].tobytes()
    return {
        keys[i * _KEY_BYTES : (i + 1) * _KEY_BYTES]: rows
        for i, rows in enumerate(data[start:].reshape(count, -1))
    }
