"""The tensors of Granite Swash, as llama.cpp's converter writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Array = NDArray[Any]

_RENAMED = {
    "self_attn.sinks": "attn_sinks.weight",
    "block_sparse_moe.experts.gate_up_proj": "ffn_gate_up_exps.weight",
    "block_sparse_moe.experts.down_proj": "ffn_down_exps.weight",
    "block_sparse_moe.router.weight": "ffn_gate_inp.weight",
    "shared_mlp.input_linear": "ffn_up_shexp",
    "shared_mlp.output_linear": "ffn_down_shexp",
}


def granite_swa(name: str, values: Array) -> Iterator[tuple[str, Array]]:
    """A tensor of Granite Swash, whose gates and rows up stay together."""
    for old, new in _RENAMED.items():
        name = name.replace(old, new)
    yield name, values
