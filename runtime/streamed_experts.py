"""The experts of a bundle that are larger than memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.bundle import BundleError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hearthd.bundle import LanguageManifest


@dataclass(frozen=True, kw_only=True)
class StreamedExperts:
    """Experts that kernels read from their file.

    arrays   the names of their arrays, with the number of experts in each
    memory   bytes for slots
    """

    arrays: Mapping[str, int]
    memory: int


def streamed_experts(
    bundle: Path, manifest: LanguageManifest, memory: int | None
) -> StreamedExperts | None:
    """The experts that kernels read from their file, if any; raises BundleError.

    `memory` is for their slots, in bytes; None: as much as the bundle's own limit allows.
    """
    weights = manifest.footprint
    if not weights.experts:
        return None
    if not weights.expert_arrays:
        raise BundleError(
            f"{bundle}: an earlier version of Hearth baked its experts; bake it again"
        )
    if memory is None:
        needed = manifest.memory_of(manifest.context).needed(manifest.slots)
        memory = (manifest.max_memory or needed) - needed + weights.token_experts
    return StreamedExperts(arrays=weights.expert_arrays, memory=max(memory, weights.token_experts))
