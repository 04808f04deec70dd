"""The gated recurrent unit (Cho et al., 2014), by PyTorch's equations.

`S` are steps, `B` a batch, `D` the width of an input, `H` of a state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from models.dsl import ops
from models.dsl.functions.activations import sigmoid
from models.dsl.functions.shapes import along_last, at, narrow, stack
from models.dsl.types import DType

if TYPE_CHECKING:
    from models.dsl.graph import Tensor

__all__ = ["gru", "gru_cell"]


def gru_cell(
    x: Tensor,
    h: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor | None = None,
    bias_hh: Tensor | None = None,
) -> Tensor:
    """One step: x (B, D) and h (B, H) -> the next h (B, H).

    r = sigmoid(x W_ir + b_ir + h W_hr + b_hr)
    z = sigmoid(x W_iz + b_iz + h W_hz + b_hz)
    n = tanh(x W_in + b_in + r (h W_hn + b_hn))
    h' = (1 - z) n + z h

    weight_ih (3H, D) and weight_hh (3H, H) hold the rows of r, z and n one below the other, and so
    do the biases (3H,): one matmul gives the three gates' shares.
    """
    return _next_state(_affine(x, weight_ih, bias_ih), h, weight_hh, bias_hh)


def _next_state(from_x: Tensor, h: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The next h, (B, H), where the input's share of the gates (B, 3H) is known."""
    hidden = h.shape[1]
    from_h = _affine(h, weight, bias)
    x_r, x_z, x_n = (narrow(from_x, 1, i * hidden, (i + 1) * hidden) for i in range(3))
    h_r, h_z, h_n = (narrow(from_h, 1, i * hidden, (i + 1) * hidden) for i in range(3))
    reset, update = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
    new = ops.tanh(x_n + reset * h_n)
    return (1.0 - update) * new + update * h


def _affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x W^T + b for x (M, K), W (N, K) and b (N,): (M, N). Narrow floats are summed in f32."""
    wide = x.dtype if x.dtype in (DType.F32, DType.F64) else DType.F32
    product = ops.dot_general(x, weight, batch=((), ()), contract=((1,), (1,)), dtype=wide)
    product = product if wide is x.dtype else ops.convert(product, dtype=x.dtype)
    return product if bias is None else product + along_last(bias, product)


def gru(x: Tensor, h0: Tensor, weights: tuple[Tensor, ...], *, reverse: bool) -> Tensor:
    """A layer in one direction: x (S, B, D) and h0 (B, H) -> the states (S, B, H).

    `weights` are those of `gru_cell`. Reversed, the last step of x is the first that is read.
    """
    steps = range(x.shape[0])
    h, states = h0, []
    for step in reversed(steps) if reverse else steps:
        h = gru_cell(at(x, step), h, *weights)
        states.append(h)
    return stack(states[::-1] if reverse else states)
