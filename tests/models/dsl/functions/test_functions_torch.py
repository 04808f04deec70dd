"""The functions against PyTorch's of the same meaning: value and gradients, in float64."""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from tests.models.dsl.functions.torch_agreement import (
    F,
    agree,
    axes,
    few,
    normal,
    quick,
    seeds,
    torch,
)
from tests.models.graphs import run

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from hearthd.models.dsl.graph import Tensor

    Array = NDArray[Any]


# --- norms


@quick
@given(few, st.integers(2, 6), st.sampled_from([1e-5, 0.1]), seeds)
def test_layer_norm_and_rms_norm(rows: int, width: int, eps: float, seed: int) -> None:
    x, weight, bias = normal(seed, (rows, 2, width), (width,), (width,))
    agree(
        lambda x, w, b: f.layer_norm(x, w, b, eps=eps),
        lambda x, w, b: F.layer_norm(x, (width,), w, b, eps),
        *(x, weight, bias),
    )
    agree(
        lambda x, w: f.rms_norm(x, w, eps=eps),
        lambda x, w: F.rms_norm(x, (width,), w, eps),
        *(x, weight),
    )


@quick
@given(few, few, few, st.lists(st.integers(2, 3), max_size=3), seeds)
def test_group_norm(
    batch: int, groups: int, group_size: int, spatial: list[int], seed: int
) -> None:
    channels = groups * (group_size + 1)  # more than one element in a group: torch wants that
    x, weight, bias = normal(seed, (batch, channels, *spatial), (channels,), (channels,))
    agree(
        lambda x, w, b: f.group_norm(x, w, b, groups=groups, eps=1e-3),
        lambda x, w, b: F.group_norm(x, groups, w, b, 1e-3),
        *(x, weight, bias),
    )


@st.composite
def batches(draw: st.DrawFn) -> list[Array]:
    """x (N, C, ...), running mean and variance, weight and bias (C,)."""
    channels, spatial = draw(few), draw(st.lists(few, max_size=3))
    shape = (draw(st.integers(2, 4)), channels, *spatial)
    x, mean, variance, weight, bias = normal(draw(seeds), shape, *[(channels,)] * 4)
    return [x, mean, np.abs(variance) + 0.1, weight, bias]


@quick
@given(batches())
def test_batch_norm(arrays: list[Array]) -> None:
    """By given statistics, as the evaluation mode does."""
    x, mean, variance, weight, bias = arrays
    known = torch.tensor(mean), torch.tensor(variance)

    def ours(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        fixed = (ops.constant(value=mean), ops.constant(value=variance))
        return f.batch_norm(x, *fixed, weight, bias, eps=1e-3)

    agree(ours, lambda x, w, b: F.batch_norm(x, *known, w, b, eps=1e-3), x, weight, bias)


@quick
@given(batches(), st.sampled_from([0.0, 0.1, 1.0]))
def test_batch_norm_training(arrays: list[Array], momentum: float) -> None:
    """By its own statistics, and the running ones that it leaves."""
    x, mean, variance, weight, bias = arrays

    def ours(result: int, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        running = (ops.constant(value=mean), ops.constant(value=variance))
        return f.batch_norm_training(x, *running, weight, bias, eps=1e-3, momentum=momentum)[result]

    running = torch.tensor(mean), torch.tensor(variance)

    def theirs(x: Any, weight: Any, bias: Any) -> Any:
        return F.batch_norm(x, *running, weight, bias, True, momentum, 1e-3)

    agree(functools.partial(ours, 0), theirs, x, weight, bias)  # updates what `running` holds
    for result, updated in enumerate(running, 1):
        actual = run(functools.partial(ours, result), x, weight, bias)
        np.testing.assert_allclose(actual, updated.numpy(), rtol=1e-10, atol=1e-10)


# --- elements, reductions, shapes


@quick
@given(seeds)
def test_of_each_element(seed: int) -> None:
    x, y = normal(seed, (3, 5), (3, 5))
    pairs: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[Array]]] = {
        "relu": (f.relu, F.relu, [np.rint(x)]),
        "leaky_relu": (lambda x: f.leaky_relu(x, slope=0.2), lambda x: F.leaky_relu(x, 0.2), [x]),
        "elu": (lambda x: f.elu(x, alpha=0.7), lambda x: F.elu(x, 0.7), [x]),
        "elu_far_out": (f.elu, F.elu, [1000 * x]),
        "sigmoid": (f.sigmoid, torch.sigmoid, [3 * x]),
        "silu": (f.silu, F.silu, [3 * x]),
        "gelu": (f.gelu, F.gelu, [x]),
        "gelu_tanh": (f.gelu_tanh, lambda x: F.gelu(x, approximate="tanh"), [x]),
        "clamp": (lambda x: f.clamp(x, -1, 1), lambda x: torch.clamp(x, -1, 1), [np.rint(x)]),
        "minimum": (ops.minimum, torch.minimum, [x, y]),
        "power": (lambda x, y: x**y, torch.pow, [np.abs(x) + 0.1, y]),
        "square": (lambda x: x**2.0, lambda x: x**2, [np.rint(x)]),
        "to_the_0": (lambda x: x**0.0, lambda x: x**0.0, [np.rint(x)]),
        "0_to_the": (lambda x: 0.0**x, lambda x: 0.0**x, [np.abs(x)]),
        "reversed": (lambda x: 2.0**x - 3.0 / (1.0 - x), lambda x: 2**x - 3 / (1 - x), [x + 4]),
        "log2": (f.log2, torch.log2, [np.abs(x) + 0.1]),
        "log10": (f.log10, torch.log10, [np.abs(x) + 0.1]),
        "expm1": (ops.exponential_minus_one, torch.expm1, [1e-6 * x]),
        "log1p": (ops.log_plus_one, torch.log1p, [1e-6 * np.abs(x)]),
        "erf": (ops.erf, torch.erf, [x]),
    }
    for ours, theirs, arrays in pairs.values():
        agree(ours, theirs, *arrays)


