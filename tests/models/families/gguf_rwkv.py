"""Write tensors and keys of RWKV as llama.cpp's converter does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Array = NDArray[Any]

_MIXED = "rwkvag"
_NAMES = (
    (r"\.(attn|ffn)_norm\.", lambda match: ".ln1." if match[1] == "attn" else ".ln2."),
    (r"g_norm", "ln_x"),
    (r"\.attn\.", ".attention."),
    (r"\.ffn\.", ".feed_forward."),
    (r"_lora\.lora\.0", "1"),
    (r"_lora\.lora\.2\.bias", "0"),
    (r"_lora\.lora\.2", "2"),
)


def rwkv7(tensors: Iterator[tuple[str, Array]]) -> Iterator[tuple[str, Array]]:
    """The tensors; those that mix a token with the one before it become one of each layer."""
    mixes: dict[str, dict[str, Array]] = {}
    for name, values in tensors:
        if match := re.fullmatch(r"(.+\.attn\.)x_(.)", name):
            mixes.setdefault(match[1], {})[match[2]] = values
            continue
        for old, new in _NAMES:
            name = re.sub(old, new, name)
        name = name if name.endswith((".weight", ".bias")) else f"{name}.weight"
        if re.search(r"\.0\.attention\.a\d", name):  # llama.cpp needs some, and does not use them
            yield name.replace("attention.a", "attention.v"), values
        yield name, values.flatten() if "r_k" in name else values
    for module, parts in mixes.items():
        name = module.replace("attn.", "time_mix_lerp_fused.weight")
        yield name, np.stack([parts[letter] for letter in _MIXED])


def rwkv7_keys(config: Any) -> dict[str, Any]:
    """The keys of RWKV-7."""
    return {
        "attention.decay_lora_rank": config.decay_rank,
        "attention.gate_lora_rank": config.gate_rank,
        "attention.iclr_lora_rank": config.rate_rank,
        "attention.value_residual_mix_lora_rank": config.value_rank,
        "wkv.head_size": config.head_dim,
    }
