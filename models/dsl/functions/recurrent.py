"""The gated recurrent unit (Cho et al., 2014), by PyTorch's equations, and its three forms.

`S` are steps, `B` a batch, `D` the width of an input, `H` of a state. All forms compute the same;
they differ in the graph that they leave:

unrolled  S copies of the cell, each with two matmuls
loop      one cell in a `scan`: a program whose size does not grow with S
fused     the inputs' share of the gates as one matmul for all steps, and then one matmul a step:
          unrolled up to UNROLLED_STEPS, and else a `scan` over blocks of BLOCK_STEPS
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.models.dsl import ops
from hearthd.models.dsl.functions.activations import sigmoid
from hearthd.models.dsl.functions.shapes import along_last, at, flatten_rows, narrow, stack
from hearthd.models.dsl.types import DType, TypeRuleError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.types import TensorType

__all__ = ["GRU_FORMS", "GruForm", "choose_gru_form", "gru", "gru_cell"]

GRU_FORMS = ("unrolled", "loop", "fused")

# With more steps an unrolled program takes many seconds to compile, and an iteration of the loop
# costs as much as some steps of a small state: see docs/arrays.md.
UNROLLED_STEPS = 128
BLOCK_STEPS = 32
# Of all steps' gates together, in bytes: they are computed before the first step needs them.
MAX_GATE_BYTES = 64 << 20


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


def _next_state(gates: Tensor, h: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The next h (B, H), where the input's share of the gates (B, 3H) is known."""
    x_r, x_z, x_n = _three(gates)
    h_r, h_z, h_n = _three(_affine(h, weight, bias))
    reset, update = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
    new = ops.tanh(x_n + reset * h_n)
    return (1.0 - update) * new + update * h


def _three(gates: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(B, 3H) -> three of (B, H)."""
    batch, width = gates.shape
    # Along an axis of their own: the compiler refuses the gradient of cuts of (B, 3H).
    split = ops.reshape(gates, shape=(batch, 3, width // 3))
    reset, update, new = (
        ops.reshape(narrow(split, 1, gate, gate + 1), shape=(batch, width // 3))
        for gate in range(3)
    )
    return reset, update, new


def _affine(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b for x (M, K), W (N, K) and b (N,): (M, N). Narrow floats are summed in f32."""
    wide = x.dtype if x.dtype in (DType.F32, DType.F64) else DType.F32
    product = ops.dot_general(x, weight, batch=((), ()), contract=((1,), (1,)), dtype=wide)
    product = product if wide is x.dtype else ops.convert(product, dtype=x.dtype)
    return product if bias is None else product + along_last(bias, product)


@dataclass(frozen=True)
class GruForm:
    """The form to use; `fallback` is the reason that it is not the requested one, or None."""

    name: str
    fallback: str | None


def choose_gru_form(asked: str, steps: int, state: TensorType) -> GruForm:
    """The form to lower for S steps of a state (B, H); it is not "fused" where that cannot help.

    Raises TypeRuleError for an unknown form.
    """
    if asked not in GRU_FORMS:
        raise TypeRuleError(f"form: expected {', '.join(GRU_FORMS)}, got {asked!r}")
    if asked != "fused":
        return GruForm(asked, None)
    if steps == 1:
        return GruForm("unrolled", "fused: one step has no other to share a matmul with")
    gates = 3 * steps * state.nbytes
    if gates > MAX_GATE_BYTES:
        return GruForm("loop", f"fused: {gates} bytes of gates, at most {MAX_GATE_BYTES} are kept")
    return GruForm("fused", None)


def gru(x: Tensor, h0: Tensor, weights: tuple[Tensor, ...], *, reverse: bool, form: str) -> Tensor:
    """A layer in one direction: x (S, B, D) and h0 (B, H) -> the states (S, B, H).

    `weights` as in `gru_cell`. Reversed, it reads the last step of x first. For `form` see
    `choose_gru_form`.
    """
    match choose_gru_form(form, x.shape[0], h0.type).name:
        case "fused":
            return _fused(x, h0, weights, reverse=reverse)
        case "unrolled":
            return _unrolled(lambda h, now: gru_cell(now, h, *weights), h0, x, reverse=reverse)
    return ops.scan(
        h0,
        x,
        *weights,
        body=lambda h, now, *constants: gru_cell(now, h, *constants),
        sequences=1,
        steps=x.shape[0],
        reverse=reverse,
        keep="all",
    )


def _unrolled(
    cell: Callable[[Tensor, Tensor], Tensor], h: Tensor, sequence: Tensor, *, reverse: bool
) -> Tensor:
    """All states (n, B, H) of a cell (h, element) -> h over a sequence (n, ...)."""
    steps = range(sequence.shape[0])
    states = []
    for step in reversed(steps) if reverse else steps:
        h = cell(h, at(sequence, step))
        states.append(h)
    return stack(states[::-1] if reverse else states)


def _fused(x: Tensor, h0: Tensor, weights: tuple[Tensor, ...], *, reverse: bool) -> Tensor:
    """`gru` with 1 + S matmuls."""
    (steps, batch, _), hidden = x.shape, h0.shape[1]
    (weight, *bias), recurrent = weights[::2], weights[1::2]
    flat = _affine(flatten_rows(x), weight, *bias)
    gates = ops.reshape(flat, shape=(steps, batch, 3 * hidden))
    if steps <= UNROLLED_STEPS:
        return _read(h0, gates, recurrent, reverse=reverse)
    in_blocks = steps - steps % BLOCK_STEPS
    # What is left over is read last: it lies at the end or, reversed, at the beginning.
    blocks, remaining = (0, in_blocks), (in_blocks, steps)
    if reverse:
        blocks, remaining = (steps - in_blocks, steps), (0, steps - in_blocks)
    states = _in_blocks(h0, narrow(gates, 0, *blocks), recurrent, reverse=reverse)
    if in_blocks == steps:
        return states
    newest = at(states, 0 if reverse else in_blocks - 1)
    rest = _read(newest, narrow(gates, 0, *remaining), recurrent, reverse=reverse)
    return ops.concatenate(*((rest, states) if reverse else (states, rest)), axis=0)


def _read(h: Tensor, gates: Tensor, recurrent: tuple[Tensor, ...], *, reverse: bool) -> Tensor:
    """All states (n, B, H) of n steps whose inputs' share of the gates (n, B, 3H) is known."""
    return _unrolled(lambda h, now: _next_state(now, h, *recurrent), h, gates, reverse=reverse)


def _in_blocks(
    h0: Tensor, gates: Tensor, recurrent: tuple[Tensor, ...], *, reverse: bool
) -> Tensor:
    """`_read` as a loop over blocks of steps, whose state is all states of the last block."""
    (steps, batch, width), blocks = gates.shape, gates.shape[0] // BLOCK_STEPS
    newest = 0 if reverse else BLOCK_STEPS - 1
    states = ops.scan(
        ops.broadcast(h0, shape=(BLOCK_STEPS, *h0.shape), axes=(1, 2)),
        ops.reshape(gates, shape=(blocks, BLOCK_STEPS, batch, width)),
        *recurrent,
        body=lambda before, gates, *recurrent: _read(
            at(before, newest), gates, recurrent, reverse=reverse
        ),
        sequences=1,
        steps=blocks,
        reverse=reverse,
        keep="all",
    )
    return ops.reshape(states, shape=(steps, *h0.shape))
