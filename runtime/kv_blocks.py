"""Keys of blocks of KV rows.

A *block* has the rows that reading one chunk of a prompt writes into the caches of a slot. Only the
rest of a prompt, after its whole chunks, is a shorter block.
Its key is a digest of the block's tokens and the previous block's key, so it identifies all tokens
from position 0 to the block's end, and the adapter: in one bundle, equal keys mean equal rows.
"""

from __future__ import annotations

import hashlib
from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


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
