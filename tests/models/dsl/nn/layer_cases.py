"""A small one of each layer of models/dsl/nn, in any float dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.models.dsl import nn
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from hearthd.models.dsl.graph import Graph, Tensor

    Array = NDArray[Any]

# By name: how the layer is made, and the shape that it reads.
LAYERS: dict[str, tuple[Callable[[DType], Any], tuple[int, ...]]] = {
    "linear": (lambda dtype: nn.Linear(4, 3, dtype=dtype), (2, 4)),
    "linear_bias": (lambda dtype: nn.Linear(4, 3, bias=True, dtype=dtype), (2, 3, 4)),
    "rms_norm": (lambda dtype: nn.RMSNorm(5, 1e-3, dtype=dtype), (3, 5)),
    "layer_norm": (lambda dtype: nn.LayerNorm(5, 1e-3, dtype=dtype), (3, 5)),
    "group_norm": (lambda dtype: nn.GroupNorm(2, 4, 1e-3, dtype=dtype), (2, 4, 3)),
    "batch_norm": (lambda dtype: nn.BatchNorm(3, 1e-3, dtype=dtype), (2, 3, 4)),
    "conv1d": (
        lambda dtype: nn.Convolution(
            4, 6, (3,), stride=2, padding=1, dilation=2, groups=2, dtype=dtype
        ),
        (2, 4, 9),
    ),
    "conv2d": (lambda dtype: nn.Convolution(2, 3, (3, 2), bias=False, dtype=dtype), (1, 2, 5, 4)),
    "conv3d": (lambda dtype: nn.Convolution(1, 2, (2, 1, 2), dtype=dtype), (1, 1, 2, 2, 3)),
    "conv_transpose1d": (
        lambda dtype: nn.TransposedConvolution(
            4, 2, (3,), stride=3, padding=1, dilation=2, output_padding=2, groups=2, dtype=dtype
        ),
        (2, 4, 3),
    ),
    "conv_transpose2d": (
        lambda dtype: nn.TransposedConvolution(2, 3, (2, 3), bias=False, dtype=dtype),
        (1, 2, 2, 3),
    ),
    "gru": (
        lambda dtype: nn.GRU(
            3, 2, layers=1, bidirectional=False, bias=True, batch_first=True, dtype=dtype,
            form="unrolled",
        ),
        (2, 3, 3),
    ),
}  # fmt: skip


def layer_graph(name: str, dtype: DType, *, of: DType | None = None) -> Graph:
    """(x, the parameters in their order) -> the first result. `of` is the parameters' dtype."""
    make, shape = LAYERS[name]
    layer = make(of or dtype)
    weights = layer.parameters()
    inputs = {"x": TensorType(shape, dtype)} | {key: one.type for key, one in weights.items()}

    def function(x: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        for key, tensor in zip(weights, tensors, strict=True):
            setattr(layer, key, tensor)
        result = layer(x)
        return (result[0] if isinstance(result, tuple) else result,)

    return trace(f"{name}_{dtype.label}", function, inputs)


def layer_arrays(graph: Graph) -> list[Array]:
    """x and parameters; all positive, as a variance is, and of dyadic fractions: in every dtype."""
    rng = np.random.default_rng(len(graph.name))
    return [
        (rng.integers(1, 17, size=tensor.shape) / 8).astype(tensor.dtype.numpy)
        for tensor in graph.inputs
    ]
