"""Experts that are larger than memory: the memory that a server has for them, and its speed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from hearthd.bundle import PARAMETERS, megabytes
from hearthd.runtime.system.disk_speed import disk_speed
from hearthd.server.process.memory_limit import memory_limit, model_memory

if TYPE_CHECKING:
    from pathlib import Path

    from hearthd.bundle import Admitted, Footprint, LanguageManifest

log = logging.getLogger(__name__)


def expert_memory(
    bundle: Path,
    manifest: LanguageManifest,
    admitted: Admitted,
    max_memory: int | None,
    reserved: int = 0,
    models: int = 1,
) -> int:
    """The bytes that the memory has for experts that are larger than it; 0 for other bundles.

    Logs them, what a token reads from the file, and how fast that is.
    `max_memory`, `reserved` and `models` as in `admit`.
    """
    weights = manifest.footprint
    if not weights.experts:
        return 0
    limit = memory_limit(max_memory, manifest.max_memory, reserved)
    needed = manifest.memory_of(admitted.context).needed(admitted.slots, admitted.prefix_cache)
    spare = max(0, model_memory(limit, reserved, models) - needed)
    memory = min(weights.experts, weights.token_experts + spare)
    _log_expected_speed(bundle, weights, memory)
    return memory


def _log_expected_speed(bundle: Path, weights: Footprint, memory: int) -> None:
    missed = weights.missed(memory)
    text = f"{megabytes(memory)} MB of memory for {megabytes(weights.experts)} MB"
    if not missed:
        log.info("experts: %s; a token reads nothing from the file", text)
        return
    speed, expected = disk_speed(bundle / PARAMETERS), ""
    if speed is not None:
        expected = (
            f", at {megabytes(int(speed))} MB/s: expect about {speed / missed:.2g} tokens/s, and "
            "more where a text repeats experts"
        )
    log.info(
        "experts: %s; a token reads up to %s MB from the file%s", text, megabytes(missed), expected
    )
