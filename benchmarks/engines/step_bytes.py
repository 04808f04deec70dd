"""The weights that a decode step of a bundle reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hearthd.models.bundle import LanguageManifest


def step_bytes(manifest: LanguageManifest, *, exact: bool) -> int:
    """Bytes of weights that every decode step reads; `exact` if all logits are exact.

    With tied embeddings, the whole table is read as the output head. Without `exact`, a step reads
    few blocks of the arrays that refine the head, which do not count.
    """
    refining = 0 if exact else manifest.statistics["refining_bytes"]
    return manifest.statistics["weights_bytes"] - refining
