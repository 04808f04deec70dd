"""The kernels of recurrent layers, token by token, against the formulas in f64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.models.kernels.kernel_library import Kernels

    Array = NDArray[Any]

TOKENS, GROUPS, HEADS, KEYS, WIDTH = 21, 2, 4, 6, 80
INNER, COMMON = HEADS * WIDTH, GROUPS * KEYS
CHANNELS = INNER + 2 * COMMON
RING = 3
# The columns of x, keys and queries in a convolution's result, of gates and steps in a product.
X, KEY, QUERY = (0, INNER), (INNER, INNER + COMMON), (INNER + COMMON, CHANNELS)
GATE, STEPS = (0, INNER), (INNER, INNER + HEADS)


class Mamba:
    """What a layer of Mamba-2 reads of some tokens, and its states before them."""

    def __init__(self) -> None:
        rng = np.random.default_rng(3)
        self.mixed = rng.normal(size=(TOKENS, CHANNELS)).astype(np.float32)
        self.projected = rng.normal(size=(TOKENS, INNER + HEADS)).astype(np.float32)
        self.projected[3, INNER:] = (-30, 30, -1e4, 90)  # time steps of any size
        behind = -(-TOKENS * INNER // (HEADS * KEYS * WIDTH))
        shape = (RING + behind, HEADS * KEYS * WIDTH)
        self.states = rng.normal(size=shape).astype(np.float32)
        self.numbers = [
            rng.normal(size=HEADS).astype(np.float32),
            -rng.uniform(0.5, 4, size=HEADS).astype(np.float32),
            rng.normal(size=HEADS).astype(np.float32),
        ]

    def outputs(self, first: int) -> tuple[Array, Array]:
        """Those of all tokens, (T, H * V), and the state after each, (T, H * K * V)."""
        bias, rates, skip = (numbers.astype(np.float64) for numbers in self.numbers)
        shape = (HEADS, KEYS, WIDTH)
        state = self.states[(first - 1) % RING].reshape(shape) * float(first > 0)
        outputs, states = [], []
        for mixed, projected in zip(self.mixed, self.projected, strict=True):
            x, key, query = (
                mixed[slice(*columns)].astype(np.float64) for columns in (X, KEY, QUERY)
            )
            x = x.reshape(HEADS, WIDTH)
            key, query = (
                y.reshape(GROUPS, KEYS).repeat(HEADS // GROUPS, axis=0) for y in (key, query)
            )
            steps = projected[slice(*STEPS)].astype(np.float64) + bias
            dt = np.logaddexp(0, steps)
            gate = projected[slice(*GATE)].astype(np.float64)
            added = np.einsum("hk,hv->hkv", key, dt[:, np.newaxis] * x)
            state = np.exp(dt * rates)[:, np.newaxis, np.newaxis] * state + added
            output = np.einsum("hkv,hk->hv", state, query) + skip[:, np.newaxis] * x
            outputs.append(gate / (1 + np.exp(-gate)) * output.ravel())
            states.append(state.ravel())
        return np.array(outputs), np.array(states)

    def scanned(
        self, kernels: Kernels, first: int, start: int, stop: int, counted: int, *, every: bool
    ) -> Array:
        """The outputs of the tokens from `start` up to `stop`; `states` become those after them."""
        positions = np.array([first, first + counted - 1], np.int32)
        mixed = self.mixed[start:stop]
        inputs = (self.states, positions, mixed, mixed, mixed, self.projected, self.projected)
        attrs = {"columns": (QUERY, KEY, X, STEPS, GATE), "rows": (start, stop)}
        result = np.full_like(self.states, np.nan)
        self.states = kernels(
            "ssm_scan", (*inputs, *self.numbers), result,
            groups=GROUPS, ring=RING, every=every, **attrs,
        )  # fmt: skip
        return self.states[RING:].ravel()[: (stop - start) * INNER].reshape(-1, INNER).copy()


@pytest.mark.parametrize("first", [0, 7])
def test_mamba_is_its_formula(kernels: Kernels, first: int) -> None:
    layer = Mamba()
    outputs, states = layer.outputs(first)
    actual = layer.scanned(kernels, first, 0, TOKENS, TOKENS, every=False)
    np.testing.assert_allclose(actual, outputs, rtol=1e-5, atol=1e-5)
    last = layer.states[(first + TOKENS - 1) % RING]
    np.testing.assert_allclose(last, states[-1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("sizes", [(1,) * TOKENS, (2,) * 10, (5, 16), (20, 1)])
def test_a_token_of_mamba_has_the_same_bits_in_every_chunk(
    kernels: Kernels, sizes: tuple[int, ...]
) -> None:
    """Those of a verify leave a state of each token."""
    whole, parts = Mamba(), Mamba()
    expected = whole.scanned(kernels, 4, 0, sum(sizes), sum(sizes), every=False)
    start = 0
    for size in sizes:
        every = size < RING
        actual = parts.scanned(kernels, 4 + start, start, start + size, size, every=every)
        assert np.array_equal(actual, expected[start : start + size])
        start += size
    last = (3 + start) % RING
    assert np.array_equal(parts.states[last], whole.states[last])


def test_padding_behind_the_last_token_changes_no_state(kernels: Kernels) -> None:
    padded, exact = Mamba(), Mamba()
    padded.scanned(kernels, 4, 0, TOKENS, 18, every=False)
    exact.scanned(kernels, 4, 0, 18, 18, every=False)
    assert np.array_equal(padded.states[(3 + 18) % RING], exact.states[(3 + 18) % RING])


@pytest.mark.parametrize("position", [0, 1, 8])
def test_a_position_continues_the_row_before_it(kernels: Kernels, position: int) -> None:
    states = np.random.default_rng(1).normal(size=(5, 80)).astype(np.float32)
    out = np.full((1, 80), np.nan, np.float32)
    row = kernels("row_before", (states, np.array([position], np.int32)), out, ring=4)
    assert np.array_equal(row[0], states[(position - 1) % 4] if position else np.zeros(80))


def convolution(kernels: Kernels, before: Array, x: Array, weight: Array, bias: Array) -> Array:
    """Of the last 48 columns of the second row and those behind it."""
    out = np.full((len(x) - 1, 48), np.nan, np.float32)
    attrs = {"rows": (1, len(x)), "columns": (x.shape[1] - 48, x.shape[1])}
    return kernels("causal_conv", (before, x, weight, bias), out, **attrs)


def test_a_convolution_sums_the_latest_inputs(kernels: Kernels) -> None:
    rng = np.random.default_rng(2)
    before, x = (rng.normal(size=shape).astype(np.float32) for shape in ((1, 3 * 48), (6, 50)))
    weight, bias = (rng.normal(size=shape).astype(np.float32) for shape in ((48, 4), (48,)))
    inputs = np.concatenate([before.reshape(3, 48), x[1:, 2:]]).astype(np.float64)
    sums = np.array([(inputs[t : t + 4].T * weight).sum(axis=1) + bias for t in range(5)])
    actual = convolution(kernels, before, x, weight, bias)
    np.testing.assert_allclose(actual, sums / (1 + np.exp(-sums)), rtol=1e-5, atol=1e-6)


def test_every_instruction_set_gives_the_same_bits(built: dict[str, Kernels]) -> None:
    outputs = [
        Mamba().scanned(kernels, 4, 0, TOKENS, TOKENS, every=False) for kernels in built.values()
    ]
    assert all(np.array_equal(outputs[0], other) for other in outputs)
