"""The memory limit of this process, and what fits in it: slots, context and prefix cache.

    --max-memory, else the limit given to `hearth bake`    set by the operator
    memory limit of the control group, version 1 or 2      set for a container or service
    RLIMIT_AS, RLIMIT_DATA                                 set by `ulimit`

The lowest limit counts. bundle/memory_sum.py computes the memory that serving takes.

Caches take memory as tokens come, so a bundle of `--context auto` has the context of its model, and
the server uses as much of it as the memory allows. Where nothing is limited, that is a part of the
machine's memory, which limits nothing else.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hearthd.bundle import (
    DEFAULT_PREFIX_CACHE,
    SHARED_MEMORY,
    Admitted,
    BundleError,
    NotEnoughMemory,
    longest_context,
    megabytes,
)
from hearthd.runtime.system.available_memory import control_group_limits
from hearthd.runtime.system.operating_system import physical_memory
from hearthd.runtime.system.resource_limits import soft_limit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hearthd.bundle import LanguageManifest

log = logging.getLogger(__name__)

# Of the machine's memory, where no limit is set: the system and other programs need the rest.
_MACHINE_SHARE = 0.75
_STREAMED = "; baked with --max-memory, experts can be larger than memory"
_RESOURCES = {"ulimit -v": "RLIMIT_AS", "ulimit -d": "RLIMIT_DATA"}


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A limit in bytes, and where it is set.

    `counts_reserved` says whether pages count that were never written.
    """

    bytes: int
    source: str
    counts_reserved: bool = False


def admit(
    manifest: LanguageManifest,
    *,
    max_memory: int | None,
    prefix_cache: int | None,
    context: int | None = None,
    reserved: int = 0,
    models: int = 1,
) -> Admitted:
    """Compute how many of a bundle's slots, positions and bytes of prefix cache fit.

    `max_memory` is the operator's limit, `prefix_cache` the largest size of the cache (None: one
    context), `context` the positions of each slot (None: as the bundle and the memory allow),
    `reserved` what other models of this process take, and `models` how many it has. Sizes are in
    bytes. Raises NotEnoughMemory, or BundleError for a context that the bundle does not have.
    """
    limit = memory_limit(max_memory, manifest.max_memory, reserved)
    try:
        admitted = admit_within(
            manifest,
            limit,
            prefix_cache=prefix_cache,
            context=context,
            reserved=reserved,
            models=models,
        )
    except NotEnoughMemory as error:
        source = limit.source if limit else ""
        raise NotEnoughMemory(
            f"{error} (the limit is {source}); raise it, or bake with a shorter --context "
            f"or a smaller --precision{_STREAMED if 'experts' in manifest.config else ''}"
        ) from None
    memory = manifest.memory_of(admitted.context)
    log.info(
        "memory: at most %s%s; %d of %d slots",
        memory.formula(admitted.slots, admitted.prefix_cache),
        f" of {megabytes(limit.bytes)} MB (limit: {limit.source})"
        if limit
        else "; no limit is set",
        admitted.slots,
        manifest.slots,
    )
    log.info("context: %s", _context_text(manifest, admitted.context, given=context is not None))
    return admitted


def admit_within(
    manifest: LanguageManifest,
    limit: Limit | None,
    *,
    prefix_cache: int | None,
    context: int | None = None,
    reserved: int = 0,
    models: int = 1,
) -> Admitted:
    """As `admit`, within a limit. First all slots, then the context, then the prefix cache."""
    slots, longest = manifest.slots, manifest.context if context is None else context
    if longest > manifest.context:
        raise BundleError(
            f"--context: got {longest}, expected at most {manifest.context}, the context of the "
            "bundle; bake it with a longer --context"
        )
    budget = model_memory(limit, reserved, models)
    # The caches of a slot are reserved for the whole context, which `ulimit` counts.
    if manifest.auto_context and context is None and (limit is None or not limit.counts_reserved):
        if limit is not None:
            memory = manifest.memory_of(manifest.min_context)
            slots = memory.admit(limit.bytes, slots=slots, prefix_cache=0).slots
        longest = longest_context(manifest.memory_of, budget, slots=slots, longest=longest)
    memory = manifest.memory_of(longest)
    if prefix_cache is None:
        remaining = max(DEFAULT_PREFIX_CACHE, budget - memory.needed(slots))
        prefix_cache = min(memory.default_prefix_cache, remaining)
    if limit is None:
        return Admitted(slots=slots, context=longest, prefix_cache=prefix_cache)
    return memory.admit(limit.bytes, slots=slots, prefix_cache=prefix_cache)


def _context_text(manifest: LanguageManifest, context: int, *, given: bool) -> str:
    """The context of a slot, and what decided it."""
    if given:
        reason = "--context"
    elif context < manifest.context:
        reason = f"what memory allows of the {manifest.context:,} in the bundle"
    else:
        reason = "all that the bundle has"
    return f"{context:,} tokens per slot, {reason}"


def model_memory(limit: Limit | None, reserved: int, models: int) -> int:
    """The bytes for one of several models within a limit, or of a part of the machine's memory.

    `reserved` and `models` as in `admit`.
    """
    machine = int(_MACHINE_SHARE * physical_memory()) - reserved
    free = machine if limit is None else limit.bytes
    return min(free, SHARED_MEMORY + (free + reserved - SHARED_MEMORY) // models)


def memory_limit(max_memory: int | None, baked: int | None, reserved: int = 0) -> Limit | None:
    """The lowest limit of this process, or None.

    `max_memory` is the operator's limit in bytes. It replaces `baked`, the bundle's limit. Other
    models of this process take `reserved` bytes, which the bundle's limit does not include.
    """
    limits = [*_control_group_limits(), *_resource_limits()]
    if max_memory is not None:
        limits.append(Limit(bytes=max_memory, source="--max-memory"))
    limits = [replace(limit, bytes=limit.bytes - reserved) for limit in limits]
    if max_memory is None and baked is not None:
        limits.append(Limit(bytes=baked, source="hearth bake --max-memory"))
    return min(limits, key=lambda limit: limit.bytes, default=None)


def _control_group_limits() -> Iterator[Limit]:
    return (Limit(bytes=size, source=str(file)) for file, size in control_group_limits())


def _resource_limits() -> Iterator[Limit]:
    for source, limit in _RESOURCES.items():
        if (soft := soft_limit(limit)) is not None:
            yield Limit(bytes=soft, source=source, counts_reserved=True)
