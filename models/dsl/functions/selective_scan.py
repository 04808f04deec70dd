"""The recurrence of Mamba (Gu and Dao, 2023): a vector of numbers per channel.

`T` is tokens, `C` tokens of a chunk, `I` channels, `K` the width of a state.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hearthd.models.dsl import ops
from hearthd.models.dsl.composite import composite
from hearthd.models.dsl.functions.activations import silu, softplus
from hearthd.models.dsl.functions.shapes import along_last, at
from hearthd.models.dsl.functions.state_rings import counted, recurrence

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor

__all__ = ["selective_scan"]


@composite()
def selective_scan(
    states: Tensor,
    positions: Tensor,
    query: Tensor,
    key: Tensor,
    x: Tensor,
    steps: Tensor,
    gate: Tensor,
    bias: Tensor,
    rates: Tensor,
    skip: Tensor,
    *,
    ring: int,
    every: bool,
) -> Tensor:
    """A ring of states, updated by new tokens, and their outputs: see `recurrence_outputs`.

    states (ring + X, K * I), positions and `every` as of `gated_delta_rule`. query and key, C and B
    in the paper, (T, K). x, steps and gate (T, I). bias and skip, D, (I,); rates, A, below 0,
    (K, I). Token by token, for each channel

        dt = softplus(steps + bias)
        S = exp(dt rates) S + key dt x;  output = silu(gate) (S^T query + skip x)

    Tokens after the last one that counts have a dt of 0, which changes nothing.
    """
    dt = softplus(steps + along_last(bias, steps))
    dt = dt if every else counted(dt, positions)
    rows = (query, key, x * dt, dt, x * along_last(skip, x), silu(gate))
    chunk = partial(_chunk, rates)
    return recurrence(states, positions, rows, chunk, shape=rates.shape, ring=ring, every=every)


def _chunk(
    rates: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dt: Tensor,
    skipped: Tensor,
    gate: Tensor,
    state: Tensor,
) -> tuple[Tensor, Tensor]:
    """The outputs (C, I) of C tokens and the state (K, I) after them."""
    tokens, shape = key.shape[0], (*key.shape, value.shape[1])
    by_channel, by_key = (0, 2), (0, 1)
    decay = ops.exponential(
        ops.broadcast(dt, shape=shape, axes=by_channel)
        * ops.broadcast(rates, shape=shape, axes=(1, 2))
    )
    added = ops.broadcast(value, shape=shape, axes=by_channel)
    added = added * ops.broadcast(key, shape=shape, axes=by_key)
    after = ops.scan(
        state, decay, added, body=_step, sequences=2, steps=tokens, reverse=False, keep="all"
    )
    read = ops.reduce_sum(after * ops.broadcast(query, shape=shape, axes=by_key), axes=(1,))
    return gate * (read + skipped), at(after, tokens - 1)


def _step(state: Tensor, decay: Tensor, added: Tensor) -> Tensor:
    return state * decay + added
