"""`--precision auto`: the fastest precision that fits and is close enough to F32.

This module has the order, the limits and the error message; callers check and measure each
precision. The order of speed follows from the bytes and kernels of a precision; it is not measured.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hearthd.baker.atomic_folder import BakeError
from hearthd.bundle import TriedPrecision
from hearthd.models.precision import PRECISIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hearthd.baker.precision.kl_from_f32 import Divergence

AUTO = "auto"
# The default limit of the mean KL divergence from F32, in nats: about llama.cpp's with Q8_0.
MAX_KL = 0.0035


def by_speed(instructions: str | None) -> tuple[str, ...]:
    """The names of whole precisions, the fastest first, for kernels that use these instructions.

    Those that a calibration text rounds are not among them.
    """
    portable = instructions == "portable"
    ranked = sorted(
        (precision for precision in PRECISIONS.values() if not precision.calibrated),
        key=lambda precision: precision.speed_without if portable else precision.speed,
    )
    return tuple(precision.name for precision in ranked)


def choose(
    precisions: Sequence[str],
    *,
    max_kl: float,
    obstacle: Callable[[str], str | None],
    divergence: Callable[[str], Divergence],
) -> tuple[TriedPrecision, ...]:
    """Try the precisions in order until one qualifies; return all attempts, that one last.

    `obstacle` returns the reason why a precision cannot be baked or served, or None. The
    `divergence` of the others is measured, which is slow. Raises BakeError if none qualifies.
    """
    tried: list[TriedPrecision] = []
    for precision in precisions:
        refused = obstacle(precision)
        if refused is not None:
            tried.append(not_measured(precision, refused))
            continue
        tried.append(attempt(precision, divergence(precision), max_kl))
        if tried[-1].refused is None:
            return tuple(tried)
    reasons = "; ".join(attempt.text for attempt in tried)
    raise BakeError(f"--precision {AUTO}: no precision qualifies: {reasons}")


def not_measured(precision: str, refused: str) -> TriedPrecision:
    """A precision that was refused before its divergence was measured."""
    return TriedPrecision(precision=precision, kl=None, positions=0, refused=refused)


def attempt(precision: str, measured: Divergence, max_kl: float = math.inf) -> TriedPrecision:
    """A precision that was measured; refused if its divergence exceeds `max_kl`."""
    within = measured.mean <= max_kl  # false for NaN
    return TriedPrecision(
        precision=precision,
        activations=measured.activations,
        kl=measured.mean,
        positions=measured.positions,
        refused=None if within else f"more than --max-kl {max_kl:g}",
    )
