"""`--precision auto`: the fastest precision that fits and is close enough to F32.

Knows an order, limits, and how a choice is told; nothing of weights, programs and machines. That
one precision is faster than another is expected of its bytes and kernels, and not measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from baker.atomic_folder import BakeError
from models.bundle import TriedPrecision
from models.precision import PRECISIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from baker.precision.kl_from_f32 import Divergence

AUTO = "auto"
# The mean divergence from F32 that is taken for none, in nats: that of llama.cpp's Q8_0 and less.
MAX_KL = 0.0035


def by_speed(instructions: str | None) -> tuple[str, ...]:
    """Every precision, the fastest first, for kernels that use these instructions."""
    portable = instructions == "portable"
    ranked = sorted(
        PRECISIONS.values(), key=lambda one: one.speed_without if portable else one.speed
    )
    return tuple(one.name for one in ranked)


def choose(
    precisions: Sequence[str],
    *,
    max_kl: float,
    obstacle: Callable[[str], str | None],
    divergence: Callable[[str], Divergence],
) -> tuple[TriedPrecision, ...]:
    """Try one precision after the other until one will do: what was tried, that one last.

    `obstacle` says why a precision cannot be baked or served, if so; what is left has its
    `divergence` measured, which takes long. Raises BakeError if none will do.
    """
    tried: list[TriedPrecision] = []
    for precision in precisions:
        tried.append(_try(precision, max_kl, obstacle, divergence))
        if tried[-1].refused is None:
            return tuple(tried)
    reasons = "; ".join(attempt.text for attempt in tried)
    raise BakeError(f"--precision {AUTO}: none will do: {reasons}")


def _try(
    precision: str,
    max_kl: float,
    obstacle: Callable[[str], str | None],
    divergence: Callable[[str], Divergence],
) -> TriedPrecision:
    refused = obstacle(precision)
    if refused is not None:
        return TriedPrecision(precision=precision, kl=None, positions=0, refused=refused)
    measured = divergence(precision)
    within = measured.mean <= max_kl  # false for NaN
    return TriedPrecision(
        precision=precision,
        kl=measured.mean,
        positions=measured.positions,
        refused=None if within else f"more than --max-kl {max_kl:g}",
    )
