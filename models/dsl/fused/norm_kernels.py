"""RMSNorm and rotary positions, fused with their neighbors in a decoder's layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from hearthd.models.dsl import functions as f
from hearthd.models.dsl.composite import Fused
from hearthd.models.dsl.ops.record import Kernel, Sample, require
from hearthd.models.dsl.ops.samples import normal, positive
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.ops.record import Array, Attrs, Types
    from hearthd.models.dsl.types import TensorType

__all__ = [
    "add_norm",
    "gated_heads",
    "gated_norm",
    "grouped_rms_norm",
    "norm_rope",
    "residual_norm",
    "rope",
]

Heads: TypeAlias = tuple[int, int, int]  # from the first up to the second, the third apart

# As the kernels have it.
_LANES = 16
_MAX_WORKGROUPS = 16


def _require_rows(x: TensorType, rank: int, multiple: int) -> None:
    """Raise TypeRuleError for a first input that the kernels do not take."""
    require(
        x.dtype in (DType.F32, DType.F64) and x.rank == rank and x.shape[-1] % multiple == 0,
        f"floats of rank {rank}, the last axis a multiple of {multiple}",
    )


# --- the residual stream


def _residual_norm(h: Tensor, y: Tensor, after: Tensor, before: Tensor, *, eps: float) -> Tensor:
    total = h + f.rms_norm(y, after, eps=eps)
    return f.stack([total, f.rms_norm(total, before, eps=eps)])


def _add_norm(h: Tensor, y: Tensor, before: Tensor, *, eps: float, scale: float = 1.0) -> Tensor:
    total = h + y * scale
    return f.stack([total, f.rms_norm(total, before, eps=eps)])


def _stream(
    rng: np.random.Generator, rows: int, width: int, weights: int, **attrs: float
) -> Sample:
    tensors = (normal(rng, rows, width), normal(rng, rows, width))
    weight = (positive(rng, width) for _ in range(weights))
    return Sample((*tensors, *weight), {**attrs, "eps": 1e-3})


def _per_row(function: str, types: Types, *scalars: float) -> Kernel:
    return Kernel(
        function=function,
        sizes=types[0].shape,
        scalars=scalars,
        workgroups=types[0].shape[0],
    )


residual_norm: Fused = Fused(
    name="residual_norm",
    doc="h + rms_norm(y, after), and the rms_norm of that by `before`: (2, N, E) of h, y (N, E).",
    reference=_residual_norm,
    limits=lambda types, _: _require_rows(types[0], 2, _LANES),
    kernel=lambda types, _, attrs: _per_row("residual_norm", types, attrs["eps"]),
    samples=lambda rng: [_stream(rng, 1, 32, weights=2), _stream(rng, 3, 48, weights=2)],
)

add_norm: Fused = Fused(
    name="add_norm",
    doc="h + scale y, and the rms_norm of that by `before`: (2, N, E) of h, y (N, E).",
    reference=_add_norm,
    limits=lambda types, _: _require_rows(types[0], 2, _LANES),
    kernel=lambda types, _, attrs: _per_row(
        "add_norm", types, attrs.get("scale", 1.0), attrs["eps"]
    ),
    samples=lambda rng: [
        _stream(rng, 1, 32, weights=1),
        _stream(rng, 3, 48, weights=1, scale=0.3),
    ],
)

# --- parts of a row


def _group_limits(types: Types, attrs: Attrs) -> None:
    _require_rows(types[0], 2, attrs["groups"] * _LANES)


def _group_sample(rng: np.random.Generator, rows: int, width: int, groups: int) -> Sample:
    inputs = (normal(rng, rows, width), positive(rng, width))
    return Sample(inputs, {"groups": groups, "eps": 1e-3})


grouped_rms_norm: Fused = Fused(
    name="grouped_rms_norm",
    doc="`f.grouped_rms_norm`: RMSNorm of each of some groups of columns.",
    reference=f.grouped_rms_norm.op.reference,
    limits=_group_limits,
    kernel=lambda types, _, attrs: Kernel(
        function="grouped_rms_norm",
        sizes=(types[0].shape[1], attrs["groups"]),
        scalars=(attrs["eps"],),
        workgroups=types[0].shape[0] * attrs["groups"],
    ),
    samples=lambda rng: [_group_sample(rng, 1, 32, 1), _group_sample(rng, 3, 96, 2)],
)


def _gated_norm_limits(types: Types, _: Attrs) -> None:
    gate, x, weight = types
    _require_rows(x, x.rank, _LANES)
    require(gate == x and weight.shape == x.shape[-1:], "gates as the values, and weights (D,)")


def _gated_norm_kernel(types: Types, attrs: Attrs) -> Kernel:
    width = types[2].size
    rows = types[1].size // width
    share = -(-rows // _MAX_WORKGROUPS)
    return Kernel(
        function="gated_norm",
        sizes=(rows, width, share),
        scalars=(attrs["eps"],),
        workgroups=-(-rows // share),
    )


def _gated_norm_sample(rng: np.random.Generator, *shape: int) -> Sample:
    inputs = (normal(rng, *shape), normal(rng, *shape), positive(rng, shape[-1]))
    return Sample(inputs, {"eps": 1e-3})


gated_norm: Fused = Fused(
    name="gated_norm",
    doc="silu(gate) times the rms_norm of x (..., D) by a weight (D,).",
    reference=lambda gate, x, weight, *, eps: f.silu(gate) * f.rms_norm(x, weight, eps=eps),
    limits=_gated_norm_limits,
    kernel=lambda types, _, attrs: _gated_norm_kernel(types, attrs),
    samples=lambda rng: [_gated_norm_sample(rng, 1, 2, 32), _gated_norm_sample(rng, 3, 5, 48)],
)

# --- heads


def _norm_rope(
    x: Tensor, weight: Tensor, cosine: Tensor, sine: Tensor, *, heads: Heads, eps: float
) -> Tensor:
    return f.rope(f.rms_norm(f.every(x, 1, *heads), weight, eps=eps), cosine, sine)


def _rope(x: Tensor, cosine: Tensor, sine: Tensor, *, heads: Heads) -> Tensor:
    return f.rope(f.every(x, 1, *heads), cosine, sine)


def _gated_heads(gate: Tensor, x: Tensor, *, heads: Heads) -> Tensor:
    return f.gated_heads(f.every(gate, 1, *heads), x)


def _turning_limits(types: Types, _: Attrs) -> None:
    _require_rows(types[0], 3, _LANES)
    table = types[-1]
    require(table.shape[-1] % _LANES == 0, f"tables with a multiple of {_LANES} columns")


def _heads_kernel(function: str, types: Types, attrs: Attrs) -> Kernel:
    rows, count, width = types[0].shape
    turning = () if function == "gated_heads" else (2 * types[-1].shape[1],)
    return Kernel(
        function=function,
        sizes=(count, *attrs["heads"], width, *turning),
        scalars=(attrs["eps"],) if "eps" in attrs else (),
        workgroups=rows,
    )


def _heads(
    rng: np.random.Generator, rows: int, count: int, width: int = 32
) -> tuple[Array, Array, Array]:
    """Heads, and a table of cosines and sines for 32 of their columns."""
    angles = rng.uniform(0, 7, size=(rows, 16)).astype(np.float32)
    return normal(rng, rows, count, width), np.cos(angles), np.sin(angles)


def _rope_sample(
    rng: np.random.Generator, rows: int, count: int, heads: Heads, width: int = 32
) -> Sample:
    return Sample(_heads(rng, rows, count, width), {"heads": heads})


def _norm_rope_sample(
    rng: np.random.Generator, rows: int, count: int, heads: Heads, width: int = 32
) -> Sample:
    x, *table = _heads(rng, rows, count, width)
    return Sample((x, positive(rng, width), *table), {"heads": heads, "eps": 1e-3})


def _gated_heads_sample(rng: np.random.Generator, rows: int, count: int, heads: Heads) -> Sample:
    chosen = len(range(*heads))
    inputs = (normal(rng, rows, count, 32), normal(rng, rows, chosen, 32))
    return Sample(inputs, {"heads": heads})


norm_rope: Fused = Fused(
    name="norm_rope",
    doc=(
        "rope(rms_norm(x, weight)) of the heads from `heads[0]` up to `heads[1]`, `heads[2]` "
        "apart, of x (N, H, D), by a table of cosines and sines (N, T / 2) for T columns."
    ),
    reference=_norm_rope,
    limits=_turning_limits,
    kernel=lambda types, _, attrs: _heads_kernel("norm_rope", types, attrs),
    samples=lambda rng: [
        _norm_rope_sample(rng, 3, 4, (1, 3, 1)),
        _norm_rope_sample(rng, 1, 1, (0, 1, 1)),
        _norm_rope_sample(rng, 2, 5, (0, 4, 2), width=64),
    ],
)

rope: Fused = Fused(
    name="rope",
    doc=(
        "rope(x) of the heads from `heads[0]` up to `heads[1]`, `heads[2]` apart, of x (N, H, D), "
        "by a table of cosines and sines (N, T / 2) for T columns."
    ),
    reference=_rope,
    limits=_turning_limits,
    kernel=lambda types, _, attrs: _heads_kernel("rope", types, attrs),
    samples=lambda rng: [
        _rope_sample(rng, 3, 4, (1, 3, 1)),
        _rope_sample(rng, 1, 1, (0, 1, 1)),
        _rope_sample(rng, 2, 5, (1, 5, 2), width=48),
    ],
)

gated_heads: Fused = Fused(
    name="gated_heads",
    doc=(
        "x (N, G, D) times the sigmoids of the heads from `heads[0]` up to `heads[1]`, `heads[2]` "
        "apart, of gates (N, H, D)."
    ),
    reference=_gated_heads,
    limits=lambda types, _: _require_rows(types[0], 3, _LANES),
    kernel=lambda types, _, attrs: _heads_kernel("gated_heads", types, attrs),
    samples=lambda rng: [
        _gated_heads_sample(rng, 3, 5, (1, 4, 2)),
        _gated_heads_sample(rng, 1, 1, (0, 1, 1)),
    ],
)
