"""The recurrence of Mamba-2 (Dao and Gu, 2024, "Transformers are SSMs"): a matrix per head.

`T` are tokens, `C` those of a chunk, `H` heads, `G` groups of heads, `K` the width of a state, `V`
of a head.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import ops
from hearthd.models.dsl.composite import composite
from hearthd.models.dsl.functions.shapes import permute
from hearthd.models.dsl.functions.state_rings import (
    decay_between,
    learned_state,
    mask,
    recurrence,
    scaled,
    sums_until,
    times_transposed,
)

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor

__all__ = ["ssm_scan"]


@composite()
def ssm_scan(
    states: Tensor,
    positions: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: Tensor,
    *,
    ring: int,
    every: bool,
) -> Tensor:
    """A ring of states with those after new tokens, and behind it what they read: see `learned`.

    states (ring + X, H * K * V), positions and `every` as of `gated_delta_rule`. query and key, C
    and B in the paper, (T, G, K): head h has those of group h // (H / G). value, dt x, (T, H, V)
    and log_decay, dt A, at most 0, (T, H). Token by token

        S = exp(log_decay) S + key value^T;  output = S^T query

    Tokens after the last one that counts must have a log_decay and a value of 0, which change
    nothing. Computed by products for many tokens at a time; the kernel computes token by token.
    """
    shape = (value.shape[1], key.shape[2], value.shape[2])
    rows = (query, key, value, log_decay)
    return recurrence(states, positions, rows, _chunk, shape=shape, ring=ring, every=every)


def _chunk(
    query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """The outputs (C, H, V) of C tokens and the state (H, K, V) after them.

    With G the sums of log_decay up to each token and D_ij = exp(G_i - G_j) for j <= i, else 0:

        output = exp(G) query S + ((query key^T) D) value
        S = exp(G_C) S + (exp(G_C - G) key)^T value
    """
    heads = value.shape[1]
    query, key = (_of_heads(permute(x, 1, 0, 2), heads) for x in (query, key))
    value, until = permute(value, 1, 0, 2), sums_until(permute(log_decay, 1, 0))
    decay = decay_between(until)
    seen = times_transposed(query, key) * decay * mask(np.tri(decay.shape[1]), decay)
    before = ops.matmul(scaled(query, ops.exponential(until)), state)
    output = before + ops.matmul(seen, value)
    return permute(output, 1, 0, 2), learned_state(state, key, value, until)


def _of_heads(x: Tensor, heads: int) -> Tensor:
    """Rows of groups (G, C, K), each for the heads that read it: (H, C, K)."""
    groups, tokens, width = x.shape
    shape = (groups, heads // groups, tokens, width)
    return ops.reshape(ops.broadcast(x, shape=shape, axes=(0, 2, 3)), shape=(heads, tokens, width))
