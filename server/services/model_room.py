"""Whether a model can be loaded beside the others, and which one is unloaded for it.

The memory contract: the process and the models that are loaded never exceed `memory` bytes by the
sum in bundle/memory_sum.py.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.bundle import REQUEST_MEMORY, SHARED_MEMORY

if TYPE_CHECKING:
    from hearthd.server.services.deployment import Deployment
    from hearthd.server.services.model_pool import ModelPool


@dataclass(frozen=True)
class ModelRoom:
    """The limits of a pool.

    memory          limit for the process in bytes; None for no limit
    reserved_memory bytes of it that no model takes: of stored responses, for example
    models_max      models that may be loaded at a time; 0 for no limit
    """

    memory: int | None
    reserved_memory: int
    models_max: int

    def reserved(self, pool: ModelPool, deployment: Deployment) -> int:
        """Bytes that other models and no models take, and requests beyond REQUEST_MEMORY."""
        others = sum(other.memory for other in pool if other is not deployment)
        return others + self.reserved_memory + pool.request_memory - REQUEST_MEMORY

    async def make(self, pool: ModelPool, deployment: Deployment) -> None:
        """Unload the least recently used models until this one fits with all its slots.

        Returns also if none is left to unload; the model then gets the memory that there is.
        """
        if deployment.current is not None:
            return
        while self._is_full(pool, deployment):
            loaded = [other for other in pool if other.current and not other.pinned]
            if not loaded:
                return
            await min(loaded, key=lambda other: (other.requests > 0, other.last_used)).unload()

    def _is_full(self, pool: ModelPool, deployment: Deployment) -> bool:
        loaded = sum(other.current is not None for other in pool)
        if self.models_max and loaded >= self.models_max:
            return True
        needed = SHARED_MEMORY + _needed(deployment)
        return self.memory is not None and self.reserved(pool, deployment) + needed > self.memory


def is_unused(deployment: Deployment) -> bool:
    """Whether a loaded model was not used for longer than its `idle_timeout`."""
    service, timeout = deployment.current, deployment.idle_timeout
    if timeout is None or service is None or service.verdict is None:
        return False
    if deployment.pinned or deployment.claimed:
        return False
    if deployment.requests:
        deployment.last_used = time.monotonic()
    return time.monotonic() - deployment.last_used >= timeout


def _needed(deployment: Deployment) -> int:
    """Bytes that the model takes with all its slots and no prefix cache, besides the process's."""
    manifest = deployment.manifest
    return 0 if manifest is None else manifest.own_memory
