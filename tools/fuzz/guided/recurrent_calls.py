"""Calls of the kernels of recurrent layers: see kernel_calls.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tools.fuzz.guided.call_values import Call

if TYPE_CHECKING:
    from tools.fuzz.guided.call_values import Values
    from tools.fuzz.guided.chosen_numbers import Numbers


def recurrence(n: Numbers, v: Values) -> Call:
    """States of recurrences: those after each token, or after the last one."""
    tokens, heads, keys, width = n.between(1, 9), n.between(1, 4), n.between(1, 40), n.between(1, 3)
    width, first, every = 16 * width, n.between(0, 30), bool(n.between(0, 1))
    ring = n.between(tokens + 1 if every else 2, tokens + 4)
    if n.between(0, 4) == 4:
        states, position = v.floats(ring, width), np.array([first], np.int32)
        return Call("row_before", [states, position], {"ring": n.between(1, ring)})
    behind = -(-tokens // keys)  # rows of outputs
    counted = tokens if every else n.between(1, tokens)
    states = v.floats(ring + behind, heads * keys * width)
    positions = np.array([first, first + counted - 1], np.int32)
    attrs: dict[str, Any] = {"ring": ring, "every": every}
    name = n.one_of("channel_delta_rule", "gated_delta_rule", "selective_scan", "ssm_scan")
    if name == "channel_delta_rule":
        query, key, probe, removed = (v.floats(tokens, heads * keys) for _ in range(4))
        decay, value = (v.floats(tokens, heads * columns) for columns in (keys, width))
        rows = [query, key, value, -np.abs(decay), probe, removed]
        return Call(name, [states, positions, *rows], {**attrs, "heads": heads})
    if name == "selective_scan":
        return Call(
            name,
            [states, positions, *_of_channels(n, v, keys, heads * width, tokens, attrs)],
            attrs,
        )
    groups, padding = n.one_of(1, heads), n.between(0, 3)
    widths = [groups * keys] * 2 + [heads * width, heads, heads]
    if name == "gated_delta_rule":
        attrs["takes_turns"] = bool(n.between(0, 1))
    else:
        widths[-1] = heads * width
    attrs["columns"] = tuple((padding, padding + columns) for columns in widths)
    attrs |= {"groups": groups, "rows": (padding, padding + tokens)}
    extents = zip([tokens] * 3 + [tokens + padding] * 2, widths, strict=True)
    parts = [v.floats(rows, columns + 2 * padding) for rows, columns in extents]
    numbers = (v.floats(heads) for _ in range(2 if name == "gated_delta_rule" else 3))
    return Call(name, [states, positions, *parts, *numbers], attrs)


def _of_channels(
    n: Numbers, v: Values, keys: int, channels: int, tokens: int, attrs: dict[str, Any]
) -> list[Any]:
    """The other inputs of Mamba; adds the rows and columns that it reads to `attrs`."""
    padding, widths = n.between(0, 3), [keys] * 2 + [channels] * 3
    attrs["columns"] = tuple((padding, padding + columns) for columns in widths)
    attrs["rows"] = (padding, padding + tokens)
    parts = [v.floats(tokens + padding, columns + 2 * padding) for columns in widths]
    return [*parts, v.floats(channels), v.floats(keys, channels), v.floats(channels)]


def convolution(n: Numbers, v: Values) -> Call:
    """A short convolution, or the ring of its latest inputs."""
    tokens, taps, first = n.between(1, 9), n.between(2, 8), n.between(0, 30)
    channels, every = 16 * n.between(1, 20), bool(n.between(0, 1))
    row, column = n.between(0, 3), n.between(0, 3)
    attrs: dict[str, Any] = {
        "rows": (row, row + tokens), "columns": (column, column + channels),
    }  # fmt: skip
    x = v.floats(row + tokens + n.between(0, 1), column + channels + n.between(0, 1))
    if n.between(0, 1):
        bias = [v.floats(channels)] if n.between(0, 1) else []
        before = v.floats(1, (taps - 1) * channels)
        return Call("causal_conv", [before, x, v.floats(channels, taps), *bias], attrs)
    ring, width = n.between(tokens if every else 1, tokens + 4), (taps - 1) * channels
    counted = n.between(1, tokens) if not every else tokens
    positions = np.array([first, first + counted - 1], np.int32)
    inputs = [v.floats(ring, width), positions, v.floats(1, width), x]
    return Call("latest_inputs", inputs, attrs | {"every": every})
