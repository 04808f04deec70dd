"""A prompt that the model has read before it is served: `bake --prefix FILE`.

The file is the start of the prompts to come, exactly as they begin: for a chat with the markup of
its template. It is read like any prompt, in whole chunks; what is left of it behind the last one is
not kept. The blocks are computed by the compiled program, and serve only that very program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runtime.kv_blocks import block_keys, write_blocks

if TYPE_CHECKING:
    from pathlib import Path

    from tokenizers import Tokenizer

    from runtime.interface import Runtime


class PrefixError(Exception):
    """The prefix cannot be put into the bundle; the message says why."""


def prefix_ids(
    text: str, tokenizer: Tokenizer, bos: int | None, *, chunk: int, context: int
) -> tuple[int, ...]:
    """The ids of a prefix as the server reads a text; raises PrefixError if none can be kept."""
    ids = tuple(tokenizer.encode(text, add_special_tokens=False).ids)
    if bos is not None and ids[:1] != (bos,):
        ids = (bos, *ids)
    if not chunk <= len(ids) < context:
        raise PrefixError(
            f"--prefix has {len(ids)} tokens, wanted {chunk} (one chunk) to {context - 1} (one "
            "less than the context)"
        )
    return ids


def write_prefix(runtime: Runtime, ids: tuple[int, ...], path: Path) -> None:
    """Read the whole chunks of the ids and write what each leaves in the caches."""
    blocks = {}
    for number, key in enumerate(block_keys(ids, runtime.chunk)):
        start, stop = number * runtime.chunk, (number + 1) * runtime.chunk
        runtime.prefill(0, ids[start:stop], start)
        blocks[key] = runtime.save(0, start, stop)
    write_blocks(path, blocks)
