"""A case of each function of models/dsl/functions, whose results in PyTorch are recorded.

The cases stand in for test_functions_torch.py where PyTorch is not installed.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.evaluate import evaluate
from tests.models.graphs import gradient_graph, traced

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from hearthd.models.dsl.graph import Tensor

    Array = NDArray[Any]
    Shape = tuple[int, ...]

GOLDEN = Path(__file__).parents[3] / "golden/functions_torch.npz"

RECURRENCE_START = 3  # the position of the first token


def _delta_rule(
    states: Tensor, query: Tensor, key: Tensor, value: Tensor, *others: Tensor, ring: int
) -> Tensor:
    """The outputs and the ring; heads take turns if the state after each token is kept."""
    a, b, bias, rates = others
    every = ring > value.shape[0]
    states = f.gated_delta_rule(
        states, _ends(value), query, key, value, a, b, bias, rates * rates * -0.2,
        groups=2, takes_turns=every, ring=ring, every=every,
    )  # fmt: skip
    return _outputs_and_ring(states, value, ring)


def _ssm_scan(
    states: Tensor, query: Tensor, key: Tensor, x: Tensor, *others: Tensor, ring: int
) -> Tensor:
    """The outputs and the ring; two groups."""
    steps, gate, bias, rates, skip = others
    states = f.ssm_scan(
        states, _ends(x), query, key, x, steps, gate, bias, rates * rates * -0.2, skip,
        groups=2, ring=ring, every=ring > x.shape[0],
    )  # fmt: skip
    return _outputs_and_ring(states, x, ring)


def _selective_scan(
    states: Tensor, query: Tensor, key: Tensor, x: Tensor, *others: Tensor, ring: int
) -> Tensor:
    """The outputs and the ring."""
    steps, gate, bias, rates, skip = others
    states = f.selective_scan(
        states, _ends(x), query, key, x, steps, gate, bias, rates * rates * -0.2, skip,
        ring=ring, every=ring > x.shape[0],
    )  # fmt: skip
    return _outputs_and_ring(states, x, ring)


def _channel_delta_rule(
    states: Tensor, value: Tensor, query: Tensor, key: Tensor, *others: Tensor, ring: int
) -> Tensor:
    """The outputs and the ring."""
    decay, probe, removed = others
    rows = query, key, value, decay * decay * -1.0, probe * 0.3, removed * 0.3
    every = ring > value.shape[0]
    states = f.channel_delta_rule(states, _ends(value), *rows, heads=2, ring=ring, every=every)
    return _outputs_and_ring(states, value, ring)


def _ends(tokens: Tensor) -> Tensor:
    """The positions of the first token and of the last one."""
    ends = [RECURRENCE_START, RECURRENCE_START + tokens.shape[0] - 1]
    return ops.constant(value=np.array(ends, np.int32))


def _outputs_and_ring(states: Tensor, value: Tensor, ring: int) -> Tensor:
    outputs = f.recurrence_outputs(states, value, ring=ring)
    return ops.concatenate(f.flatten(outputs), f.flatten(f.narrow(states, 0, 0, ring)), axis=0)


CONV1D: dict[str, Any] = {"stride": (2,), "padding": (1,), "dilation": (2,), "groups": 2}
CONV2D: dict[str, Any] = {"stride": (1, 3), "padding": (2, 0), "dilation": (1, 2), "groups": 1}
TRANSPOSED: dict[str, Any] = {**CONV1D, "stride": (3,), "output_padding": (2,)}
POOL: dict[str, Any] = {"stride": 2, "padding": 1}

# By name: the function, and the shapes of its inputs, which are all float.
CASES: dict[str, tuple[Callable[..., Any], tuple[Shape, ...]]] = {
    "conv1d": (lambda x, w, b: f.convolution(x, w, b, **CONV1D), ((2, 4, 9), (6, 2, 3), (6,))),
    "conv2d": (lambda x, w: f.convolution(x, w, **CONV2D), ((2, 3, 5, 9), (4, 3, 3, 2))),
    "conv_transpose1d": (
        lambda x, w, b: f.transposed_convolution(x, w, b, **TRANSPOSED),
        ((2, 4, 3), (4, 3, 3), (6,)),
    ),
    "max_pool2d": (lambda x: f.max_pool2d(x, 3, dilation=2, **POOL), ((2, 9, 8),)),
    "avg_pool2d": (lambda x: f.avg_pool2d(x, 3, **POOL), ((2, 3, 7, 8),)),
    "upsample2d_nearest": (lambda x: f.upsample2d_nearest(x, 3), ((2, 1, 3, 2),)),
    "upsample2d_bilinear": (lambda x: f.upsample2d_bilinear(x, 3), ((2, 1, 4, 3),)),
    "layer_norm": (lambda x, w, b: f.layer_norm(x, w, b, eps=0.1), ((3, 5), (5,), (5,))),
    "rms_norm": (lambda x, w: f.rms_norm(x, w, eps=0.1), ((3, 5), (5,))),
    "group_norm": (
        lambda x, w, b: f.group_norm(x, w, b, groups=2, eps=0.1),
        ((2, 6, 3), (6,), (6,)),
    ),
    "batch_norm": (
        lambda x, w, b: f.batch_norm(x, *_running(), w, b, eps=0.1),
        ((2, 3, 4), (3,), (3,)),
    ),
    **{
        f"batch_norm_training_{result}": (
            lambda x, w, b, result=result: f.batch_norm_training(
                x, *_running(), w, b, eps=0.1, momentum=0.3
            )[result],
            ((4, 3, 2), (3,), (3,)),
        )
        for result in range(3)
    },
    "relu": (f.relu, ((3, 5),)),
    "leaky_relu": (lambda x: f.leaky_relu(x, slope=0.2), ((3, 5),)),
    "elu": (lambda x: f.elu(x, alpha=0.7), ((3, 5),)),
    "sigmoid": (f.sigmoid, ((3, 5),)),
    "gated_heads": (f.gated_heads, ((3, 2, 4), (3, 2, 4))),
    "silu": (f.silu, ((3, 5),)),
    "gelu": (f.gelu, ((3, 5),)),
    "gelu_tanh": (f.gelu_tanh, ((3, 5),)),
    "clamp": (lambda x: f.clamp(x, -0.5, 0.75), ((3, 5),)),
    "log2": (lambda x: f.log2(x * x + 0.1), ((3, 5),)),
    "log10": (lambda x: f.log10(x * x + 0.1), ((3, 5),)),
    "power": (lambda x, y: (x * x + 0.1) ** y, ((3, 5), (3, 5))),
    "reversed_operators": (lambda x: 2.0**x - 3.0 / (7.0 - x), ((3, 5),)),
    "expm1": (ops.exponential_minus_one, ((3, 5),)),
    "erf": (ops.erf, ((3, 5),)),
    "softmax": (lambda x: f.softmax(x, axis=1), ((2, 4, 3),)),
    "log_softmax": (lambda x: f.log_softmax(x, axis=0), ((4, 3),)),
    "mean": (lambda x: f.mean(x, 1), ((2, 4, 3),)),
    "variance": (lambda x: f.variance(x, 0, 2, correction=1), ((2, 4, 3),)),
    "variance_of_all": (lambda x: f.variance(x, 0, correction=0), ((5,),)),
    "matmul": (f.matmul, ((2, 1, 3, 4), (1, 4, 5))),
    "linear": (f.linear, ((3, 2, 4), (5, 4), (5,))),
    "unfold": (lambda x: f.unfold(x, axis=1, size=3, step=2), ((2, 7, 2),)),
    "stack": (lambda x, y: f.stack((x, y), axis=1), ((2, 3), (2, 3))),
    "chunk": (lambda x: f.chunk(x, 3, axis=0)[2], ((7, 2),)),
    "split": (lambda x: f.split(x, [2, 1, 4], axis=0)[2], ((7, 2),)),
    "permute": (lambda x: f.permute(x, 2, 0, 1), ((2, 3, 4),)),
    "flatten": (lambda x: f.flatten(x, first=1, last=-2), ((2, 3, 4, 2),)),
    "tril": (lambda x: f.tril(x, diagonal=1), ((2, 3, 4),)),
    "pad2d": (lambda x: f.pad2d(x, (1, 0, 2, 3), value=0.5), ((2, 3, 4),)),
    "gather": (
        lambda x: f.gather(x, ops.constant(value=np.array([2, 0, 2], np.int32)), axis=1),
        ((2, 3, 2),),
    ),
    "cross_entropy": (
        lambda x: f.cross_entropy(x, ops.constant(value=np.array([2, 0, 1], np.int32))),
        ((3, 4),),
    ),
    "cross_entropy_per_row": (
        lambda x: f.cross_entropy_per_row(x, ops.constant(value=np.array([2, 0, 1], np.int32))),
        ((3, 4),),
    ),
    "mean_squared_error": (f.mean_squared_error, ((3, 4), (3, 4))),
    "softplus": (f.softplus, ((3, 5),)),
    "squared_relu": (f.squared_relu, ((3, 5),)),
    "grouped_rms_norm": (
        lambda x, w: f.grouped_rms_norm(x, w, groups=2, eps=0.1),
        ((3, 6), (6,)),
    ),
    # More tokens than a chunk has, and a ring that has the state after each token.
    **{
        f"delta_rule_{name}": (
            functools.partial(_delta_rule, ring=ring),
            (
                (ring + tokens // 3 + 1, 48),
                (tokens, 6),
                (tokens, 6),
                (tokens, 16),
                (tokens, 4),
                (tokens, 4),
                (4,),
                (4,),
            ),
        )
        for name, tokens, ring in (("chunks", 70, 2), ("steps", 4, 5))
    },
    **{
        f"ssm_scan_{name}": (
            functools.partial(_ssm_scan, ring=ring),
            (
                (ring + tokens // 3 + 1, 48),
                (tokens, 6),
                (tokens, 6),
                (tokens, 16),
                (tokens, 4),
                (tokens, 16),
                (4,),
                (4,),
                (4,),
            ),
        )
        for name, tokens, ring in (("chunks", 70, 2), ("steps", 4, 5))
    },
    **{
        f"selective_scan_{name}": (
            functools.partial(_selective_scan, ring=ring),
            (
                (ring + tokens // 4 + 1, 48),
                (tokens, 4),
                (tokens, 4),
                *((tokens, 12),) * 3,
                (12,),
                (4, 12),
                (12,),
            ),
        )
        for name, tokens, ring in (("chunks", 70, 2), ("steps", 3, 5))
    },
    **{
        f"channel_delta_rule_{name}": (
            functools.partial(_channel_delta_rule, ring=ring),
            ((ring + tokens // 3 + 1, 24), (tokens, 6), *((tokens, 8),) * 5),
        )
        for name, tokens, ring in (("chunks", 70, 2), ("steps", 3, 5))
    },
    "attention": (
        lambda q, k, v: f.scaled_dot_product_attention(
            *(f.permute(one, 0, 2, 1, 3) for one in (q, k, v)), seen=f.causal(3, 3), scale=0.7
        ),
        ((2, 4, 3, 5), (2, 2, 3, 5), (2, 2, 3, 5)),
    ),
}


def statistics() -> tuple[Array, Array]:
    """A running mean and variance of 3 channels."""
    return np.array([0.3, -0.2, 1.0]), np.array([0.5, 2.0, 1.5])


def _running() -> tuple[Tensor, Tensor]:
    mean, variance = statistics()
    return ops.constant(value=mean), ops.constant(value=variance)


def inputs(name: str) -> list[Array]:
    """The inputs of a case, in float64."""
    rng = np.random.default_rng(crc32(name.encode()))
    return [rng.normal(size=shape) for shape in CASES[name][1]]


def upstream(shape: Shape) -> Array:
    """The gradient that arrives at a result of this shape."""
    return np.random.default_rng(0).normal(size=shape)


def results(name: str) -> list[Array]:
    """The value of a case, and the gradients of its inputs, in NumPy."""
    function, arrays = CASES[name][0], inputs(name)
    graph = traced(function, arrays)
    (value,) = evaluate(graph, arrays, {})
    arrived = upstream(value.shape)
    return [value, *evaluate(gradient_graph(graph), [*arrays, arrived], {})]


def recorded(name: str) -> list[Array]:
    """As `results`, of PyTorch."""
    with np.load(GOLDEN) as file:
        arrays = {key: file[key] for key in file.files if key.rpartition(".")[0] == name}
    return [arrays[f"{name}.{i}"] for i in range(len(arrays))]
