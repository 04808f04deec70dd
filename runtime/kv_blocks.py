"""Keys of blocks of KV rows.

A *block* has the rows that reading one chunk of a prompt writes into the caches of a slot. Only the
rest of a prompt, after its whole chunks, is a shorter block.
Its key is a digest of what the chunk reads and the previous block's key, so it identifies all that
was read from position 0 to the block's end, the adapter, and the salt of clients that share blocks:
in one bundle, equal keys mean equal rows.

A layer that keeps a state of the sequence, in place of a row of each position, has no rows in a
block. A *snapshot* has these states after a block's last position. Its key is derived from the
block's.
"""

from __future__ import annotations

import hashlib
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def block_keys(chunks: Iterable[bytes], start: bytes = b"") -> tuple[bytes, ...]:
    """The keys of the blocks of a prompt, by the bytes that say what each chunk reads, in order.

    `start` is the salt, and the key of the LoRA adapter that reads the prompt.
    """
    keys = accumulate(
        chunks, lambda before, chunk: hashlib.sha256(before + chunk).digest(), initial=start
    )
    return tuple(keys)[1:]


def snapshot_key(block_key: bytes) -> bytes:
    """The key of the states after a block."""
    return hashlib.sha256(block_key + b"states").digest()
