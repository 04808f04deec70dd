"""Narrow floats, and values at the ends of a dtype's range: defined, and compiled as in NumPy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.mlir.stablehlo import module_text
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType, TypeRuleError
from hearthd.models.dsl.value_and_grad import value_and_grad
from tests.models.compiled import Compiled, compiled_fixture
from tests.models.graphs import run, traced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from hearthd.models.dsl.graph import Graph, Tensor

    Array = NDArray[Any]
    Case = tuple[Callable[..., Tensor], tuple[Array, ...], Any]

F16, F32, BF16 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)
NARROW = {"f16": F16, "bf16": BF16}
MANY = 3000
MIN_NORMAL = 2.0**-126


def alternating(dtype: np.dtype[Any], size: float) -> Array:
    """(2, 64): numbers of one magnitude, in turn positive and negative."""
    return np.resize([size, -size], (2, 64)).astype(dtype)


def ones(dtype: np.dtype[Any]) -> Array:
    return np.ones((2, MANY), dtype)


def norm(x: Tensor, weight: Tensor) -> Tensor:
    return f.rms_norm(x, weight, eps=1e-6)


# By name: the function, its inputs, and what it gives.
def sums(dtype: np.dtype[Any]) -> dict[str, Case]:
    return {
        "sum": (lambda x: ops.reduce_sum(x, axes=(1,)), (ones(dtype),), [MANY] * 2),
        "mean": (lambda x: f.mean(x, 1), (ones(dtype),), [1, 1]),
        "mean_of_300": (lambda x: f.mean(x, 1), (300 * ones(dtype),), [300, 300]),
        "variance": (
            lambda x: f.variance(x, 1, correction=0),
            (alternating(dtype, 200),),
            [40_000] * 2,
        ),
        "rms_norm": (norm, (3 * ones(dtype), np.ones(MANY, dtype)), ones(F32)),
        "rms_norm_of_300": (
            norm,
            (alternating(dtype, 300), np.ones(64, dtype)),
            alternating(F32, 1),
        ),
        "layer_norm_of_300": (
            lambda x: f.layer_norm(x, eps=1e-6),
            (alternating(dtype, 300),),
            alternating(F32, 1),
        ),
        "softmax": (f.softmax, (ones(dtype),), np.full((2, MANY), 1 / MANY)),
        "convolution": (
            lambda x, w: ops.convolution(x, w, strides=(1,), dilation=(1,), groups=1),
            (np.ones((1, 1, MANY), dtype), np.ones((1, 1, MANY), dtype)),
            [[[MANY]]],
        ),
        "matmul": (f.matmul, (ones(dtype), ones(dtype).T), np.full((2, 2), MANY)),
        "attention": (
            f.scaled_dot_product_attention,
            (np.ones((1, 1, 1, 2), dtype), np.ones((1, MANY, 1, 2), dtype),
             np.ones((1, MANY, 1, 2), dtype)),
            np.ones((1, 1, 1, 2)),
        ),
    }  # fmt: skip


SUMS = {f"{what}_{name}": case for name, of in NARROW.items() for what, case in sums(of).items()}

EDGES: dict[str, Case] = {
    "gather_clamps_indices": (
        lambda x, indices: ops.gather(x, indices, axis=0),
        (np.array([1, 2, 3], F32), np.array([-1, 0, 2, 3, 4, -(2**31), 2**31 - 1], np.int32)),
        [1, 1, 3, 3, 3, 1, 3],
    ),
    "scatter_adds_all_to_one_row": (
        lambda x, indices, rows: ops.scatter(x, indices, rows, combine="add"),
        (np.zeros((3, 40), F32), np.ones(500, np.int32), np.ones((500, 40), F32)),
        [[0] * 40, [500] * 40, [0] * 40],
    ),
    "silu_f16": (f.silu, (np.array([-60_000, -17, -0.5, 60_000], F16),), [0, -7e-7, -0.1887, 6e4]),
    "silu_f32": (
        f.silu,
        (np.array([-3e38, -math.inf, -100, 3e38], F32),),
        [-1.4438811e-33] * 3 + [3e38],
    ),
    "cross_entropy_f16": (  # their sum is beyond f16
        f.cross_entropy,
        (np.tile(np.array([40, -40], F16), (MANY, 1)), np.ones(MANY, np.int32)),
        80,
    ),
    "cross_entropy_of_70000_classes": (
        f.cross_entropy_per_row,
        (np.zeros((1, 70_000), F16), np.zeros(1, np.int32)),
        [math.log(70_000)],
    ),
    "mean_squared_error_f16": (
        f.mean_squared_error,
        (np.full((2, 8), 300, F16), np.full((2, 8), 100, F16)),
        40_000,
    ),
    "group_norm_of_300": (
        lambda x: f.group_norm(x, groups=2, eps=1e-6),
        (np.resize(np.array([300, -300], F16), (1, 4, 32)),),
        np.resize([1, -1], (1, 4, 32)),
    ),
    "batch_norm_of_60000": (
        lambda x, mean, variance: f.batch_norm(x, mean, variance, eps=1e-6),
        (np.full((2, 1, 3), 60_000, F16), np.full(1, -60_000, F16), np.full(1, 62_464, F16)),
        np.full((2, 1, 3), 120_000 / math.sqrt(62_464)),
    ),
    "batch_norm_training_of_300": (
        lambda x, zero, one: f.batch_norm_training(x, zero, one, eps=1e-6, momentum=0.5)[0],
        (np.resize(np.array([300, -300], F16), (2, 1, 32)), np.zeros(1, F16), np.ones(1, F16)),
        np.resize([1, -1], (2, 1, 32)),
    ),
    "log_softmax_of_70000": (
        f.log_softmax,
        (np.zeros((1, 70_000), F16),),
        np.full((1, 70_000), -math.log(70_000)),
    ),
    "avg_pool2d_of_60000": (
        lambda x: f.avg_pool2d(x, 2),
        (np.full((1, 4, 4), 60_000, F16),),
        np.full((1, 2, 2), 60_000),
    ),
    "argmax_of_nan": (
        lambda x: f.argmax(x, axis=1),
        (np.array([[1, math.nan, 3, math.nan], [2, math.inf, 3, 1]], F32),),
        [1, 1],
    ),
    "sign_of_subnormals": (
        ops.sign,
        (np.array([MIN_NORMAL / 4, -MIN_NORMAL / 4, MIN_NORMAL], F32),),
        [0, 0, 1],
    ),
    "log_of_subnormals": (
        ops.log,
        (np.array([MIN_NORMAL / 4, MIN_NORMAL], F32),),
        [-math.inf, math.log(MIN_NORMAL)],
    ),
    "compare_subnormals": (
        lambda x, y: ops.compare(x, y, direction="GT"),
        (np.array([MIN_NORMAL / 4, MIN_NORMAL], F32), np.zeros(2, F32)),
        [False, True],
    ),
    "sum_to_a_subnormal": (
        ops.subtract,
        (np.array([1.5 * MIN_NORMAL], F32), np.array([MIN_NORMAL], F32)),
        [0],
    ),
    "remainder_by_0": (
        ops.remainder,
        (np.array([7, -7, 0, 7], np.int32), np.array([0, 0, 0, 4], np.int32)),
        [7, -7, 0, 3],
    ),
    "power_of_infinity": (
        ops.power,
        (np.array([math.inf, -math.inf, 0, 1], F32), np.array([-0.0, 0, -0.0, math.inf], F32)),
        [1, 1, 1, 1],
    ),
}

CASES = SUMS | EDGES


def cross_entropy_gradient(weight: Tensor, x: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
    """Of weights in bf16, which are converted in the forward pass."""

    def loss(weight: Tensor) -> Tensor:
        wide = ops.convert(weight, dtype=DType.F32)
        return f.cross_entropy(f.matmul(x, wide), targets)

    value, (gradient,) = value_and_grad(loss, weight)
    return value, gradient


BF16_TRAINING = trace(
    "bf16_training",
    cross_entropy_gradient,
    {
        "weight": TensorType((6, 5), DType.BF16),
        "x": TensorType((3, 6), DType.F32),
        "targets": TensorType((3,), DType.I32),
    },
)


def all_graphs() -> Iterator[Graph]:
    for name, (function, arrays, _) in CASES.items():
        yield traced(function, arrays, name)
    yield BF16_TRAINING


compiled = compiled_fixture(all_graphs)


def assert_rounded(actual: Array, expected: Any) -> None:
    """Rounded once; one unit more for what a vector function is off."""
    exact = np.asarray(expected, np.float64)
    assert actual.shape == exact.shape
    step = 2.0**-8 if actual.dtype == BF16 else 2.0**-11 if actual.dtype == F16 else 2.0**-22
    smallest = 2.0**-24 if actual.dtype == F16 else MIN_NORMAL
    np.testing.assert_allclose(actual.astype(np.float64), exact, rtol=1.01 * step, atol=smallest)


@pytest.mark.parametrize("name", CASES)
@np.errstate(all="ignore")
def test_numpy_has_the_value(name: str) -> None:
    function, arrays, expected = CASES[name]
    assert_rounded(run(function, *arrays), expected)


def test_a_subnormal_is_found_at_the_end_of_a_large_array() -> None:
    x = np.ones(1 << 17, F32)
    x[-1] = MIN_NORMAL / 4
    assert run(ops.negate, x)[-1] == 0
    assert run(ops.negate, x.reshape(2, -1).T)[-1, -1] == 0


@pytest.mark.nightly
@pytest.mark.parametrize("name", CASES)
def test_compiled_it_is_the_same(name: str, compiled: Compiled) -> None:
    _, arrays, expected = CASES[name]
    assert_rounded(compiled(name, *arrays)[0], expected)


@pytest.mark.parametrize(("combine", "unique"), [("add", "false"), ("replace", "true")])
def test_the_compiler_knows_whether_scattered_rows_repeat(combine: str, unique: str) -> None:
    """It may add rows at the same time if they are unique, and only then."""
    _, arrays, _ = CASES["scatter_adds_all_to_one_row"]
    graph = traced(lambda *xs: ops.scatter(*xs, combine=combine), arrays, "f")
    assert f"unique_indices = {unique}" in module_text("m", [graph], "model")


def test_weights_in_bf16_have_a_gradient(compiled: Compiled) -> None:
    """As their f32 values have, rounded once."""
    rng = np.random.default_rng(0)
    weight, x = rng.normal(size=(6, 5)).astype(BF16), rng.normal(size=(3, 6)).astype(F32)
    targets = np.array([0, 4, 2], np.int32)
    scores = x.astype(np.float64) @ weight.astype(np.float64)
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    shares[np.arange(3), targets] -= 1
    _, gradient = compiled("bf16_training", weight, x, targets)
    assert gradient.dtype == BF16
    np.testing.assert_allclose(gradient.astype(np.float64), x.T @ shares / 3, rtol=2**-7, atol=1e-5)


def test_floats_of_different_dtypes_are_refused_by_name() -> None:
    arrays = np.ones((2, 4), BF16), np.ones(4, F32)
    with pytest.raises(TypeRuleError, match=r"rms_norm\(bf16\[2, 4\], f32\[4\]\): expected floats"):
        traced(norm, arrays)
