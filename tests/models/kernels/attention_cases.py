"""Caches of keys and values, and attention over them by the formula in f64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

SCALE = 0.4
KEYS = 2**31 - 1  # all positions are below it


def attended(
    query: Array,
    key: Array,
    value: Array,
    start: int,
    window: int,
    sinks: Array | None = None,
    *,
    block: int = 0,
) -> Array:
    """softmax(scale q k^T) v (Vaswani et al., 2017) of each token over the positions it sees.

    With sinks, (H,), a score of each head is added whose value is 0. Each token also sees the first
    `block` tokens.
    """
    tokens, heads, width = query.shape
    groups = key.shape[1] // width
    result = np.empty(query.shape)
    for token in range(tokens):
        position = start + token
        last = max(position, start + block - 1)
        rows = [p % len(key) for p in range(last + 1) if position - p < window]
        for head in range(heads):
            columns = slice(
                head // (heads // groups) * width, (head // (heads // groups) + 1) * width
            )
            scores = key[rows, columns].astype(np.float64) @ query[token, head].astype(np.float64)
            scores *= SCALE
            sink = -np.inf if sinks is None else float(sinks[head])
            top = max(scores.max(), sink)
            weights = np.exp(scores - top)
            total = weights.sum() + np.exp(sink - top)
            result[token, head] = weights @ value[rows, columns] / total
    return result


# tokens, heads, groups, width, rows, window, start
FORMS = {
    "a first token": (1, 4, 1, 64, 40, 32, 0),
    "one token, one group": (1, 4, 1, 256, 96, 64, 70),
    "a ring that has wrapped": (5, 4, 2, 64, 70, 64, 333),
    "no sharing of keys": (6, 3, 3, 128, 200, 1000, 150),
    "three heads share": (9, 9, 3, 64, 150, 100, 45),
    "eight heads share": (3, 8, 1, 64, 80, 1000, 64),
    "a window of one": (4, 2, 1, 64, 30, 1, 10),
    "a prefill": (43, 9, 3, 64, 150, 100, 45),
    "a prefill, with three queries left over": (37, 9, 3, 64, 300, 1000, 91),
    "a prefill of wide heads": (33, 4, 1, 256, 200, 64, 130),
    "a prefill of heads of 192, in a ring that has wrapped": (17, 16, 8, 192, 90, 70, 345),
    "a prefill with a window of one": (20, 8, 4, 64, 40, 1, 10),
    "one token, in f16": (1, 4, 1, 256, 96, 64, 70),
    "a ring that has wrapped, in f16": (5, 4, 2, 64, 70, 64, 333),
    "a prefill that wraps a ring, in f16": (43, 9, 3, 64, 150, 100, 245),
}

# Of prefills alone.
OF_IMAGES = {
    **{name: form for name, form in FORMS.items() if "prefill" in name},
    "heads of 80": (70, 3, 3, 80, 70, 1000, 0),
}


def cache_of(name: str) -> tuple[Array, Array, Array, int, int]:
    tokens, heads, groups, width, rows, window, start = {**FORMS, **OF_IMAGES}[name]
    rng = np.random.default_rng(3)
    query = rng.normal(size=(tokens, heads, width))
    dtype = np.float16 if name.endswith("in f16") else np.float32
    key, value = rng.normal(size=(2, rows, groups * width)).astype(dtype)
    return query.astype(np.float32), key, value, start, window


def sinks_of(query: Array) -> Array:
    """Sinks of all heads: far below the scores, far above them, and among them."""
    count = query.shape[1]
    return np.resize(np.array([-1e30, 300.0, 0.5, -2.0, 3.0], np.float32), count)
