"""A prompt prefix that is prefilled before serving: `hearth bake --prefix FILE`.

The file is the exact start of future prompts: for a chat, with the markup of its template. It is
prefilled in whole chunks; the rest after the last whole chunk is not kept. The compiled program
computes the KV cache blocks, and they are valid only for this program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.runtime.kv_blocks import block_keys, write_blocks

if TYPE_CHECKING:
    from pathlib import Path

    from tokenizers import Tokenizer

    from hearthd.runtime.interface import Runtime


class PrefixError(Exception):
    """The prefix cannot be stored in the bundle; the message says why."""


def prefix_ids(
    text: str, tokenizer: Tokenizer, bos: int | None, *, chunk: int, context: int
) -> tuple[int, ...]:
    """The token ids of a prefix, as the server encodes prompts; raises PrefixError."""
    ids = tuple(tokenizer.encode(text, add_special_tokens=False).ids)
    if bos is not None and ids[:1] != (bos,):
        ids = (bos, *ids)
    if not chunk <= len(ids) < context:
        raise PrefixError(
            f"--prefix has {len(ids)} tokens, expected {chunk} (one chunk) to {context - 1} (one "
            "less than the context)"
        )
    return ids


def write_prefix(runtime: Runtime, ids: tuple[int, ...], path: Path) -> None:
    """Prefill the whole chunks of the ids and write the KV cache rows of each."""
    blocks = {}
    for number, key in enumerate(block_keys(ids, runtime.chunk)):
        start, stop = number * runtime.chunk, (number + 1) * runtime.chunk
        runtime.prefill(0, ids[start:stop], start)
        blocks[key] = runtime.save(0, start, stop)
    write_blocks(path, blocks)
