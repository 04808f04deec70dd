"""Our own kernels under every instruction set that this machine has, against the formulas in f64.

They are called directly, built by the baker's own flags; that the compiler calls them rightly is
seen in test_ops.py. Those for ARM are in test_emulated_kernels.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.baker.compiler.targets import TARGET_NAMES, find_target
from hearthd.models.dsl import packing
from hearthd.models.dsl.fused import linear_grouped, linear_upper
from hearthd.models.dsl.ops import REGISTRY
from hearthd.models.dsl.ops.record import Kernel
from hearthd.models.dsl.types import DType, TensorType
from tests.models.kernels.attention_cases import FORMS, KEYS, SCALE, attended, cache_of
from tests.models.kernels.emulated_kernels import EMULATED
from tests.models.kernels.kernel_library import TARGETS, build_library, kernel_names
from tests.models.unpacked import whole

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tests.models.kernels.kernel_library import Kernels

    Array = NDArray[Any]


ARM = [target for target, _ in EMULATED.values()]


def test_a_program_says_which_instructions_its_kernels_use(built: dict[str, Kernels]) -> None:
    assert all(kernels.instructions == name for name, kernels in built.items())


# --- linear_grouped

MATRICES = {
    "one block": (16, 32),
    "workgroups of unequal size": (16 * 19, 64),
    "more than a panel of columns": (32, 32 * 65),
}


def matrix(rows: int, columns: int) -> tuple[Array, Array, Array]:
    """Its stored form, and its values in f64."""
    rng = np.random.default_rng(rows)
    integers = rng.integers(-127, 128, size=(rows, columns), dtype=np.int8)
    integers[0] = 127
    integers[1] = -127
    scales = rng.uniform(1e-3, 1e-2, size=(rows, columns // 32)).astype(np.float16)
    values = integers.astype(np.float64) * np.repeat(scales.astype(np.float64), 32, axis=1)
    return (*packing.pack(integers, scales), values)


def product(
    kernels: Kernels, x: Array, weight: Array, scale: Array, activation_bits: int = 16
) -> Array:
    out = np.full((len(x), weight.shape[0] * 16), np.nan, np.float32)
    return kernels("linear_grouped", (x, weight, scale), out, activation_bits=activation_bits)


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("rows", [1, 13, 39])
@pytest.mark.parametrize(("activation_bits", "parts"), [(16, 254), (8, 1)])
def test_a_product_is_exact_to_the_bits_of_the_activations(
    kernels: Kernels, name: str, rows: int, activation_bits: int, parts: int
) -> None:
    weight, scale, values = matrix(*MATRICES[name])
    x = np.random.default_rng(0).normal(size=(rows, values.shape[1])).astype(np.float32)
    actual = product(kernels, x, weight, scale, activation_bits)
    # Half a step of a group is max |x| / 127 / parts / 2; it counts once for each weight.
    steps = np.abs(x).reshape(rows, -1, 32).max(axis=2) / (127 * parts * 2)
    bound = np.repeat(steps, 32, axis=1) @ np.abs(values).T + 1e-5
    assert (np.abs(actual - x @ values.T) < bound).all()


@pytest.mark.parametrize("activation_bits", [16, 8])
def test_activations_are_rounded_as_numpy_rounds_them(
    kernels: Kernels, activation_bits: int
) -> None:
    """One large weight a row, so that a product shows its activation's bits."""
    weight, scale = packing.pack(
        np.eye(32, dtype=np.int8)[:16] * np.int8(127), np.ones((16, 1), np.float16)
    )
    x = np.random.default_rng(2).normal(size=(5, 32)).astype(np.float32)
    expected = linear_grouped.evaluate((x, weight, scale), {"activation_bits": activation_bits})
    actual = product(kernels, x, weight, scale, activation_bits)
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=2e-6)


def test_a_tie_of_activations_of_eight_bits_is_rounded_to_even(kernels: Kernels) -> None:
    weight, scale = packing.pack(np.eye(16, 32, dtype=np.int8), np.ones((16, 1), np.float16))
    x = np.zeros((1, 32), np.float32)
    x[0, :16] = [127, -127, *(step + 0.5 for step in range(-7, 7))]
    expected = [127, -127, *(round(step + 0.5) for step in range(-7, 7))]
    assert product(kernels, x, weight, scale, 8)[0].tolist() == expected


@pytest.mark.parametrize("activation_bits", [16, 8])
def test_a_row_has_the_same_bits_in_every_batch(kernels: Kernels, activation_bits: int) -> None:
    weight, scale, values = matrix(48, 32 * 66)
    x = np.random.default_rng(1).normal(size=(39, values.shape[1])).astype(np.float32)

    def products(x: Array) -> Array:
        return product(kernels, x, weight, scale, activation_bits)

    alone = np.concatenate([products(row[None]) for row in x])
    for rows in (2, 13, 39):
        assert np.array_equal(products(x[:rows].copy()), alone[:rows])


