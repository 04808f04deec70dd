"""The prefix caches that the options of an engine ask for."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from hearthd.bundle import answer_identity
from hearthd.server.engine.prefixes.prefix_cache import PrefixCache
from hearthd.server.engine.prefixes.prefix_store import PrefixStore

if TYPE_CHECKING:
    from hearthd.bundle import LanguageManifest, ProgramFile
    from hearthd.server.services.engine_options import EngineOptions


def prefix_cache(
    manifest: LanguageManifest, context: int, options: EngineOptions, store: PrefixStore | None
) -> PrefixCache | None:
    """The prefix cache of a model that is opened with `context` positions; None for no cache."""
    limit = options.cache_ram
    if limit is None:
        limit = manifest.memory_of(context).default_prefix_cache
    return PrefixCache(limit_bytes=limit, store=store) if limit else None


def prefix_store(
    manifest: LanguageManifest, options: EngineOptions, program: ProgramFile | None
) -> PrefixStore | None:
    """The prefix cache on disk of a bundle; None for none."""
    if options.cache_dir is None or options.cache_ram == 0 or not options.cache_disk:
        return None
    identity = bytes.fromhex(answer_identity(manifest))
    if program is not None and program in manifest.other_programs:
        # Programs for different machines may round differently.
        identity = hashlib.sha256(identity + program.file.encode()).digest()
    return PrefixStore(options.cache_dir, bundle=identity, limit_bytes=options.cache_disk)
