"""Open the bundles that the settings name: as a pool of models, or as one service."""

from __future__ import annotations

import contextlib
import functools
import logging
from typing import TYPE_CHECKING

from hearthd.bundle import (
    FETCHED_MEMORY,
    SHARED_MEMORY,
    SIGNATURE_MEMORY,
    ArraysManifest,
    BundleError,
    EncoderManifest,
    LanguageManifest,
    SpeechManifest,
    bundle_home,
    read_manifest,
    require_signed_manifest,
)
from hearthd.runtime.system.operating_system import physical_memory
from hearthd.server.api.stored.store import limit_in_memory
from hearthd.server.errors import ModelNotFound, NotReloaded
from hearthd.server.process.connection_memory import memory_of_connections
from hearthd.server.process.memory_limit import memory_limit
from hearthd.server.services.array_service import FunctionsOptions, open_array_service
from hearthd.server.services.deployment import Deployment
from hearthd.server.services.encoder_service import open_encoder_service
from hearthd.server.services.engine_options import EngineOptions
from hearthd.server.services.language_service import open_language_service
from hearthd.server.services.model_pool import ModelPool
from hearthd.server.services.speech_service import open_speech_service
from hearthd.server.setting_files import adapter_folders, read_signing_keys, read_template
from hearthd.server.settings import BadSettings
from hearthd.text.text_request import SAMPLING_FIELDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from hearthd.bundle import AnyManifest, Manifest
    from hearthd.server.services.language_service import LocalLanguageService
    from hearthd.server.services.service import Service
    from hearthd.server.settings import LoadedSettings, Settings

log = logging.getLogger(__name__)

_LANGUAGE_ONLY = (
    "speculation", "logits", "max_memory", "context", "overflow", "cache_ram", "cache_dir",
    "cache_disk", "fetch_images", "state_dir", "state_size", "chat_template", "chat_template_file",
    "lora", "lora_dir", *SAMPLING_FIELDS,
)  # fmt: skip


def open_pool(loaded: LoadedSettings, stored_memory: int = 0) -> ModelPool:
    """The models of the bundles that the settings name, opened as ModelPool.open does.

    Stored responses take `stored_memory` bytes of the process's memory.

    Raises BundleError, CannotStore or BadSettings.
    """
    settings = loaded.settings
    read_signing_keys(settings)
    limit = memory_limit(settings.max_memory, None)
    fetched_memory = FETCHED_MEMORY if settings.fetch_images else 0
    deployments = [_deployment(loaded, *named) for named in _named_folders(settings).items()]
    is_limited = limit is not None or any(_baked_limit(each.manifest) for each in deployments)
    try:
        pool = ModelPool(
            deployments,
            find=functools.partial(_find, loaded),
            memory=limit.bytes if limit else physical_memory(),
            reserved_memory=stored_memory + signature_memory(settings) + fetched_memory,
            max_body_bytes=settings.max_body_bytes,
            pinned=settings.pin,
            models_max=settings.models_max,
            autoload=settings.models_autoload,
            queue_limit=settings.queue_limit,
            connection_memory=memory_of_connections(is_limited=is_limited),
        )
    except ModelNotFound as error:
        raise BadSettings(f"pin: {error}") from None
    pool.open()
    return pool


def _baked_limit(manifest: Manifest | None) -> int | None:
    return manifest.max_memory if isinstance(manifest, LanguageManifest) else None


def signature_memory(settings: Settings) -> int:
    """Bytes of the process that checking signatures takes."""
    return SIGNATURE_MEMORY if settings.require_signature else 0


def state_size(loaded: LoadedSettings) -> int:
    """Bytes of stored responses: less than --state-size if a slot of a model would not fit then.

    Raises BadSettings.
    """
    settings = loaded.settings
    limit = memory_limit(settings.max_memory, None)
    if settings.state_dir or limit is None:
        return settings.state_size
    needed = 0
    for folder in bundle_folders(settings):
        with contextlib.suppress(BundleError):  # open_pool says what is wrong with it
            needed = max(needed, _smallest(_manifest(loaded, folder)))
    size = min(settings.state_size, limit_in_memory(limit.bytes - needed))
    if size < settings.state_size and needed <= limit.bytes:  # otherwise the model says more
        log.warning(
            "stored responses take at most %d bytes, as memory allows (limit: %s): set a smaller "
            "--state-size, or --state-dir to keep them in a file",
            size,
            limit.source,
        )
    return size


def _smallest(manifest: AnyManifest) -> int:
    """Bytes of memory in which a bundle can be served."""
    if isinstance(manifest, LanguageManifest):
        return manifest.memory_of(manifest.min_context).needed(1)
    return SHARED_MEMORY + manifest.own_memory


def _named_folders(settings: Settings) -> dict[str, Path]:
    """The folders of the bundles by the name of their model; raises BadSettings."""
    folders = list(bundle_folders(settings))
    names = [folder.resolve().name for folder in folders]
    if len(folders) == 1:
        names = [*settings.names, *names][:1]
    elif settings.names:
        raise BadSettings("alias: only valid with one bundle; rename the folders of the bundles")
    elif settings.lora:
        raise BadSettings("lora: only valid with one bundle; set --lora-dir and load adapters")
    if repeated := {name for name in names if names.count(name) > 1}:
        raise BadSettings(
            f"bundle: several folders have the name {min(repeated)!r}; a model has the name of its "
            "bundle's folder"
        )
    return dict(zip(names, folders, strict=True))