@pytest.mark.parametrize("size", [0.0, 1e-38, 1e-30, 1.0, 1e30])
def test_a_product_of_extreme_activations(kernels: Kernels, size: float) -> None:
    weight, scale, values = matrix(16, 64)
    x = np.full((2, 64), size, np.float32)
    x[1, 5:] = 0  # a group with one large value and zeros
    actual = product(kernels, x, weight, scale)
    np.testing.assert_allclose(actual, x @ values.T, rtol=2e-5, atol=1e-29)


# --- linear_upper, linear_refined, embedding_halved


def upper_product(kernels: Kernels, x: Array, upper: Array, scale: Array) -> Array:
    out = np.full((len(x), upper.shape[0] * 16), np.nan, np.float32)
    return kernels("linear_upper", (x, upper, scale), out)


def refined(kernels: Kernels, x: Array, weight: Array, scale: Array, threshold: Array) -> Array:
    upper, lower = packing.split(weight)
    coarse = upper_product(kernels, x, upper, scale)
    inputs = (x, lower, scale, coarse, threshold.astype(np.float32))
    return kernels("linear_refined", inputs, np.full_like(coarse, np.nan), bits=8)


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("rows", [1, 3, 8])
def test_a_coarse_product_is_within_half_of_what_was_left_out(
    kernels: Kernels, name: str, rows: int
) -> None:
    weight, scale, values = matrix(*MATRICES[name])
    x = np.random.default_rng(0).normal(size=(rows, values.shape[1])).astype(np.float32)
    upper = packing.split(weight)[0]
    actual = upper_product(kernels, x, upper, scale)
    expected = linear_upper.evaluate((x, upper, scale), {})
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-3)
    # A weight is 8 steps of its scale away at most.
    steps = np.repeat(scale.transpose(0, 2, 1).reshape(values.shape[0], -1), 32, axis=1)
    bound = np.abs(x) @ (8 * steps.astype(np.float64)).T * 1.001 + 1e-3
    assert (np.abs(actual - x @ values.T) < bound).all()


@pytest.mark.parametrize("name", MATRICES)
def test_what_is_refined_adds_the_product_of_the_lower_halves(kernels: Kernels, name: str) -> None:
    weight, scale, values = matrix(*MATRICES[name])
    upper, lower = packing.split(weight)
    x = np.random.default_rng(1).normal(size=(3, values.shape[1])).astype(np.float32)
    coarse = upper_product(kernels, x, upper, scale)
    # The lower halves are a matrix of 4 bits.
    added = np.full_like(coarse, np.nan)
    kernels("linear_small", (x, lower, scale), added, bits=4, minimum=False)
    threshold = np.array([-np.inf, np.inf, np.median(coarse[2])])
    actual = refined(kernels, x, weight, scale, threshold)
    assert np.array_equal(actual[0], coarse[0] + added[0])
    assert np.array_equal(actual[1], coarse[1])
    reached = np.repeat(coarse[2].reshape(-1, 16).max(axis=1) >= threshold[2], 16)
    assert np.array_equal(actual[2], np.where(reached, coarse[2] + added[2], coarse[2]))
    whole = x[0].astype(np.float64) @ values.T
    np.testing.assert_allclose(actual[0], whole, rtol=1e-4, atol=1e-3)


def test_a_refined_row_has_the_same_bits_in_every_batch(kernels: Kernels) -> None:
    weight, scale, values = matrix(16 * 19, 96)
    x = np.random.default_rng(5).normal(size=(8, values.shape[1])).astype(np.float32)
    threshold = np.full(8, 0.3)
    together = refined(kernels, x, weight, scale, threshold)
    for i in range(len(x)):
        alone = refined(kernels, x[i : i + 1].copy(), weight, scale, threshold[:1])
        assert np.array_equal(alone[0], together[i])


def test_a_row_of_a_table_is_its_integers_times_their_scales(kernels: Kernels) -> None:
    weight, scale, values = matrix(16 * 3, 64)
    ids = np.array([47, 0, 16, 31, 31], np.int32)
    out = np.full((len(ids), 64), np.nan, np.float32)
    actual = kernels("embedding_halved", (ids, *packing.split(weight), scale), out)
    assert np.array_equal(actual, values[ids].astype(np.float32))


