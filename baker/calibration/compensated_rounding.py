"""Round a matrix so that its products change least: error-compensated rounding (GPTQ).

For the inputs x (K,) of a layer, the mean square of the change of W x is the trace of E H E^T, with
E what rounding takes from W and H = mean x x^T. Columns are rounded one after the other, and each
moves the columns that are still to be rounded so that they compensate its error. With H = U D U^T,
U unit upper triangular, column k is rounded from w_k + sum over j < k of e_j U_jk, and its rounding
error counts D_k times: the same as the inverse Cholesky factor of GPTQ (Frantar et al., 2022), see
QuIP (Chee et al., 2023), without an inverse. Then each integer and scale in turn is set to the best
one beside the others, as a descent by coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hearthd.baker.parameters.group_scales import best_scales, quotients
from hearthd.baker.weights.source import IntegerBlock
from hearthd.models.dsl.matrix_format import GROUP

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Doubles = NDArray[np.float64]

# Part of the mean of the diagonal of H that is added to it. On other text than the calibration's,
# errors were least with 0.1 to 0.2.
DAMPING = 0.1
# Columns whose errors reach the others in one product.
_PANEL = 4 * GROUP
_DESCENTS = 1


def compensated(
    weight: Floats, hessian: Doubles, bits: int, *, descents: int = _DESCENTS
) -> IntegerBlock:
    """Round f32 (N, K) to `bits` bits, with scales for 32 columns, for the Hessian f64 (K, K).

    `descents` is how often all scales and integers are set anew after they were rounded.

    Raises LinAlgError for a Hessian that is not finite.
    """
    damped = hessian / (np.mean(np.diag(hessian)) or 1.0)
    damped[np.diag_indices_from(damped)] += DAMPING
    order = rounding_order(damped)
    state = _State.of(weight[:, order], damped[np.ix_(order, order)], bits)
    _round(state)
    for _ in range(descents):
        _descend(state)
    back = np.argsort(order)
    groups = back[::GROUP] // GROUP
    zero = 1 << (bits - 1)
    return IntegerBlock(
        integers=(state.integers[:, back] + zero).astype(np.uint8),
        scale=np.ascontiguousarray(state.scales[:, groups]),
        minimum=None,
    )


def rounding_order(hessian: Doubles) -> NDArray[np.intp]:
    """The columns in the order in which they are rounded: those with the largest inputs first.

    Columns of a group stay together, since they share a scale.
    """
    inputs = np.diag(hessian).reshape(-1, GROUP)
    within = np.argsort(-inputs, axis=1, kind="stable")
    columns = within + GROUP * np.arange(len(inputs))[:, np.newaxis]
    return np.asarray(columns[np.argsort(-inputs.sum(axis=1), kind="stable")].reshape(-1))


def upper_factors(hessian: Doubles) -> tuple[Doubles, Doubles]:
    """U (K, K), unit upper triangular, and D (K,) of H = U diag(D) U^T."""
    upper = np.linalg.cholesky(hessian[::-1, ::-1])[::-1, ::-1]
    diagonal = np.diag(upper)
    return upper / diagonal, diagonal**2


@dataclass(frozen=True)
class _State:
    """A matrix that is being rounded; columns are in the order of rounding.

    weight    f32 (N, K)
    hessian   f64 (K, K)
    bits      of the integers
    integers  whole numbers f32 (N, K), from -2^(bits - 1)
    scales    f32 (N, K / 32), values of f16
    errors    weight - integers * scales, f32 (N, K)
    """

    weight: Floats
    hessian: Doubles
    bits: int
    integers: Floats
    scales: Floats
    errors: Floats

    @staticmethod
    def of(weight: Floats, hessian: Doubles, bits: int) -> _State:
        rows, columns = weight.shape
        scales = np.zeros((rows, columns // GROUP), np.float32)
        integers, errors = np.zeros((2, rows, columns), np.float32)
        return _State(np.ascontiguousarray(weight), hessian, bits, integers, scales, errors)


def _round(state: _State) -> None:
    """Round the groups in turn."""
    exact, diagonal = upper_factors(state.hessian)
    upper, importance = exact.astype(np.float32), diagonal.astype(np.float32)
    errors, columns = state.errors, state.weight.shape[1]
    for panel in range(0, columns, _PANEL):
        end = min(columns, panel + _PANEL)
        moved = state.weight[:, panel:end] + errors[:, :panel] @ upper[:panel, panel:end]
        for start in range(panel, end, GROUP):
            group = slice(start, start + GROUP)
            within = slice(start - panel, start - panel + GROUP)
            values = moved[:, within] + errors[:, panel:start] @ upper[panel:start, group]
            scales = best_scales(values, importance[group], state.bits)
            state.scales[:, start // GROUP] = scales
            _round_group(state, group, values, upper[group, group])


def _round_group(state: _State, group: slice, values: Floats, upper: Floats) -> None:
    """Round the columns of a group in turn; `values` are those after all earlier groups."""
    scales = state.scales[:, group.start // GROUP]
    by_column = values.T.copy()
    for k, column in enumerate(by_column):
        integers = quotients(column[:, np.newaxis], scales, state.bits)[:, 0]
        error = state.weight[:, group.start + k] - integers * scales
        by_column[k + 1 :] += upper[k, k + 1 :, np.newaxis] * error
        state.integers[:, group.start + k] = integers
        state.errors[:, group.start + k] = error


def _descend(state: _State) -> None:
    """Set the scale of each group, then each of its integers, to the best beside all others."""
    hessian = state.hessian.astype(np.float32)
    slope = state.errors @ hessian
    for start in range(0, state.weight.shape[1], GROUP):
        group = slice(start, start + GROUP)
        before = state.errors[:, group].copy()
        _descend_group(state, group, slope[:, group], hessian[group, group])
        slope += (state.errors[:, group] - before) @ hessian[group]


def _descend_group(state: _State, group: slice, slope: Floats, hessian: Floats) -> None:
    """The same for one group, with the slope E H (N, 32) and the Hessian of its columns."""
    integers, at = state.integers[:, group], group.start // GROUP
    rotated = integers @ hessian
    squares = np.einsum("nk,nk->n", rotated, integers)
    products = np.einsum("nk,nk->n", slope, integers)
    step = np.divide(products, squares, out=np.zeros_like(products), where=squares > 0)
    scales = (state.scales[:, at] + step).astype(np.float16).astype(np.float32)
    slopes = np.ascontiguousarray((slope - (scales - state.scales[:, at])[:, None] * rotated).T)
    for k, column in enumerate(integers.T.copy()):
        target = column * scales + slopes[k] / hessian[k, k]
        integers[:, k] = quotients(target[:, np.newaxis], scales, state.bits)[:, 0]
        slopes -= hessian[k, :, np.newaxis] * ((integers[:, k] - column) * scales)
    state.scales[:, at] = scales
    state.errors[:, group] = state.weight[:, group] - integers * scales[:, np.newaxis]