def _find(loaded: LoadedSettings) -> dict[str, Callable[[], Deployment]]:
    """The models of the bundles that there are now, by name; raises NotReloaded."""
    try:
        named = _named_folders(loaded.settings)
    except BadSettings as error:
        raise NotReloaded(f"the models stay as they are: {error}") from error
    return {
        name: functools.partial(_deployment, loaded, name, folder)
        for name, folder in named.items()
        if bundle_home.is_bundle(folder)
    }


def bundle_folders(settings: Settings) -> Iterator[Path]:
    """The folders of the bundles: each path, or the bundles in it if it is a folder of bundles.

    Raises BadSettings if there is none.
    """
    if not settings.bundle and not any(bundle_home.bundles_in(settings.home)):
        raise BadSettings(
            "MODEL is missing: give a GGUF file, a Hugging Face folder, hf:ORG/REPO on the hub, "
            f"or a bundle; --home ({settings.home}) has no bundle"
        )
    for path in settings.bundle or [bundle_home.expanded(settings.home)]:
        folder = bundle_home.find_bundle(path, settings.home)
        inside = list(bundle_home.bundles_in(folder))
        yield from [folder] if bundle_home.is_bundle(folder) or not inside else inside


def open_service(loaded: LoadedSettings, bundle: Path, name: str, reserved: int = 0) -> Service:
    """Open a bundle as the service for its kind: a language model, an encoder or array functions.

    `name` is the model's name. Other models of this process take `reserved` bytes. Raises
    BundleError, CannotStore or BadSettings.
    """
    if isinstance(_manifest(loaded, bundle), ArraysManifest):
        reject_language_only(loaded, bundle)
    return open_any(loaded.settings, bundle, name, reserved)


def reject_language_only(loaded: LoadedSettings, bundle: Path) -> None:
    """Raise BadSettings if a setting is set that only language models have."""
    for name in _LANGUAGE_ONLY:
        if name in loaded.origins:
            raise BadSettings(
                f"{name}: only valid for language models; {bundle} contains none (from "
                f"{loaded.source(name)})"
            )


def _manifest(loaded: LoadedSettings, bundle: Path) -> AnyManifest:
    """The manifest of a bundle; if there is no such folder, the error lists similar names."""
    if not bundle.exists():
        raise bundle_home.unknown_bundle(bundle, loaded.settings.home)
    return read_manifest(bundle)


def open_any(settings: Settings, bundle: Path, name: str, reserved: int = 0) -> Service:
    """As open_service; settings that only language models have are ignored for other bundles."""
    manifest = read_manifest(bundle)
    if not isinstance(manifest, ArraysManifest):
        return open_model(settings, bundle, name, reserved)
    opened: Callable[[Path, FunctionsOptions], Service] = open_array_service
    if isinstance(manifest, EncoderManifest):
        opened = open_encoder_service
    elif isinstance(manifest, SpeechManifest):
        opened = open_speech_service
    options = FunctionsOptions(
        threads=settings.threads,
        queue_limit=settings.queue_limit,
        name=name,
        level=settings.self_test,
        keys=read_signing_keys(settings),
    )
    return opened(bundle, options)


def open_model(
    settings: Settings, bundle: Path, name: str, reserved: int = 0
) -> LocalLanguageService:
    """Open the bundle of a language model; arguments and errors as in open_service."""
    return open_language_service(
        bundle,
        threads=settings.threads,
        name=name,
        level=settings.self_test,
        chat_template=read_template(settings),
        reserved=reserved,
        mapped=settings.mmap,
        options=EngineOptions(
            queue_limit=settings.queue_limit,
            speculation=settings.speculation,
            exact_logits=settings.logits == "exact",
            cache_ram=settings.cache_ram,
            cache_dir=settings.cache_dir,
            cache_disk=settings.cache_disk,
            max_memory=settings.max_memory,
            context=settings.context,
            overflow=settings.overflow,
            fetch_images=settings.fetch_images,
            models=len(list(bundle_folders(settings))),
            lora=adapter_folders(settings),
            lora_dir=settings.lora_dir,
            keys=read_signing_keys(settings),
            sampling=settings.sampling,
        ),
    )


def _deployment(loaded: LoadedSettings, name: str, folder: Path) -> Deployment:
    """The deployment of a folder. One that is not a signed bundle fails, with the reason."""
    settings = loaded.settings
    open_bundle = functools.partial(open_service, loaded, folder, name)
    deployment = Deployment(
        name,
        open_bundle,
        folder=folder,
        aliases=settings.names,
        tags=settings.tags,
        idle_timeout=settings.idle_timeout,
        template=settings.chat_template is not None or settings.chat_template_file is not None,
    )
    try:
        manifest = _manifest(loaded, folder)
        if keys := read_signing_keys(settings):
            require_signed_manifest(folder, manifest, keys)
        deployment.manifest = manifest
    except (BundleError, BadSettings) as error:
        deployment.fail(error)
    return deployment