def test_halves_are_the_integers_again() -> None:
    weight, _, _ = matrix(32, 64)
    upper, lower = packing.split(weight)
    assert np.array_equal(whole(upper, lower), weight)
    middles = whole(upper, None).astype(int)
    assert np.array_equal(middles, weight.astype(int) // 16 * 16 + 8)


# --- attention_cached


def attention(
    kernels: Kernels, query: Array, key: Array, value: Array, start: int, window: int
) -> Array:
    inputs = (query, key, value, np.array([start], np.int32))
    out = np.full_like(query, np.nan)
    return kernels("attention_cached", inputs, out, keys=KEYS, window=window, scale=SCALE)


@pytest.mark.parametrize("name", FORMS)
def test_attention_is_the_softmax_over_the_keys_that_are_seen(kernels: Kernels, name: str) -> None:
    query, key, value, start, window = cache_of(name)
    actual = attention(kernels, query, key, value, start, window)
    np.testing.assert_allclose(actual, attended(query, key, value, start, window), atol=1e-5)


@pytest.mark.parametrize("name", FORMS)
def test_a_token_attends_with_the_same_bits_alone(kernels: Kernels, name: str) -> None:
    query, key, value, start, window = cache_of(name)
    together = attention(kernels, query, key, value, start, window)
    for i in range(len(query)):
        alone = attention(kernels, query[i : i + 1].copy(), key, value, start + i, window)
        assert np.array_equal(alone[0], together[i])


@pytest.mark.parametrize("name", FORMS)
def test_what_is_not_seen_never_matters(kernels: Kernels, name: str) -> None:
    query, key, value, start, window = cache_of(name)
    actual = attention(kernels, query, key, value, start, window)
    newest = start + len(query) - 1
    seen = {p % len(key) for p in range(max(0, start - window + 1), newest + 1)}
    for row in set(range(len(key))) - seen:
        key[row] = value[row] = np.finfo(key.dtype).max / 2
    assert np.array_equal(attention(kernels, query, key, value, start, window), actual)


def queries_of_workgroup(query: Array, key: Array) -> int:
    types = [TensorType(x.shape, DType.F32) for x in (query, key, key)]
    start = TensorType((1,), DType.I32)
    kernel = REGISTRY["attention_cached"].lower(
        (*types, start), types[0], {"keys": KEYS, "window": 1, "scale": SCALE}
    )
    assert isinstance(kernel, Kernel)
    return 0 if kernel.scratch else kernel.sizes[-1]


def test_workgroups_of_prefills_alone_have_many_queries() -> None:
    for name in FORMS:
        query, key, *_ = cache_of(name)
        assert (queries_of_workgroup(query, key) >= 16) == ("prefill" in name), name


@pytest.mark.parametrize("first", [15, 16, 17])
def test_a_prefill_in_two_parts_has_the_same_bits(kernels: Kernels, first: int) -> None:
    query, key, value, start, window = cache_of("a prefill")
    together = attention(kernels, query, key, value, start, window)
    assert queries_of_workgroup(query[:15], key) < queries_of_workgroup(query[:16], key)
    parts = [
        attention(kernels, query[:first].copy(), key, value, start, window),
        attention(kernels, query[first:].copy(), key, value, start + first, window),
    ]
    assert np.array_equal(np.concatenate(parts), together)


def test_large_scores_neither_overflow_nor_vanish(kernels: Kernels) -> None:
    query, key, value, start, window = cache_of("one token, one group")
    query *= 300
    actual = attention(kernels, query, key, value, start, window)
    np.testing.assert_allclose(actual, attended(query, key, value, start, window), atol=2e-3)


# --- all


# The instruction sets above, and those of test_emulated_kernels.py, are those of the other
# targets, and linked in the same way.
@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted({*TARGET_NAMES} - {"host", *TARGETS.values(), *ARM}))
def test_for_every_target_they_need_nothing_else(name: str, tmp_path: Path) -> None:
    target = find_target(name)
    machine = target.triple.partition("-")[0]
    build_library(machine, target.cpu.replace("-", "_"), tmp_path / "all.so")
    library = (tmp_path / "all.so").read_bytes()
    assert all(f"hearth_{kernel}\0".encode() in library for kernel in kernel_names())


def test_every_instruction_set_gives_the_same_bits(built: dict[str, Kernels]) -> None:
    weight, scale, _ = matrix(*MATRICES["more than a panel of columns"])
    x = np.random.default_rng(4).normal(size=(19, 32 * 65)).astype(np.float32)
    caches = [cache_of(name) for name in FORMS if "wrap" in name]
    products = [product(kernels, x, weight, scale) for kernels in built.values()]
    small = [product(kernels, x, weight, scale, 8) for kernels in built.values()]
    half = np.full(len(x), 2.0)
    better = [refined(kernels, x, weight, scale, half) for kernels in built.values()]
    mixed = [[attention(kernels, *cache) for kernels in built.values()] for cache in caches]
    for first, *others in (products, small, better, *mixed):
        assert all(np.array_equal(first, other) for other in others)
