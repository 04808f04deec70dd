"""Open the bundle that the settings name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from models.bundle import ArraysManifest, read_manifest
from server.services.array_service import open_array_service
from server.services.language_service import EngineOptions, open_language_service
from server.settings import read_template, reject_language_only

if TYPE_CHECKING:
    from server.services.language_service import LocalLanguageService
    from server.services.service import Service
    from server.settings import Loaded, Settings


def open_service(loaded: Loaded) -> Service:
    """Open the bundle as the service for its kind: a language model or array functions.

    Raises BundleError, CannotStore or BadSettings.
    """
    settings = loaded.settings
    if not isinstance(read_manifest(settings.bundle), ArraysManifest):
        return open_model(settings)
    reject_language_only(loaded)
    return open_array_service(
        settings.bundle,
        threads=settings.threads,
        queue_limit=settings.queue_limit,
        name=settings.alias,
        level=settings.self_test,
    )


def open_model(settings: Settings) -> LocalLanguageService:
    """Open the bundle of a language model; raises as open_service."""
    return open_language_service(
        settings.bundle,
        threads=settings.threads,
        name=settings.alias,
        level=settings.self_test,
        chat_template=read_template(settings),
        options=EngineOptions(
            queue_limit=settings.queue_limit,
            speculation=settings.speculation,
            exact_logits=settings.logits == "exact",
            cache_ram=settings.cache_ram,
            cache_dir=settings.cache_dir,
            cache_disk=settings.cache_disk,
            max_memory=settings.max_memory,
        ),
    )
