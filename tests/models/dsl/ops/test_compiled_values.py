"""Programs whose compiled value once differed from NumPy's, or which did not compile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import fused, ops
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType
from tests.models.compiled import Compiled, compiled_fixture
from tests.models.dsl.functions.test_functions import exact_rope_table
from tests.models.graphs import gradient_graph, run, traced, type_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from hearthd.models.dsl.graph import Graph, Tensor

    Array = NDArray[Any]
    Case = tuple[Callable[..., Tensor], tuple[Array, ...]]

BF16 = np.dtype(ml_dtypes.bfloat16)


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng((seed, *shape)).normal(size=shape).astype(np.float32)


# --- operands of batched products that are computed over (batch * rows, K)


def batched(left: Tensor, right: Tensor, contract: tuple[int, int] = (2, 1)) -> Tensor:
    axes = ((contract[0],), (contract[1],))
    return ops.dot_general(left, right, batch=((0,), (0,)), contract=axes, dtype=DType.F32)


def per_row(x: Tensor) -> Tensor:
    total = ops.reduce_sum(x * x, axes=(2,)) + 1.0
    return x / f.along_axes(total, x, (2,))


def after_a_product(x: Tensor, weight: Tensor, y: Tensor) -> Tensor:
    """The rows of a product, as two matrices."""
    rows = ops.dot_general(x, weight, batch=((), ()), contract=((1,), (1,)), dtype=DType.F32)
    return batched(ops.reshape(rows, shape=(2, 3, 3)), y)


PRODUCTS: dict[str, Case] = {
    "attention_3_heads": (
        f.scaled_dot_product_attention,
        tuple(normal(1, 3, 2, 4, seed=seed) for seed in range(3)),
    ),
    "softmax_left": (
        lambda x, y: batched(f.softmax(x), y),
        (normal(2, 3, 3), normal(2, 3, 4)),
    ),
    "softmax_left_12_rows": (
        lambda x, y: batched(f.softmax(x), y),
        (normal(3, 12, 7), normal(3, 7, 4)),
    ),
    "norm_right": (
        lambda x, y: batched(y, per_row(x), (2, 2)),
        (normal(3, 12, 7), normal(3, 4, 7)),
    ),
    "scaled_rows_left": (
        lambda x, s, y: batched(x * f.along_axes(s, x, (2,)), y),
        (normal(2, 3, 3), normal(2, 3), normal(2, 3, 4)),
    ),
    "product_left": (after_a_product, (normal(6, 5), normal(3, 5), normal(2, 3, 4))),
}

# --- masks for keys, of booleans


def masked(seen: Array, *heads: int) -> Case:
    query, group = heads
    keys = seen.shape[-1]
    arrays = (normal(2, 3, query, 4), normal(2, keys, group, 4), normal(2, keys, group, 4, seed=1))
    return (
        lambda q, k, v, seen: f.scaled_dot_product_attention(q, k, v, seen=seen),
        (*arrays, seen),
    )


KEYS = np.array([True, False, True, True, False])
MASKS: dict[str, Case] = {
    "mask_s": masked(KEYS, 4, 2),
    "mask_1s": masked(KEYS[None], 3, 1),
    "mask_111s": masked(KEYS[None, None, None], 2, 2),
    "select_columns": (
        lambda x, y, seen: ops.select(
            ops.broadcast(seen, shape=(3, 5), axes=(1,)), f.matmul(x, y), ops.full(
                shape=(3, 5), dtype=DType.F32, value=-1.0
            )
        ),
        (normal(3, 4), normal(4, 5), KEYS),
    ),
}  # fmt: skip

# --- powers of any base and exponent

BASES = np.array([-3, -2, -1.5, -1, -0.0, 0, 0.5, 1, 2, -np.inf, np.inf, np.nan])
EXPONENTS = np.array([-3, -2, -1, -0.5, -0.0, 0, 0.5, 1, 2, 3, 4, 5, -np.inf, np.inf, np.nan])
PAIRS = tuple(axis.ravel() for axis in np.meshgrid(BASES, EXPONENTS))


def to_the(exponent: float) -> Callable[[Tensor], Tensor]:
    return lambda x: x**exponent


POWERS: dict[str, Case] = {
    **{
        f"power_{dtype.name}": (ops.power, tuple(axis.astype(dtype) for axis in PAIRS))
        for dtype in (np.dtype(np.float32), np.dtype(np.float16), BF16)
    },
    **{
        f"power_{i}": (to_the(exponent), (BASES.astype(np.float32),))
        for i, exponent in enumerate((-3.0, -2.0, 0.0, 2.0, 4.0, 5.0))
    },
}

# --- rotary tables

POSITIONS = np.array([0, 1, 100, 128, 2047, 2048, 32_767, 32_768, 131_071, 2**18 - 1], np.int32)


def rotary(part: int, base: float) -> Callable[[Tensor], Tensor]:
    return lambda positions: f.rope_table(positions, 64, base=base)[part]


ROTARY: dict[str, Case] = {
    f"{name}_{base:.0f}": (rotary(part, base), (POSITIONS,))
    for part, name in enumerate(("cosine", "sine"))
    for base in (10_000.0, 500_000.0)
}

# --- booleans as numbers


def one_hot_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Rows of x by their numbers, as a product with rows of an identity."""
    number = ops.iota(shape=(rows.shape[0], x.shape[0]), axis=1, dtype=DType.I32)
    is_row = ops.compare(number, ops.broadcast(rows, shape=number.shape, axes=(0,)), direction="EQ")
    return f.matmul(ops.convert(is_row, dtype=x.dtype), x)


