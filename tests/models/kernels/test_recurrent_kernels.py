"""The kernels of recurrent layers, token by token, against the formulas in f64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tests.models.kernels.kernel_library import BuiltKernels, Kernels

    Array = NDArray[Any]

TOKENS, GROUPS, HEADS, KEYS, WIDTH = 21, 2, 4, 22, 80
INNER, COMMON = HEADS * WIDTH, GROUPS * KEYS
CHANNELS = INNER + 2 * COMMON
RING = 6
# The columns of values, keys and queries in a convolution's result.
VALUE, KEY, QUERY = (0, INNER), (INNER, INNER + COMMON), (INNER + COMMON, CHANNELS)


def sigmoid(x: Array) -> Array:
    return np.asarray(np.exp(-np.logaddexp(0, -x)))


def placed(shape: tuple[int, ...], place: int) -> Array:
    """An array that begins `place` floats behind a multiple of 64 bytes."""
    size = int(np.prod(shape))
    memory = np.empty(size + 32, np.float32)
    start = -(memory.ctypes.data // 4) % 16 + place
    return memory[start : start + size].reshape(shape)


class Recurrence:
    """A recurrent layer's inputs of some tokens, and its states before them.

    `products` are columns of what products give: b, or gates, behind a.
    """

    name: str
    products: tuple[tuple[int, int], ...]
    numbers: int
    attrs: Mapping[str, Any]

    def __init__(self, place: int = 0) -> None:
        """`place` is where states lie: floats behind a multiple of 64 bytes."""
        self.place = place
        rng = np.random.default_rng(3)
        self.mixed = rng.normal(size=(TOKENS, CHANNELS)).astype(np.float32)
        self.mixed[5] = 0
        width = max(stop for _, stop in self.products)
        self.projected = rng.normal(size=(TOKENS, width)).astype(np.float32)
        self.projected[3, :HEADS] = (-30, 30, -1e4, 90)  # time steps of any size
        behind = -(-TOKENS * INNER // (HEADS * KEYS * WIDTH))
        shape = (RING + behind, HEADS * KEYS * WIDTH)
        self.states = rng.normal(size=shape).astype(np.float32)
        bias, skip = rng.normal(size=(2, HEADS)).astype(np.float32)
        rates = -rng.uniform(0.5, 4, size=HEADS).astype(np.float32)
        self.of_heads = (bias, rates, skip)[: self.numbers]

    def outputs(self, first: int) -> tuple[Array, Array]:
        """The outputs of all tokens, (T, H * V), and the state after each, (T, H * K * V)."""
        shape = (HEADS, KEYS, WIDTH)
        state = self.states[(first - 1) % RING].reshape(shape) * np.float64(first > 0)
        outputs, states = [], []
        for mixed, projected in zip(self.mixed, self.projected, strict=True):
            value, key, query = (mixed[slice(*x)].astype(np.float64) for x in (VALUE, KEY, QUERY))
            a, b = (projected[slice(*columns)].astype(np.float64) for columns in self.products)
            query, key = (self.of_group(x.reshape(GROUPS, KEYS)) for x in (query, key))
            output, state = self.step(state, query, key, value.reshape(HEADS, WIDTH), a, b)
            outputs.append(output.ravel())
            states.append(state.ravel())
        return np.array(outputs), np.array(states)

    def of_group(self, x: Array) -> Array:
        return x.repeat(HEADS // GROUPS, axis=0)

    def step(
        self, state: Array, query: Array, key: Array, value: Array, a: Array, b: Array
    ) -> tuple[Array, Array]:
        """The outputs (H, V) of a token and the state (H, K, V) after it."""
        raise NotImplementedError

    def computed(
        self, kernels: Kernels, first: int, start: int, stop: int, counted: int, *, every: bool
    ) -> Array:
        """The outputs of the tokens from `start` up to `stop`; `states` become those after them."""
        positions = np.array([first, first + counted - 1], np.int32)
        mixed = self.mixed[start:stop]
        inputs = (self.states, positions, mixed, mixed, mixed, self.projected, self.projected)
        attrs = {"columns": (QUERY, KEY, VALUE, *self.products), "rows": (start, stop)}
        result = placed(self.states.shape, self.place)
        self.states = kernels(
            self.name, (*inputs, *self.of_heads), result,
            groups=GROUPS, ring=RING, every=every, **attrs, **self.attrs,
        )  # fmt: skip
        return self.states[RING:].ravel()[: (stop - start) * INNER].reshape(-1, INNER).copy()


class Mamba2(Recurrence):
    """Equation 16 of "Transformers are SSMs" (Dao and Gu, 2024), with gates."""

    name = "ssm_scan"
    products = ((0, HEADS), (HEADS, HEADS + INNER))
    numbers = 3
    attrs: Mapping[str, Any] = {}

    @override
    def step(
        self, state: Array, query: Array, key: Array, value: Array, a: Array, b: Array
    ) -> tuple[Array, Array]:
        bias, rates, skip = (numbers.astype(np.float64) for numbers in self.of_heads)
        dt = np.logaddexp(0, a + bias)
        added = np.einsum("hk,hv->hkv", key, dt[:, np.newaxis] * value)
        state = np.exp(dt * rates)[:, np.newaxis, np.newaxis] * state + added
        output = np.einsum("hkv,hk->hv", state, query) + skip[:, np.newaxis] * value
        return b * sigmoid(b) * output.ravel(), state


class DeltaRule(Recurrence):
    """Equation 10 of "Gated Delta Networks" (Yang et al., 2024)."""

    name = "gated_delta_rule"
    products = ((0, HEADS), (HEADS, 2 * HEADS))
    numbers = 2
    attrs: Mapping[str, Any] = {"takes_turns": False}

    @override
    def step(
        self, state: Array, query: Array, key: Array, value: Array, a: Array, b: Array
    ) -> tuple[Array, Array]:
        bias, rates = (numbers.astype(np.float64) for numbers in self.of_heads)
        query, key = (x / np.sqrt((x**2).sum(axis=1, keepdims=True) + 1e-6) for x in (query, key))
        state = np.exp(np.logaddexp(0, a + bias) * rates)[:, np.newaxis, np.newaxis] * state
        wrong = value - np.einsum("hkv,hk->hv", state, key)
        state = state + np.einsum("hk,hv->hkv", key, wrong * sigmoid(b)[:, np.newaxis])
        return np.einsum("hkv,hk->hv", state, query) * KEYS**-0.5, state


class TurnTaking(DeltaRule):
    """Heads that take turns with the groups of keys."""

    attrs: Mapping[str, Any] = {"takes_turns": True}

    @override
    def of_group(self, x: Array) -> Array:
        return np.tile(x, (HEADS // GROUPS, 1))


class Mamba(Recurrence):
    """Equation 2 of "Mamba" (Gu and Dao, 2023), with time steps and gates."""

    name = "selective_scan"
    products = ((0, INNER), (INNER, 2 * INNER))
    numbers = 0

    def __init__(self, place: int = 0) -> None:
        super().__init__(place)
        rng = np.random.default_rng(5)
        self.states = rng.normal(size=(RING + 1, KEYS * INNER)).astype(np.float32)
        bias, skip = rng.normal(size=(2, INNER)).astype(np.float32)
        rates = -rng.uniform(0.5, 4, size=(KEYS, INNER)).astype(np.float32)
        self.of_channels = bias, rates, skip

    @override
    def outputs(self, first: int) -> tuple[Array, Array]:
        bias, rates, skip = (numbers.astype(np.float64) for numbers in self.of_channels)
        state = self.states[(first - 1) % RING].reshape(KEYS, INNER) * np.float64(first > 0)
        outputs, states = [], []
        for mixed, projected in zip(self.mixed, self.projected, strict=True):
            x, key, query = (mixed[slice(*at)].astype(np.float64) for at in _OF_CHANNELS)
            steps, gate = (projected[slice(*at)].astype(np.float64) for at in self.products)
            dt = np.logaddexp(0, steps + bias)
            state = np.exp(dt * rates) * state + np.outer(key, dt * x)
            outputs.append(gate * sigmoid(gate) * (query @ state + skip * x))
            states.append(state.ravel())
        return np.array(outputs), np.array(states)

    @override
    def computed(
        self, kernels: Kernels, first: int, start: int, stop: int, counted: int, *, every: bool
    ) -> Array:
        positions = np.array([first, first + counted - 1], np.int32)
        inputs = (self.states, positions, *[self.mixed] * 3, *[self.projected] * 2)
        value, key, query = _OF_CHANNELS
        self.states = kernels(
            self.name, (*inputs, *self.of_channels), placed(self.states.shape, self.place),
            ring=RING, every=every, columns=(query, key, value, *self.products), rows=(start, stop),
        )  # fmt: skip
        return self.states[RING:].ravel()[: (stop - start) * INNER].reshape(-1, INNER).copy()


class ChannelDeltaRule(Recurrence):
    """Equation 1 of "Kimi Linear" (2025), with what is removed apart from what is added."""

    name = "channel_delta_rule"
    products = ((0, HEADS), (0, HEADS))
    numbers = 0

    def __init__(self, place: int = 0) -> None:
        super().__init__(place)
        rng = np.random.default_rng(7)
        query, key, probe, removed = rng.normal(size=(4, TOKENS, HEADS * KEYS))
        decay = -rng.uniform(0, 4, size=query.shape)
        value = rng.normal(size=(TOKENS, INNER))
        rows = query, key, value, decay, probe * 0.2, removed * 0.2
        self.rows = [x.astype(np.float32) for x in rows]

    @override
    def outputs(self, first: int) -> tuple[Array, Array]:
        shape = (HEADS, KEYS, WIDTH)
        state = self.states[(first - 1) % RING].reshape(shape) * np.float64(first > 0)
        outputs, states = [], []
        for token in zip(*self.rows, strict=True):
            query, key, value, decay, probe, removed = (
                x.astype(np.float64).reshape(HEADS, -1) for x in token
            )
            state = np.exp(decay)[..., None] * state
            found = np.einsum("hkv,hk->hv", state, probe)
            state = state + key[..., None] * value[:, None] + removed[..., None] * found[:, None]
            outputs.append(np.einsum("hkv,hk->hv", state, query).ravel())
            states.append(state.ravel())
        return np.array(outputs), np.array(states)

    @override
    def computed(
        self, kernels: Kernels, first: int, start: int, stop: int, counted: int, *, every: bool
    ) -> Array:
        positions = np.array([first, first + counted - 1], np.int32)
        inputs = (self.states, positions, *(x[start:stop] for x in self.rows))
        result = placed(self.states.shape, self.place)
        self.states = kernels(self.name, inputs, result, heads=HEADS, ring=RING, every=every)
        return self.states[RING:].ravel()[: (stop - start) * INNER].reshape(-1, INNER).copy()


# The columns of values, keys and queries in the results that all channels read.
_OF_CHANNELS = (VALUE, (INNER, INNER + KEYS), (INNER + COMMON, INNER + COMMON + KEYS))
LAYERS = (Mamba2, DeltaRule, Mamba, ChannelDeltaRule, TurnTaking)


@pytest.mark.parametrize("layer_type", LAYERS)
@pytest.mark.parametrize("first", [0, 7])
def test_a_recurrence_is_its_formula(
    kernels: Kernels, layer_type: type[Recurrence], first: int
) -> None:
    layer = layer_type()
    outputs, states = layer.outputs(first)
    actual = layer.computed(kernels, first, 0, TOKENS, TOKENS, every=False)
    np.testing.assert_allclose(actual, outputs, rtol=1e-5, atol=2e-5)
    last = layer.states[(first + TOKENS - 1) % RING]
    np.testing.assert_allclose(last, states[-1], rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("layer_type", LAYERS[:4])
@pytest.mark.parametrize("sizes", [(1,) * TOKENS, (2,) * 10, (3, 4, 14), (5, 16), (20, 1)])
def test_a_token_of_a_recurrence_has_the_same_bits_in_every_chunk(
    kernels: Kernels, layer_type: type[Recurrence], sizes: tuple[int, ...]
) -> None:
    """The chunks below RING tokens leave a state of each token, as a verify does."""
    whole, parts = layer_type(), layer_type()
    expected = whole.computed(kernels, 4, 0, sum(sizes), sum(sizes), every=False)
    start = 0
    for size in sizes:
        every = size < RING
        actual = parts.computed(kernels, 4 + start, start, start + size, size, every=every)
        assert np.array_equal(actual, expected[start : start + size])
        start += size
    last = (3 + start) % RING
    assert np.array_equal(parts.states[last], whole.states[last])


@pytest.mark.parametrize("layer_type", LAYERS[:4])
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("first", [0, 4])
def test_a_verify_leaves_the_state_of_each_token_as_if_it_came_alone(
    kernels: Kernels, layer_type: type[Recurrence], place: int, first: int
) -> None:
    for tokens in range(2, RING):
        verified, alone = layer_type(place), layer_type(place)
        verified.computed(kernels, first, 0, tokens, tokens, every=True)
        for t in range(tokens):
            alone.computed(kernels, first + t, t, t + 1, 1, every=True)
        rows = [(first + t) % RING for t in range(tokens)]
        assert np.array_equal(verified.states[rows], alone.states[rows])


@pytest.mark.parametrize("layer_type", LAYERS[:4])
def test_states_have_the_same_bits_at_every_address(
    kernels: Kernels, layer_type: type[Recurrence]
) -> None:
    """A single token's state is stored past the caches at an address that 64 divides."""
    layers = [layer_type(place) for place in (0, 1, 8)]
    outputs = [layer.computed(kernels, 4, 0, 1, 1, every=False) for layer in layers]
    assert all(np.array_equal(outputs[0], other) for other in outputs)
    assert all(np.array_equal(layers[0].states[4 % RING], x.states[4 % RING]) for x in layers)


@pytest.mark.parametrize("layer_type", LAYERS[:4])
def test_padding_behind_the_last_token_changes_no_state(
    kernels: Kernels, layer_type: type[Recurrence]
) -> None:
    padded, exact = layer_type(), layer_type()
    padded.computed(kernels, 4, 0, TOKENS, 18, every=False)
    exact.computed(kernels, 4, 0, 18, 18, every=False)
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


@pytest.mark.parametrize("layer_type", LAYERS[:4])
def test_every_instruction_set_gives_the_same_bits(
    built: BuiltKernels, layer_type: type[Recurrence]
) -> None:
    outputs = [
        layer_type().computed(kernels, 4, 0, TOKENS, TOKENS, every=False)
        for kernels in built.values()
    ]
    assert all(np.array_equal(outputs[0], other) for other in outputs)