@quick
@given(few, few, few, axes, seeds)
def test_along_an_axis(a: int, b: int, c: int, axis: int, seed: int) -> None:
    (x,) = normal(seed, (a, b, c + 1))
    agree(lambda x: f.softmax(x, axis=axis), lambda x: F.softmax(x, axis), x)
    agree(lambda x: f.log_softmax(x, axis=axis), lambda x: F.log_softmax(x, axis), 300 * x)
    agree(lambda x: f.mean(x, axis), lambda x: x.mean(axis), x)
    agree(lambda x: f.mean(x), lambda x: x.mean(), x)
    rows = np.rint(x)
    actual = run(lambda x: f.argmax(x, axis=axis), rows)
    assert np.array_equal(actual, np.argmax(rows, axis))


@quick
@given(few, st.integers(1, 9), st.integers(1, 9), seeds)
def test_the_largest_elements(rows: int, extent: int, count: int, seed: int) -> None:
    (x,) = normal(seed, (rows, extent))
    count = min(count, extent)
    indices = run(lambda x: f.top_indices(x, count=count), x)
    assert np.array_equal(indices, torch.topk(torch.from_numpy(x), count).indices)
    ties = np.rint(x)
    order = np.argsort(-ties, axis=1, kind="stable")[:, :count]
    # By ops, which NumPy's sort stands for elsewhere.
    assert np.array_equal(run(lambda x: f.top_indices.op.reference(x, count=count), ties), order)


def test_indices_of_the_largest_elements_exist_beside_nan() -> None:
    x = np.full((2, 5), np.nan, np.float32)
    x[1, :3] = 1, 3, 2
    for function in (f.top_indices, f.top_indices.op.reference):
        indices = run(lambda x, function=function: function(x, count=3), x)
        assert (indices >= 0).all()
        assert (indices < 5).all()


def torch_factors(
    logits: torch.Tensor, chosen: torch.Tensor, *, scores: str, normalized: bool, factor: float
) -> torch.Tensor:
    """As the routers of transformers: Qwen3-MoE, DeepSeek-V3 and gpt-oss."""
    if scores == f.CHOSEN:
        return F.softmax(torch.gather(logits, 1, chosen), 1) * factor
    every = F.softmax(logits, 1) if scores == f.SOFTMAX else logits.sigmoid()
    factors = torch.gather(every, 1, chosen)
    return (factors / factors.sum(1, keepdim=True) if normalized else factors) * factor