BOOLEANS: dict[str, Case] = {
    "one_hot_rows": (one_hot_rows, (normal(8, 4), np.array([6, 0, 3], np.int32))),
}

# --- attention over keys and values in f16, by the compiler and by the kernel

F16_CACHE = tuple(normal(7, 64, seed=seed).astype(np.float16) for seed in (1, 2))


def over_f16(attention: Callable[..., Tensor]) -> Case:
    return (
        lambda *xs: attention(*xs, keys=30, window=3, scale=0.2),
        (normal(2, 2, 64), *F16_CACHE, np.array([20], np.int32)),
    )


CACHES: dict[str, Case] = {
    "attention_over_f16": over_f16(f.cached_attention),
    "attention_kernel_over_f16": over_f16(fused.cached_attention),
}

CASES = PRODUCTS | MASKS | BOOLEANS | CACHES | POWERS | ROTARY
NEGATIVE = np.array([-3, -2, -0.5, 0.5, 2], np.float32)
GRADIENTS = (-3.0, -2.0, 2.0, 4.0)


def all_graphs() -> Iterator[Graph]:
    for name, (function, arrays) in CASES.items():
        yield traced(function, arrays, name)
    for i, exponent in enumerate(GRADIENTS):
        yield gradient_graph(traced(to_the(exponent), [NEGATIVE]), f"gradient_{i}")


compiled = compiled_fixture(all_graphs)


@pytest.mark.parametrize("name", CASES)
@np.errstate(all="ignore")
def test_compiled_equals_numpy(name: str, compiled: Compiled) -> None:
    function, arrays = CASES[name]
    (actual,) = compiled(name, *arrays)
    expected = run(function, *arrays)
    step = 2.0**-7 if actual.dtype == BF16 else 2.0**-10 if actual.dtype == np.float16 else 1e-5
    np.testing.assert_allclose(
        actual.astype(np.float64), expected.astype(np.float64), rtol=step, atol=1e-6
    )


@pytest.mark.parametrize("base", [10_000.0, 500_000.0])
def test_rotary_tables_are_exact_at_any_position(base: float, compiled: Compiled) -> None:
    exact = exact_rope_table(POSITIONS, 64, base, 1.0)
    for name, expected in zip(("cosine", "sine"), exact, strict=True):
        (actual,) = compiled(f"{name}_{base:.0f}", POSITIONS)
        np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-7)


ROWS = np.array([0], np.int32)
KEPT: dict[str, Callable[[Tensor], Tensor]] = {
    "itself": lambda x: x,
    "reshaped": lambda x: ops.reshape(x, shape=(x.type.size,)),
    "transposed": lambda x: ops.transpose(x, order=(1, 0)),
    "sliced": lambda x: ops.slice_(x, bounds=((0, 1, 1), (0, x.shape[1], 1))),
    "gathered": lambda x: ops.gather(x, ops.constant(value=ROWS), axis=0),
}


@pytest.mark.parametrize("combine", ["add", "replace"])
def test_an_update_leaves_its_operand_as_it_was(
    combine: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """As another result of the function, too, in any shape."""
    arrays = [(normal(rows, 7), ROWS, normal(1, 7, seed=1)) for rows in (1, 5)]

    def both(kept: Callable[[Tensor], Tensor]) -> Callable[..., tuple[Tensor, ...]]:
        return lambda *xs: (kept(xs[0]), ops.scatter(*xs, combine=combine), kept(xs[0]))

    graphs = {
        (name, i): trace(
            f"{name}_{i}", both(kept), {f"x{j}": type_of(one) for j, one in enumerate(inputs)}
        )
        for name, kept in KEPT.items()
        for i, inputs in enumerate(arrays)
    }
    compiled = Compiled(list(graphs.values()), tmp_path_factory.mktemp("updates"))
    for (name, i), graph in graphs.items():
        actual = compiled(graph.name, *arrays[i])
        for one, expected in zip(actual, evaluate(graph, arrays[i], {}), strict=True):
            np.testing.assert_array_equal(one, expected, err_msg=name)


@pytest.mark.parametrize("number", range(len(GRADIENTS)))
def test_gradient_of_a_power_of_negative_numbers(number: int, compiled: Compiled) -> None:
    exponent = GRADIENTS[number]
    (actual,) = compiled(f"gradient_{number}", NEGATIVE, np.ones_like(NEGATIVE))
    np.testing.assert_allclose(actual, exponent * NEGATIVE ** (exponent - 1), rtol=1e-5)
    graph = gradient_graph(traced(to_the(exponent), [NEGATIVE]))
    (expected,) = evaluate(graph, [NEGATIVE, np.ones_like(NEGATIVE)], {})
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
