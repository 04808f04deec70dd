"""When each token of a text is spoken, by the cross attention of the alignment heads.

Source: `median_filter`, `dtw_cpu` and `find_alignment` in timing.py of OpenAI's Whisper.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray  # noqa: TC002 - the annotations of this module use it everywhere

_FILTER = 7  # states of the median
_DIAGONAL, _TOKEN, _STATE = 0, 1, 2  # steps of a path: to both, the next token, or the next state


def first_states(scores: NDArray[np.float32], *, skipped: int) -> NDArray[np.intp]:
    """The first state of each token, of scores f32 (A, N, S) before the softmax.

    A token has the attention of the token behind it. So the result (N - 1 - skipped,) has the
    states of the tokens from `skipped` + 1 on. All tokens are normalized together.
    """
    weights = np.zeros(scores.shape[1:], np.float32)
    for head in scores:  # one after the other: the filter takes several times their memory
        weights += _filtered(_normalized(head))
    return _path_starts(weights[skipped:-1] / np.float32(-len(scores)))


def _normalized(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """Softmax over states, then zero mean and unit variance over tokens, (N, S)."""
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    deviation = np.maximum(weights.std(axis=0), np.finfo(np.float32).tiny)
    return np.asarray((weights - weights.mean(axis=0)) / deviation, np.float32)


def _filtered(weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """The median of the states around each one, mirrored at both ends, (N, S)."""
    margin = _FILTER // 2
    if weights.shape[1] <= margin:
        return weights
    padded = np.pad(weights, ((0, 0), (margin, margin)), mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, _FILTER, axis=1)
    middle: NDArray[np.float32] = np.partition(windows, margin, axis=2)[..., margin]
    return middle


def _path_starts(costs: NDArray[np.float32]) -> NDArray[np.intp]:
    """The first state of each token on the cheapest path through costs (N, S), (N,)."""
    steps = _steps(costs)
    token, state = costs.shape
    starts = np.zeros(token, np.intp)
    while token > 0 and state > 0:
        starts[token - 1] = state - 1
        step = steps[token, token + state]
        token -= step != _STATE
        state -= step != _TOKEN
    return starts


def _steps(costs: NDArray[np.float32]) -> NDArray[np.int8]:
    """The last step of the cheapest path to each cell, int8 (N + 1, N + S + 1).

    By the token and the sum of token and state, both from 1: the cells of one sum do not depend on
    each other.
    """
    tokens, states = costs.shape
    steps = np.full((tokens + 1, tokens + states + 1), _STATE, np.int8)
    infinite = np.full(tokens + 1, np.inf, np.float32)
    before, last = infinite.copy(), infinite.copy()  # by token, of the two sums before
    before[0] = 0.0
    for total in range(2, tokens + states + 1):
        token = np.arange(max(1, total - states), min(tokens, total - 1) + 1)
        diagonal, token_step, state_step = before[token - 1], last[token - 1], last[token]
        step = np.where(
            (diagonal < token_step) & (diagonal < state_step),
            _DIAGONAL,
            np.where((token_step < diagonal) & (token_step < state_step), _TOKEN, _STATE),
        )
        steps[token, total] = step
        current = infinite.copy()
        current[token] = costs[token - 1, total - token - 1] + np.choose(
            step, (diagonal, token_step, state_step)
        )
        before, last = last, current
    return steps