@quick
@given(few, st.integers(2, 9), seeds, st.sampled_from(f.SCORES), st.booleans())
def test_factors_of_experts(
    rows: int, experts: int, seed: int, scores: str, normalized: bool
) -> None:
    (logits,) = normal(seed, (rows, experts))
    order = np.random.default_rng(seed).permuted(np.tile(np.arange(experts), (rows, 1)), axis=1)
    chosen = order[:, :2].astype(np.int32)
    router: dict[str, Any] = {
        "scores": scores,
        "normalized": normalized and scores != f.CHOSEN,
        "factor": 2.5,
    }
    agree(
        lambda x: f.expert_factors(
            x, ops.constant(value=chosen), **router, sum_offset=0.0, min_sum=0.0
        ),
        lambda x: torch_factors(x, torch.from_numpy(chosen).long(), **router),
        logits,
    )


@quick
@given(few, few, few, seeds)
def test_the_sum_of_experts(rows: int, count: int, width: int, seed: int) -> None:
    y, factors = normal(seed, (rows * count, width), (rows, count))
    agree(
        f.expert_sum,
        lambda y, factors: torch.einsum("nce,nc->ne", y.reshape(rows, count, width), factors),
        y,
        factors,
    )


@quick
@given(few, few, st.integers(1, 4), seeds)
def test_products_with_the_matrices_of_experts(
    rows: int, outputs: int, experts: int, seed: int
) -> None:
    x, weight = normal(seed, (rows, 3), (experts * outputs, 3))
    chosen = np.random.default_rng(seed).integers(0, experts, rows, dtype=np.int32)

    def theirs(x: Any, weight: Any) -> Any:
        matrices = weight.reshape(experts, outputs, 3)[torch.from_numpy(chosen).long()]
        return torch.einsum("mk,mnk->mn", x, matrices)

    agree(
        lambda x, w: f.routed_linear(x, ops.constant(value=chosen), w, experts=experts),
        theirs,
        *(x, weight),
    )


@quick
@given(st.integers(2, 4), st.integers(2, 4), few, st.integers(0, 1), seeds)
def test_variance(a: int, b: int, c: int, correction: int, seed: int) -> None:
    for over in ((0,), (-2,), (0, 1), (0, 1, 2)):
        agree(
            lambda x, over=over: f.variance(x, *over, correction=correction),
            lambda x, over=over: torch.var(x, over, correction=correction),
            *normal(seed, (a, b, c)),
        )


@quick
@given(st.lists(few, max_size=2), st.lists(few, max_size=2), few, few, few, seeds)
def test_matmul(
    left: list[int], right: list[int], rows: int, inner: int, columns: int, seed: int
) -> None:
    """Leading axes that both have are equal; what one has alone is in front of them."""
    shared = min(len(left), len(right))
    right = right[: len(right) - shared] + left[len(left) - shared :]
    agree(f.matmul, torch.matmul, *normal(seed, (*left, rows, inner), (*right, inner, columns)))


@quick
@given(axes, few, few, st.integers(0, 4), seeds)
def test_unfold_split_chunk_stack(axis: int, size: int, step: int, more: int, seed: int) -> None:
    x, y = normal(seed, *[(size + more,) * 3] * 2)
    agree(
        lambda x: f.unfold(x, axis=axis, size=size, step=step),
        lambda x: x.unfold(axis, size, step),
        x,
    )
    agree(lambda *xs: f.stack(xs, axis=axis), lambda *xs: torch.stack(xs, dim=axis), x, y)
    count = len(torch.chunk(torch.tensor(x), step, axis))
    sizes = [size, more] if more else [size]
    for i in range(count):
        agree(
            lambda x, i=i: f.chunk(x, step, axis=axis)[i],
            lambda x, i=i: torch.chunk(x, step, axis)[i],
            x,
        )
    for i in range(len(sizes)):
        agree(
            lambda x, i=i: f.split(x, sizes, axis=axis)[i],
            lambda x, i=i: torch.split(x, sizes, axis)[i],
            x,
        )


