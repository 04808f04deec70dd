"""What a server of experts that are larger than memory says about its speed when it starts."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from hearthd.bundle import PARAMETERS, megabytes
from hearthd.runtime.disk_speed import disk_speed
from hearthd.runtime.operating_system import physical_memory
from hearthd.server.process.memory_limit import memory_limit

if TYPE_CHECKING:
    from pathlib import Path

    from hearthd.bundle import Admitted, LanguageManifest

log = logging.getLogger(__name__)


def log_expected_speed(
    bundle: Path,
    manifest: LanguageManifest,
    admitted: Admitted,
    max_memory: int | None,
    reserved: int,
) -> None:
    """Log what a token reads from the file, and how fast that is; nothing for other bundles.

    `max_memory` and `reserved` as in `admit`.
    """
    weights = manifest.footprint
    if not weights.experts:
        return
    limit = memory_limit(max_memory, manifest.max_memory, reserved)
    needed = manifest.memory_of(admitted.context).needed(admitted.slots, admitted.prefix_cache)
    spare = (physical_memory() if limit is None else limit.bytes) - needed + weights.token_experts
    missed = weights.missed(spare)
    text = f"{megabytes(spare)} MB of memory for {megabytes(weights.experts)} MB"
    if not missed:
        log.info("experts: %s; a token reads nothing from the file", text)
        return
    speed = disk_speed(bundle / PARAMETERS)
    log.info(
        "experts: %s; a token reads up to %s MB from the file%s",
        text,
        megabytes(missed),
        ""
        if speed is None
        else f", at {megabytes(int(speed))} MB/s: expect at most {speed / missed:.2g} tokens/s",
    )
