"""Functions that models are written in and trained through, by PyTorch's names.

The type of each is the type of its value, and its gradient equals finite differences. Of those that
the compiler does not take op by op, the compiled value and gradient equal NumPy's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.gradient import gradients
from hearthd.models.dsl.graph import Graph, Input, Tensor
from hearthd.models.dsl.mlir.stablehlo import module_text
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, NoGradientError, TypeRuleError
from tests.models.compiled import Compiled, compiled_fixture
from tests.models.graphs import (
    check_gradient,
    float_inputs,
    gradient_graph,
    run,
    traced,
    type_of,
    value_and_gradients,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    Array = NDArray[Any]
    Case = tuple[Callable[..., Tensor], *tuple[Array, ...]]


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng((seed, *shape)).normal(size=shape)


X, Y = normal(3, 4, seed=1), normal(3, 4, seed=2)
POSITIVE = np.abs(X) + 0.5
IMAGE = normal(1, 2, 4, 6)
TWICE = np.array([0, 2, 2, 1], np.int32)

DIFFERENTIABLE: dict[str, Case] = {
    "add_scalar": (lambda x: 2.0 + (x + 3.0), X),
    "subtract_scalar": (lambda x: 2.0 - (x - 3.0), X),
    "multiply_scalar": (lambda x: 2.0 * (x * 3.0), X),
    "divide_scalar": (lambda x: 2.0 / (x / 3.0), POSITIVE),
    "matmul": (f.matmul, normal(3, 4), normal(4, 2)),
    "matmul_3d_by_2d": (f.matmul, normal(2, 3, 4), normal(4, 5)),
    "matmul_batched": (f.matmul, normal(3, 2, 2, 4), normal(2, 4, 3)),
    "row_times_matrix": (lambda x, y: x @ y, normal(4), normal(2, 4, 3)),
    "matrix_times_column": (lambda x, y: x @ y, normal(2, 3, 4), normal(4)),
    "dot": (lambda x, y: x @ y, normal(4), normal(4, seed=1)),
    "subscript": (lambda x: x[1:, None, ..., -1], normal(3, 4, 5)),
    "comparison": (lambda x, y: ops.select(x < y, x * x, y * ops.convert(
        x >= 0.5, dtype=x.dtype)), X, Y),
    "equality": (lambda x, i: x * ops.convert(f.eq(i, 2), dtype=x.dtype), normal(4), TWICE),
    "transpose": (lambda x: f.transpose(x, 0, -1), normal(2, 3, 4)),
    "permute": (lambda x: f.permute(x, 2, 0, 3, 1), normal(2, 3, 4, 5)),
    "relu": (f.relu, X),
    "leaky_relu": (f.leaky_relu, X),
    "elu": (f.elu, X),
    "mean": (lambda x: f.mean(x, -1), X),
    "softmax": (lambda x: f.softmax(x, axis=0), X),
    "log_softmax": (lambda x: f.log_softmax(x, axis=1), X),
    "flatten": (lambda x: f.flatten(x, first=1), normal(2, 3, 4)),
    "squeeze": (lambda x: f.squeeze(x, axis=-2), normal(3, 1, 4)),
    "unsqueeze": (lambda x: f.unsqueeze(x, axis=1), X),
    "sigmoid": (f.sigmoid, X),
    "silu": (f.silu, X),
    "gelu": (f.gelu, X),
    "gelu_tanh": (f.gelu_tanh, X),
    "variance": (lambda x: f.variance(x, 0, correction=0), X),
    "variance_corrected": (lambda x: f.variance(x, 1, correction=1), X),
    "pow": (lambda x, y: x**y, POSITIVE, Y),
    "pow_scalar": (lambda x: 2.0 ** (x**3.0), X),
    "log2": (f.log2, POSITIVE),
    "log10": (f.log10, POSITIVE),
    "clamp": (lambda x: f.clamp(x, -0.5, 0.5), X),
    "narrow": (lambda x: f.narrow(x, -1, 1, 3), X),
    "pad2d": (lambda x: f.pad2d(x, (1, 2, 0, 3), value=0.5), IMAGE),
    "conv1d": (
        lambda x, w, b: f.convolution(x, w, b, stride=2, padding=2, dilation=3, groups=2),
        normal(2, 4, 8), normal(6, 2, 3), normal(6),
    ),
    "conv2d": (
        lambda x, w, b: f.convolution(x, w, b, stride=(2, 1), padding=(0, 1)),
        IMAGE, normal(3, 2, 3, 2), normal(3),
    ),
    "conv3d": (f.convolution, normal(1, 2, 2, 3, 4), normal(2, 2, 2, 1, 2)),
    "conv_transpose1d": (
        lambda x, w, b: f.transposed_convolution(
            x, w, b, stride=3, padding=1, dilation=2, groups=2, output_padding=2
        ),
        normal(2, 4, 3), normal(4, 2, 2), normal(4),
    ),
    "max_pool2d": (lambda x: f.max_pool2d(x, 2, stride=1, padding=1), IMAGE),
    "avg_pool2d": (lambda x: f.avg_pool2d(x, 3, stride=2, padding=1), IMAGE),
    "upsample2d_nearest": (lambda x: f.upsample2d_nearest(x, 2), IMAGE),
    "upsample2d_bilinear": (lambda x: f.upsample2d_bilinear(x, 3), normal(1, 2, 2, 3)),
    "split": (lambda x: f.split(x, [1, 3], axis=-1)[1], X),
    "chunk": (lambda x: f.chunk(x, 2, axis=0)[1], X),
    "stack": (lambda x, y: f.stack([x, y], axis=1), X, Y),
    "tril": (lambda x: f.tril(x, diagonal=1), normal(2, 3, 4)),
    "gather": (
        lambda x, i: f.gather(x, i, axis=0), normal(5, 3), np.array([[0, 4], [4, 4]], np.int32)
    ),
    "gather_of_rank_0": (lambda x, i: f.gather(x, i, axis=1), X, np.array(2, np.int32)),
    "gather_of_rank_3": (
        lambda x, i: f.gather(x, i, axis=-2), normal(2, 3, 2), TWICE.reshape(2, 1, 2)
    ),
    "index_select": (lambda x, i: f.gather(x, i, axis=-1), X, TWICE),
    "unfold": (lambda x: f.unfold(x, axis=1, size=3, step=2), normal(2, 8)),
    "scaled_dot_product_attention": (
        lambda q, k, v, m: f.scaled_dot_product_attention(
            q, k, v, mask=m, seen=f.causal(3, 4, offset=1, window=3)
        ),
        normal(1, 3, 4, 2), normal(1, 4, 2, 2), normal(1, 4, 2, 3), normal(3, 4),
    ),
    "linear": (lambda x, w, b: f.linear(x, w, b), normal(2, 3, 4), normal(5, 4), normal(5)),
    "expert_factors": (
        lambda x, scale: f.expert_factors(
            x, f.top_indices(x, count=2), scale,
            scores=f.SIGMOID, normalized=True, sum_offset=0.1, min_sum=0.01, factor=2.0,
        ),
        X, normal(X.shape[1]),
    ),
    "expert_sum": (f.expert_sum, normal(6, 5), normal(3, 2)),
    "routed_linear": (
        lambda x, w, i: f.routed_linear(x, i, w, experts=3),
        normal(4, 5), normal(6, 5), np.array([2, 0, 2, 1], np.int32),
    ),
    "embedding": (lambda w, i: f.embedding(i, w), normal(4, 3), TWICE.reshape(2, 2)),
    "layer_norm": (lambda *xs: f.layer_norm(*xs, eps=1e-3), X, normal(4), normal(4, seed=1)),
    "rms_norm": (lambda *xs: f.rms_norm(*xs, eps=1e-3), X, normal(4)),
    "group_norm": (
        lambda *xs: f.group_norm(*xs, groups=2, eps=1e-3),
        normal(2, 4, 3), normal(4), normal(4, seed=1),
    ),
    "batch_norm": (
        lambda *xs: f.batch_norm(*xs, eps=1e-3),
        normal(2, 3, 4), normal(3), np.abs(normal(3)), normal(3, seed=1), normal(3, seed=2),
    ),
    "batch_norm_training": (
        lambda *xs: f.batch_norm_training(*xs, eps=1e-3, momentum=0.1)[0],
        normal(3, 2, 4), normal(2), np.abs(normal(2)), normal(2, seed=1), normal(2, seed=2),
    ),
    "batch_norm_running_variance": (
        lambda *xs: f.batch_norm_training(*xs, eps=1e-3, momentum=0.1)[2],
        normal(3, 2, 4), normal(2), np.abs(normal(2)),
    ),
}  # fmt: skip

NOT_DIFFERENTIABLE: dict[str, tuple[Case, str]] = {
    "sign": ((ops.sign, X), "sign has no gradient: its derivative"),
    "ge": ((lambda x: ops.compare(x, x, direction="GE"), X), "compare has no gradient: its result"),
    "lt": ((lambda x: ops.compare(x, x, direction="LT"), X), "compare has no gradient: its result"),
    "convert": ((lambda x: ops.convert(x, dtype=DType.I32), X), "convert has no gradient: it"),
    "argmax": ((lambda x: f.argmax(x, axis=1), X), "convert has no gradient: it"),
}

differentiable = pytest.mark.parametrize("name", DIFFERENTIABLE)


def in_f32(name: str) -> tuple[Graph, list[Array]]:
    function, *arrays = DIFFERENTIABLE[name]
    narrow = [x.astype(np.float32) if x.dtype == np.float64 else x for x in arrays]
    return traced(function, narrow, name), narrow


@differentiable
def test_void_type_is_the_type_of_the_value(name: str) -> None:
    graph, arrays = in_f32(name)
    (value,) = evaluate(graph, arrays, {})
    assert type_of(value) == graph.outputs[0].type
    assert value.dtype == np.float32


@differentiable
def test_gradient_equals_finite_differences(name: str) -> None:
    function, *arrays = DIFFERENTIABLE[name]
    graph = traced(function, arrays, name)
    compared = check_gradient(graph, arrays, np.random.default_rng(1))
    assert compared == len(float_inputs(graph)) >= 1


# Functions that the compiler does not take op by op: windows, sums over windows, chosen rows, and
# statistics that are read again. test_ops.py compiles each op, with its gradient.
COMPILED = (
    "comparison", "pow", "pad2d", "conv1d", "conv2d", "conv_transpose1d", "max_pool2d",
    "avg_pool2d", "upsample2d_bilinear", "gather_of_rank_3", "unfold",
    "scaled_dot_product_attention", "expert_factors", "layer_norm", "group_norm",
    "batch_norm_training", "batch_norm_running_variance",
)  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_value_and_gradient_equal_numpy(name: str, compiled: Compiled) -> None:
    graph, arrays = in_f32(name)
    upstream = normal(*graph.outputs[0].shape).astype(np.float32)
    expected = evaluate(graph, arrays, {}) + evaluate(
        gradient_graph(graph), [*arrays, upstream], {}
    )
    actual = compiled(name, *arrays, upstream)
    for ours, numpy in zip(actual, expected, strict=True):
        assert ours.shape == numpy.shape
        np.testing.assert_allclose(ours, numpy, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("name", NOT_DIFFERENTIABLE)
def test_the_reason_for_a_missing_gradient_is_given(name: str) -> None:
    (function, *arrays), reason = NOT_DIFFERENTIABLE[name]
    graph = traced(function, arrays)
    upstream = (Tensor(graph.outputs[0].type, Input("upstream")),)
    with pytest.raises(NoGradientError, match=reason):
        gradients(graph, upstream, graph.inputs)


def test_compiled_stop_gradient_equals_numpy(compiled: Compiled) -> None:
    """Of x stop(x^2) the gradient is x^2, and not 3 x^2."""
    x, upstream = X.astype(np.float32), Y.astype(np.float32)
    value, gradient = compiled("stopped", x, upstream)
    np.testing.assert_allclose(value, x**3, rtol=1e-5)
    np.testing.assert_allclose(gradient, upstream * x * x, rtol=1e-5)


def test_choosing_twice_counts_twice() -> None:
    """Duplicates add up, in the gradient of what is chosen by index and of overlapping windows."""
    (x,) = [np.zeros(4)]
    chosen = traced(lambda x, i: f.gather(x, i, axis=0), [x, TWICE])
    (counts,) = evaluate(gradient_graph(chosen), [x, TWICE, np.ones(4)], {})
    assert counts.tolist() == [1, 1, 2, 0]
    windows = traced(lambda x: f.unfold(x, axis=0, size=3, step=1), [np.zeros(5)])
    (counts,) = evaluate(gradient_graph(windows), [np.zeros(5), np.ones((3, 3))], {})
    assert counts.tolist() == [1, 2, 3, 2, 1]


def parts(x: Tensor) -> tuple[Tensor, ...]:
    """Several outputs, which are read and returned in another order than they were made in."""
    first, second, third = f.split(x, [3, 1, 2], axis=1)
    left, right = f.chunk(third, 2, axis=0)
    return third, first, second * 2.0, right - left, left


def parts_graph() -> Graph:
    return trace("parts", parts, {"x": type_of(normal(2, 6).astype(np.float32))})


def test_consumers_and_returns_get_the_right_part(compiled: Compiled) -> None:
    x = normal(2, 6).astype(np.float32)
    first, second, third = np.split(x, [3, 4], axis=1)
    expected = [third, first, second * 2, third[1:] - third[:1], third[:1]]
    for actual in (evaluate(parts_graph(), [x], {}), compiled("parts", x)):
        for ours, numpy in zip(actual, expected, strict=True):
            assert np.array_equal(ours, numpy)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: f.softmax(x, axis=2), "expected an axis from -2 to 1, got 2"),
        (lambda x: f.split(x, [1, 2], axis=1), r"sizes \[1, 2\] do not add up to axis 1"),
        (lambda x: f.squeeze(x, axis=0), "axis 0 of .* is not 1"),
        (lambda x: f.unsqueeze(x, axis=3), "no place for an axis 3"),
        (lambda x: f.unfold(x, axis=1, size=5, step=1), "no window of 5 fits into axis 1"),
        (lambda x: f.matmul(x, x), "dot_general.*equal contracted extents"),
        (lambda x: f.convolution(x, x), "convolution.*a weight of its rank"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(function: Callable[..., Tensor], message: str) -> None:
    with pytest.raises(TypeRuleError, match=message):
        run(function, X)


def graphs_with_gradients(names: Iterable[str]) -> list[Graph]:
    """The values and gradients of functions."""
    stopped = traced(lambda x: x * ops.stop_gradient(x * x), [X.astype(np.float32)])
    graphs = [parts_graph(), value_and_gradients(stopped, "stopped")]
    for name in names:
        graph, _ = in_f32(name)
        graphs.append(value_and_gradients(graph, name))
    return graphs


def test_all_is_written_in_operations_that_the_compiler_knows() -> None:
    """None is a call of something outside of the module."""
    text = module_text("module", graphs_with_gradients(DIFFERENTIABLE), "model")
    assert "custom_call" not in text
    written = set(re.findall(r'^ +%\w+ = "([\w.]+)"', text, re.MULTILINE))
    # What is not StableHLO: the error function, weights laid out for their kernels, a barrier.
    assert {one for one in written if not one.startswith("stablehlo.")} == {
        "chlo.erf", "linalg.generic", "iree_tensor_ext.compute_barrier.start"
    }  # fmt: skip


compiled = compiled_fixture(lambda: graphs_with_gradients(COMPILED))
