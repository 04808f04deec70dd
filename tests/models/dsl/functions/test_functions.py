"""The functions over ops, each against its formula written in NumPy by other means."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.composite import inlined
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.graph import Apply
from hearthd.models.dsl.types import TypeRuleError
from tests.models.compiled import Compiled
from tests.models.graphs import check_gradient, gradient_graph, run, traced

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from hearthd.models.dsl.graph import Tensor

    Array = NDArray[Any]
    QKV = tuple[Array, Array, Array]

quick = settings(deadline=None, max_examples=30)
sizes = st.integers(1, 6)
seeds = st.integers(0, 2**32 - 1)
BF16 = np.dtype(ml_dtypes.bfloat16)


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


# --- softmax, rms_norm, gelu


@quick
@given(sizes, sizes, seeds)
def test_softmax(rows: int, columns: int, seed: int) -> None:
    x = normal(seed, rows, columns)
    expected = np.exp(x.astype(np.float64))
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(run(f.softmax, x), expected, rtol=2e-6)


def test_softmax_of_nothing_to_choose_from_is_zero() -> None:
    x = np.array([[-np.inf, -np.inf], [-np.inf, 3]], np.float32)
    assert run(f.softmax, x).tolist() == [[0, 0], [0, 1]]
    upstream = np.full_like(x, 1e6)
    (gradient,) = evaluate(gradient_graph(traced(f.softmax, [x])), [x, upstream], {})
    assert gradient.tolist() == [[0, 0], [0, 0]]


def test_softmax_of_large_values() -> None:
    x = np.array([[1e30, 1e30], [1e38, -1e38], [-1e30, -1e30]], np.float32)
    assert run(f.softmax, x).tolist() == [[0.5, 0.5], [1, 0], [0.5, 0.5]]


@quick
@given(sizes, sizes, seeds, st.sampled_from([1e-6, 1e-2]))
def test_rms_norm(rows: int, width: int, seed: int, eps: float) -> None:
    x, weight = normal(seed, rows, width), normal(seed + 1, width)
    actual = run(lambda x, w: f.rms_norm(x, w, eps=eps), x, weight)
    exact = x.astype(np.float64)
    expected = exact / np.sqrt((exact**2).mean(axis=1, keepdims=True) + eps) * weight
    np.testing.assert_allclose(actual, expected, rtol=2e-6)


def test_gelu_tanh() -> None:
    """Known values: gelu_pytorch_tanh is within 5e-4 of x times the normal distribution."""
    x = np.linspace(-4, 4, 81, dtype=np.float32)
    actual = run(f.gelu_tanh, x)
    exact = [v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x]
    np.testing.assert_allclose(actual, exact, atol=5e-4)
    # torch.nn.functional.gelu(approximate="tanh") at 1 and -2
    np.testing.assert_allclose(actual[[50, 20]], [0.84119199, -0.04540231], atol=1e-6)


def test_silu() -> None:
    x = np.array([-1e4, -100, -80, -20, -1, -1e-6, 0, 1e-6, 1, 20, 100, 1e4], np.float32)
    exact = x / (1 + np.exp(-x.astype(np.longdouble)))
    np.testing.assert_allclose(run(f.silu, x), exact.astype(np.float64), rtol=5e-7, atol=1e-30)
    # torch.nn.functional.silu at 1 and -1
    np.testing.assert_allclose(run(f.silu, x)[[8, 4]], [0.7310586, -0.26894143], rtol=1e-6)


# --- rotary positions


@quick
@given(sizes, sizes, st.integers(1, 4), st.integers(0, 3), seeds)
def test_rope_turns_split_halves(
    tokens: int, heads: int, half: int, others: int, seed: int
) -> None:
    x, angles = normal(seed, tokens, heads, 2 * half + others), normal(seed + 1, tokens, half)
    actual = run(f.rope, x, np.cos(angles), np.sin(angles))
    turned = (x[..., :half] + 1j * x[..., half : 2 * half]) * np.exp(1j * angles[:, None])
    expected = np.concatenate([turned.real, turned.imag, x[..., 2 * half :]], -1)
    np.testing.assert_allclose(actual, expected, atol=2e-6)


@pytest.mark.parametrize(("base", "factor"), [(10_000.0, 1.0), (1_000_000.0, 8.0), (0.5, 0.1)])
def test_rope_table_is_exact_at_any_position(base: float, factor: float) -> None:
    """Also of angles that grow by more than a turn from one position to the next."""
    positions = np.array([0, 1, 7, 511, 2047, 32767, 131_071, 2**18 - 1], np.int32)
    for which, exact in enumerate(exact_rope_table(positions, 256, base, factor)):
        actual = run(
            lambda p, w=which: f.rope_table(p, 256, base=base, factor=factor)[w], positions
        )
        np.testing.assert_allclose(actual, exact, rtol=0, atol=2e-7)


def exact_rope_table(positions: Array, width: int, base: float, factor: float) -> tuple[Any, Any]:
    """In f64: an angle of 2^18 has an error of 3e-11 there."""
    angles = np.outer(positions.astype(np.float64), base ** -(np.arange(0, width, 2) / width))
    return np.cos(angles / factor), np.sin(angles / factor)


# --- products


@pytest.mark.parametrize("rows", [1, 5, 40])
def test_linear_f32(rows: int) -> None:
    x, weight = normal(0, rows, 2, 16), normal(1, 7, 16)
    np.testing.assert_allclose(run(f.linear, x, weight), x @ weight.T, atol=1e-5)


def bf16_errors(rows: int) -> tuple[Array, Array]:
    """Of linear, and of x merely rounded to bf16: relative to the sum of magnitudes."""
    x, weight = normal(0, rows, 64), normal(1, 32, 64).astype(BF16)
    wide, exact = weight.astype(np.float64), x.astype(np.float64)
    magnitude = np.abs(exact) @ np.abs(wide).T
    rounded = x.astype(BF16).astype(np.float64) @ wide.T
    actual = run(f.linear, x, weight)
    assert actual.dtype == np.float32
    return (np.abs(actual - exact @ wide.T) / magnitude, np.abs(actual - rounded) / magnitude)


@pytest.mark.parametrize("rows", range(1, f.DECODE_ROWS + 1))
def test_linear_bf16_of_few_rows_keeps_their_precision(rows: int) -> None:
    to_exact, to_rounded = bf16_errors(rows)
    assert to_exact.max() < 2**-16
    assert to_rounded.max() > 2**-12  # so the bound above is not met by rounding alone


@pytest.mark.parametrize("rows", [f.DECODE_ROWS + 1, f.PROJECTED_ROWS, f.PROJECTED_ROWS + 1])
def test_linear_bf16_of_many_rows_rounds_them(rows: int) -> None:
    to_exact, to_rounded = bf16_errors(rows)
    assert to_rounded.max() < 2**-20
    assert to_exact.max() > 2**-12


def test_embedding() -> None:
    ids, table = np.array([[3, 0], [3, 1]], np.int32), normal(0, 4, 5)
    assert np.array_equal(run(f.embedding, ids, table), table[ids])
    narrow = table.astype(BF16)
    assert np.array_equal(run(f.embedding, ids, narrow), narrow[ids].astype(np.float32))


# --- who sees whom


def test_window_of_4_at_query_10_sees_7_to_10() -> None:
    queries, keys = np.array([10], np.int32), np.arange(-2, 14, dtype=np.int32)
    (seen,) = run(lambda q, k: f.visible(q, k, 4), queries, keys)
    assert keys[seen].tolist() == [7, 8, 9, 10]
    (seen,) = run(lambda q, k: f.visible(q, k, None), queries, keys)
    assert keys[seen].tolist() == list(range(11))


@quick
@given(sizes, st.integers(1, 12), st.integers(0, 8), st.none() | st.integers(1, 12))
def test_causal(queries: int, keys: int, offset: int, window: int | None) -> None:
    traced_mask = traced(lambda: f.causal(queries, keys, offset=offset, window=window), ())
    assert traced_mask.outputs[0].shape == (queries, keys)
    actual = run(lambda: f.causal(queries, keys, offset=offset, window=window))
    for q in range(queries):
        for k in range(keys):
            near = window is None or offset + q - k < window
            assert actual[q, k] == (k <= offset + q and near)


# --- attention


def attention_by_loops(
    query: Array,
    key: Array,
    value: Array,
    scale: float,
    seen: Array | None = None,
    mask: Array | None = None,
) -> Array:
    """softmax(scale * q k + mask) v one batch, head and query at a time, in float64."""
    batch, queries, heads, _ = query.shape
    heads_per_group = heads // key.shape[2]
    result = np.zeros((batch, queries, heads, value.shape[3]))
    full = (batch, heads, queries, key.shape[1])
    allowed = np.broadcast_to(True if seen is None else seen, full)
    added = np.broadcast_to(0.0 if mask is None else mask, full)
    for b, t, h in np.ndindex(batch, queries, heads):
        weights = {}
        for s in np.flatnonzero(allowed[b, h, t]):
            dot = sum(
                map(float, query[b, t, h] * key[b, s, h // heads_per_group].astype(np.float64))
            )
            weights[s] = math.exp(scale * dot + added[b, h, t, s])
        for s, weight in weights.items():
            result[b, t, h] += weight / sum(weights.values()) * value[b, s, h // heads_per_group]
    return result


def sdpa(*names: str, scale: float | None = None) -> Callable[..., Tensor]:
    """Attention with the tensors behind q, k, v passed under these names."""

    def attend(q: Tensor, k: Tensor, v: Tensor, *masks: Tensor) -> Tensor:
        named_masks: dict[str, Any] = dict(zip(names, masks, strict=True))
        return f.scaled_dot_product_attention(q, k, v, scale=scale, **named_masks)

    return attend


def qkv(batch: int, queries: int, keys: int, heads: int, groups: int) -> QKV:
    return (
        normal(1, batch, queries, heads, 4),
        normal(2, batch, keys, groups, 4),
        normal(3, batch, keys, groups, 3),
    )


@quick
@given(
    batch=st.integers(1, 2),
    queries=st.integers(1, 4),
    past=st.integers(0, 4),
    groups=st.integers(1, 3),
    heads_per_group=st.integers(1, 3),
    window=st.none() | st.integers(1, 4),
    scale=st.none() | st.sampled_from([0.0, 0.3, 1.0]),
)
def test_attention_causal_after_a_past(
    batch: int,
    queries: int,
    past: int,
    groups: int,
    heads_per_group: int,
    window: int | None,
    scale: float,
) -> None:
    arrays = qkv(batch, queries, past + queries, groups * heads_per_group, groups)
    position, key = np.indices((queries, past + queries))
    age = past + position - key
    seen = (age >= 0) & (age < (window or 99))
    actual = run(sdpa("seen", scale=scale), *arrays, seen)
    factor = 0.5 if scale is None else scale  # 4^-0.5
    expected = attention_by_loops(*arrays, scale=factor, seen=seen)
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_a_scale_of_zero_is_zero() -> None:
    """Every key counts the same then, which no other scale gives."""
    query, key, value = qkv(1, 2, 5, 2, 1)
    actual = run(sdpa(scale=0.0), query, key, value)
    mean = np.broadcast_to(value.mean(axis=1, keepdims=True), actual.shape)
    np.testing.assert_allclose(actual, mean, atol=1e-6)
    assert np.abs(run(sdpa(), query, key, value) - mean).max() > 0.1


@pytest.mark.parametrize(
    "shape", [(), (5,), (1,), (3, 5), (3, 1), (4, 3, 5), (2, 1, 3, 5), (2, 4, 3, 5), (1, 1, 3, 5)]
)
def test_an_additive_mask_adds_to_what_is_seen(shape: tuple[int, ...]) -> None:
    """Aligned at the end, as NumPy does, and together with causal."""
    arrays, mask = qkv(2, 3, 5, 4, 2), normal(7, *shape)
    seen = np.tri(3, 5, k=2, dtype=bool)
    actual = run(sdpa("mask", "seen"), *arrays, mask, seen)
    expected = attention_by_loops(*arrays, scale=0.5, seen=seen, mask=mask)
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    without_causal = attention_by_loops(*arrays, scale=0.5, mask=mask)
    assert np.abs(actual - without_causal).max() > 0.01


@pytest.mark.parametrize("shape", [(3, 5), (1, 3, 5), (4, 3, 5), (2, 1, 3, 5), (2, 4, 3, 5)])
def test_a_mask_broadcasts(shape: tuple[int, ...]) -> None:
    arrays, seen = qkv(2, 3, 5, 4, 2), np.random.default_rng(5).random(shape) < 0.6
    expected = attention_by_loops(*arrays, scale=0.5, seen=seen)
    np.testing.assert_allclose(run(sdpa("seen"), *arrays, seen), expected, atol=1e-5)


def test_a_query_that_sees_nothing_gets_zeros() -> None:
    arrays, seen = qkv(1, 2, 3, 2, 1), np.array([[False] * 3, [True] * 3])
    actual = run(sdpa("seen"), *arrays, seen)
    assert not actual[:, 0].any()
    np.testing.assert_allclose(actual, attention_by_loops(*arrays, scale=0.5, seen=seen), atol=1e-5)


def test_a_mask_of_minus_infinity_hides_likewise() -> None:
    arrays, seen = qkv(1, 2, 3, 2, 1), np.array([[False] * 3, [True, False, True]])
    mask = np.where(seen, 0, -np.inf).astype(np.float32)
    assert np.array_equal(run(sdpa("mask"), *arrays, mask), run(sdpa("seen"), *arrays, seen))


def test_heads_that_cannot_share_are_refused() -> None:
    with pytest.raises(TypeRuleError, match="3 query heads do not share 2 key heads"):
        traced(sdpa(), qkv(1, 2, 2, 3, 2))


# --- gradients, and the compiler


@pytest.mark.parametrize("heads_per_group", [1, 2])
def test_gradient_of_attention(heads_per_group: int) -> None:
    arrays = [array.astype(np.float64) for array in qkv(1, 3, 4, 2 * heads_per_group, 2)]
    mask, seen = normal(4, 3, 4).astype(np.float64), np.tri(3, 4, k=1, dtype=bool)
    arguments = [*arrays, mask, seen]
    graph = traced(sdpa("mask", "seen", scale=0.7), arguments)
    assert check_gradient(graph, arguments, np.random.default_rng(0)) == 4


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (f.softmax, [(2, 5)]),
        (lambda x, w: f.rms_norm(x, w, eps=1e-3), [(2, 5), (5,)]),
        (f.gelu_tanh, [(3, 4)]),
        (f.silu, [(3, 4)]),
        (f.rope, [(2, 3, 4), (2, 2), (2, 2)]),
        (f.linear, [(2, 3, 4), (5, 4)]),
    ],
    ids=["softmax", "rms_norm", "gelu_tanh", "silu", "rope", "linear"],
)
def test_gradient(function: Callable[..., Tensor], shapes: list[tuple[int, ...]]) -> None:
    arrays = [normal(i, *shape).astype(np.float64) for i, shape in enumerate(shapes)]
    graph = traced(function, arrays)
    assert check_gradient(graph, arrays, np.random.default_rng(0)) == len(arrays)


def test_compiled_equals_numpy(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What a compiler could undo: the guards of a masked row, and the two parts of bf16."""
    ids, masked = np.array([2, 0], np.int32), np.full((1, 3), -np.inf, np.float32)
    nothing = np.array([[False] * 5, [True] * 5, [True, False] * 2 + [True]])
    programs: dict[str, tuple[Callable[..., Tensor], tuple[Array, ...]]] = {
        "softmax": (f.softmax, (np.concatenate([normal(0, 2, 3), masked]),)),
        "attention": (sdpa("seen"), (*qkv(2, 3, 5, 4, 2), nothing)),
        "few_rows": (f.linear, (normal(0, 2, 64), normal(1, 32, 64).astype(BF16))),
        "embedding": (f.embedding, (ids, normal(0, 4, 8).astype(BF16))),
    }
    graphs = [traced(function, arrays, name) for name, (function, arrays) in programs.items()]
    compiled = Compiled(graphs, tmp_path_factory.mktemp("functions"))
    for name, (function, arrays) in programs.items():
        (actual,) = compiled(name, *arrays)
        np.testing.assert_allclose(
            actual, run(function, *arrays), rtol=1e-5, atol=2e-5, err_msg=name
        )


@pytest.mark.parametrize("window", [None, 3])
def test_tokens_that_attend_alone_are_computed_one_after_the_other(window: int | None) -> None:
    inputs = (normal(0, 4, 2, 4), normal(1, 12, 4), normal(2, 12, 4), np.array([5], np.int32))

    def attend(*, alone: bool) -> Callable[..., Tensor]:
        attributes: dict[str, Any] = {"keys": 12, "window": window, "scale": 0.5}
        return lambda *tensors: f.cached_attention(*tensors, **attributes, alone=alone)

    np.testing.assert_allclose(
        run(attend(alone=True), *inputs), run(attend(alone=False), *inputs), rtol=1e-5
    )
    nodes = [node.origin for node in inlined(traced(attend(alone=True), inputs)).nodes]
    products = [node for node in nodes if isinstance(node, Apply) and node.op is ops.dot_general]
    assert len(products) == 2 * 4
