"""The weights of a GGUF file that a token does not read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import gguf

from hearthd.baker.weights.gguf import GgufSource

if TYPE_CHECKING:
    from pathlib import Path

_EXPERTS = "_exps.weight"
_TABLE, _HEAD = "token_embd.weight", "output.weight"


def unread_bytes(path: Path) -> int:
    """Bytes of experts that a token is not routed to, and of a table that is not the head too.

    Raises a WeightsError.
    """
    source = GgufSource(path)
    metadata, names = source.metadata(), source.names()
    architecture = metadata.get("general.architecture")

    def count(key: str) -> int:
        value = metadata.get(f"{architecture}.{key}", 1)
        return value if isinstance(value, int) else 1

    def size(name: str) -> int:
        kind = gguf.GGMLQuantizationType[source.dtype(name).upper()]
        block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        return math.prod(source.shape(name)) // block * block_bytes

    routed = sum(size(name) for name in names if name.endswith(_EXPERTS))
    experts = count("expert_count")
    unrouted = routed * (experts - count("expert_used_count")) // experts
    return unrouted + (size(_TABLE) if _HEAD in names else 0)
