"""The entry points of a language model and their compiled functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hearthd.runtime.interface import NO_TOKEN

if TYPE_CHECKING:
    from collections.abc import Sequence

    import iree.runtime as rt
    from numpy.typing import NDArray

    from hearthd.bundle import EntryPoint, LanguageManifest
    from hearthd.runtime.iree.device import Device


@dataclass(frozen=True)
class Call:
    """An entry point, its compiled function, and its variant for adapters, if any."""

    entry: EntryPoint
    function: rt.VmFunction
    adapted: rt.VmFunction | None


def calls_of(manifest: LanguageManifest, device: Device) -> list[Call]:
    """The entry points that read tokens, each with its variant for adapters."""
    points = manifest.entry_points
    adapted = {_shape(point): point.name for point in points if point.adapters}

    def function(name: str | None) -> rt.VmFunction | None:
        return None if name is None else device.function(name)

    return [
        Call(point, device.function(point.name), function(adapted.get(_shape(point))))
        for point in points
        if not point.adapters and point.kind not in ("draft", "image", "sound")
    ]


def of_kind(kind: str, calls: Sequence[Call]) -> list[Call]:
    """The calls of a kind, the smallest first."""
    return sorted(
        (call for call in calls if call.entry.kind == kind),
        key=lambda call: (call.entry.batch, call.entry.tokens, call.entry.keys),
    )


def padded_rows(
    entry: EntryPoint, tokens: Sequence[int], rows: NDArray[np.float32] | None, width: int
) -> NDArray[np.float32] | None:
    """A row f32 (width,) for each token of an entry point that reads rows; None for another one."""
    if entry.kind not in ("prefill_rows", "prefill_block"):
        return None
    padded = np.zeros((entry.tokens, width), np.float32)
    if rows is not None:
        has_row = np.equal(tokens, NO_TOKEN)
        assert rows.shape == (has_row.sum(), width), f"{rows.shape} for {has_row.sum()}"
        padded[: len(tokens)][has_row] = rows
    return padded


def _shape(entry: EntryPoint) -> tuple[str, int, int, int]:
    return entry.kind, entry.batch, entry.tokens, entry.keys