@quick
@given(st.permutations(range(4)), st.integers(-2, 2), seeds)
def test_same_elements_elsewhere(order: list[int], diagonal: int, seed: int) -> None:
    (x,) = normal(seed, (2, 1, 3, 4))
    pairs: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
        (lambda x: f.permute(x, *order), lambda x: x.permute(order)),
        (lambda x: f.transpose(x, 0, -1), lambda x: x.transpose(0, -1)),
        (lambda x: f.flatten(x, first=1, last=-2), lambda x: x.flatten(1, -2)),
        (lambda x: f.squeeze(x, axis=-3), lambda x: x.squeeze(-3)),
        (lambda x: f.unsqueeze(x, axis=-1), lambda x: x.unsqueeze(-1)),
        (lambda x: f.narrow(x, -1, 1, 3), lambda x: x.narrow(-1, 1, 2)),
        (lambda x: f.tril(x, diagonal=diagonal), lambda x: torch.tril(x, diagonal)),
        (
            lambda x: f.pad2d(x, (1, 0, 2, 3), value=0.5),
            lambda x: F.pad(x, (1, 0, 2, 3), value=0.5),
        ),
    ]
    for ours, theirs in pairs:
        agree(ours, theirs, x)


@quick
@given(axes, st.lists(few, max_size=3), seeds)
def test_gather_any_axis_by_indices_of_any_rank(axis: int, shape: list[int], seed: int) -> None:
    (x,) = normal(seed, (3, 4, 2))
    indices = np.random.default_rng(seed).integers(0, x.shape[axis], shape, dtype=np.int32)
    expected = np.take(x, indices, axis)
    assert np.array_equal(run(lambda x, i: f.gather(x, i, axis=axis), x, indices), expected)
    if len(shape) == 1:
        agree(
            lambda x, i: f.gather(x, i, axis=axis),
            lambda x, i: torch.index_select(x, axis, i),
            *(x, indices),
        )


@quick
@given(few, few, seeds)
def test_linear_and_embedding(rows: int, width: int, seed: int) -> None:
    x, weight, bias = normal(seed, (rows, 2, width), (4, width), (4,))
    agree(lambda x, w, b: f.linear(x, w, b), F.linear, x, weight, bias)
    ids = np.array([[0, 2, 2], [2, 1, 0]], np.int32)  # each but one of them twice or more
    agree(f.embedding, F.embedding, ids, weight)


# --- operators


@quick
@given(few, few, few, st.sampled_from(["row", "column", "both"]), seeds)
def test_a_product_with_a_vector(rows: int, inner: int, batch: int, side: str, seed: int) -> None:
    """A vector is a row on the left and a column on the right, without its axis in the result."""
    left = (inner,) if side in ("row", "both") else (batch, rows, inner)
    right = (inner,) if side in ("column", "both") else (batch, inner, rows)
    agree(operator.matmul, operator.matmul, *normal(seed, left, right))


@quick
@given(
    st.tuples(*[st.one_of(st.integers(-2, 1), st.none(), st.just(slice(1, None, 2)))] * 3), seeds
)
def test_subscripts(key: tuple[Any, ...], seed: int) -> None:
    (x,) = normal(seed, (2, 3, 4))
    agree(operator.itemgetter((..., *key)), operator.itemgetter((..., *key)), x)


def test_comparisons_choose_gradients() -> None:
    x, y = normal(0, (3, 4), (3, 4))

    def theirs(x: Any, y: Any) -> Any:
        return torch.where(x < y, x * x, y) + torch.where(x >= 0.5, x, -x) * torch.le(y, x)

    def ours(x: Tensor, y: Tensor) -> Tensor:
        smaller = ops.select(x < y, x * x, y)
        return smaller + ops.select(x >= 0.5, x, -x) * ops.convert(y <= x, dtype=x.dtype)

    agree(ours, theirs, x, y)


def test_stop_gradient_detaches() -> None:
    (x,) = normal(1, (3, 4))
    agree(lambda x: x * ops.stop_gradient(x * x) + x, lambda x: x * (x * x).detach() + x, x)
