"""Random weights of a GRU, and its answers by the formula."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.baker.pipeline.bake_options import BakeOptions, bake_options

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Array = NDArray[np.float32]

S, B, D, H, LAYERS = 5, 2, 3, 4, 2


def weights() -> dict[str, Array]:
    """The weights of a torch.nn.GRU(D, H, num_layers=LAYERS), by its names."""
    rng = np.random.default_rng(7)
    shapes: dict[str, tuple[int, ...]] = {}
    for layer in range(LAYERS):
        shapes |= {
            f"weight_ih_l{layer}": (3 * H, D if layer == 0 else H),
            f"weight_hh_l{layer}": (3 * H, H),
            f"bias_ih_l{layer}": (3 * H,),
            f"bias_hh_l{layer}": (3 * H,),
        }
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def formula(x: NDArray[Any], h: NDArray[Any], layer: int) -> NDArray[Any]:
    """A step of a layer, in float64, from PyTorch's documentation of GRU."""
    stored = {name: value.astype(np.float64) for name, value in weights().items()}
    gates = x @ stored[f"weight_ih_l{layer}"].T + stored[f"bias_ih_l{layer}"]
    state = h @ stored[f"weight_hh_l{layer}"].T + stored[f"bias_hh_l{layer}"]
    r, z = (
        1 / (1 + np.exp(-gates[:, part] - state[:, part]))
        for part in (slice(0, H), slice(H, 2 * H))
    )
    n = np.tanh(gates[:, 2 * H :] + r * state[:, 2 * H :])
    return np.asarray((1 - z) * n + z * h)


def expected(x: Array, h0: Array) -> tuple[NDArray[Any], NDArray[Any]]:
    """y (S, B, H) and h_n (LAYERS, B, H)."""
    inputs, last = list(x.astype(np.float64)), []
    for layer in range(LAYERS):
        states = [h0[layer].astype(np.float64)]
        for row in inputs:
            states.append(formula(row, states[-1], layer))
        inputs = states[1:]
        last.append(states[-1])
    return np.stack(inputs), np.stack(last)


def gru_options(weights: Path, out: Path, **options: object) -> BakeOptions:
    given = {"model": "gru", "weights": weights, "out": out, "steps": S, "batch": B}
    return bake_options(given | options)
