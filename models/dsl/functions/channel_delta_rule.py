"""The delta rule with a decay for each column of a key, and with more than keys to remove by.

Kimi Delta Attention (Moonshot AI, 2025) and RWKV-7 (Peng et al., 2025) are cases of it.

`T` is tokens, `C` tokens of a chunk, `H` heads, `K` the width of a key, `V` of a value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.dsl import ops
from hearthd.models.dsl.composite import composite
from hearthd.models.dsl.functions.attention import split_heads
from hearthd.models.dsl.functions.shapes import at
from hearthd.models.dsl.functions.state_rings import counted, recurrence

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor

__all__ = ["channel_delta_rule"]


@composite()
def channel_delta_rule(
    states: Tensor,
    positions: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: Tensor,
    probe: Tensor,
    removed: Tensor,
    *,
    heads: int,
    ring: int,
    every: bool,
) -> Tensor:
    """A ring of states, updated by new tokens, and their outputs: see `recurrence_outputs`.

    states (ring + X, H * K * V), positions and `every` as of `gated_delta_rule`. value (T, H * V);
    the others (T, H * K), with log_decay at most 0. Token by token, for each head

        S = exp(log_decay) S
        S = S + key value^T + removed (S^T probe)^T;  output = S^T query

    Tokens after the last one that counts have a decay of 1, and add and remove nothing.
    """
    if not every:
        log_decay, key, removed = (counted(x, positions) for x in (log_decay, key, removed))
    width, value_width = key.shape[1] // heads, value.shape[1] // heads
    of_keys = (query, key, ops.exponential(log_decay), probe, removed)
    rows = (split_heads(value, value_width), *(split_heads(x, width) for x in of_keys))
    shape = (heads, width, value_width)
    return recurrence(states, positions, rows, _chunk, shape=shape, ring=ring, every=every)


def _chunk(
    value: Tensor,
    query: Tensor,
    key: Tensor,
    decay: Tensor,
    probe: Tensor,
    removed: Tensor,
    state: Tensor,
) -> tuple[Tensor, Tensor]:
    """The outputs (C, H, V) of C tokens and the state (H, K, V) after them."""
    tokens, shape = key.shape[0], (*key.shape, value.shape[2])
    by_key, by_value = (0, 1, 2), (0, 1, 3)
    added = ops.broadcast(key, shape=shape, axes=by_key)
    added = added * ops.broadcast(value, shape=shape, axes=by_value)
    decay, probe, removed, query = (
        ops.broadcast(x, shape=shape, axes=by_key) for x in (decay, probe, removed, query)
    )
    after = ops.scan(
        state, decay, added, probe, removed,
        body=_step, sequences=4, steps=tokens, reverse=False, keep="all",
    )  # fmt: skip
    return ops.reduce_sum(after * query, axes=(2,)), at(after, tokens - 1)


def _step(state: Tensor, decay: Tensor, added: Tensor, probe: Tensor, removed: Tensor) -> Tensor:
    state = state * decay
    found = ops.reduce_sum(state * probe, axes=(1,))
    return state + added + removed * ops.broadcast(found, shape=state.shape, axes=(0, 2))
