"""The bundles of a cluster: their ids, and how fronts and model replicas open them.

The id of a bundle is its fingerprint and its folder, so two versions of a bundle have two ids.
Every node must have the folder at the same path.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from models.bundle import BundleError, LanguageManifest, read_manifest_of, require_signed_files
from server.open_service import open_model
from server.services.language_service import open_template, open_tokenizer
from server.services.service import fingerprint
from server.setting_files import read_signing_keys, read_template

if TYPE_CHECKING:
    from server.services.language_service import LocalLanguageService
    from server.settings import Settings
    from server.text.templates.chat_template import ChatTemplate
    from server.text.tokenizer import Tokenizer


class Replaced(BundleError):
    """The folder holds another bundle than it did when the application was deployed."""


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """A bundle, as the application was deployed with it.

    id      the fingerprint and the folder; Ray's id of a multiplexed model
    name    the name of the model in the API
    slots   requests that one replica runs at a time
    chunk   tokens of a block of the prefix cache
    memory  the memory that serving takes, in bytes
    """

    id: str
    name: str
    slots: int
    chunk: int
    memory: int


@dataclass(frozen=True)
class TextParts:
    """The parts of a bundle that a front opens: all but the program and the weights."""

    manifest: LanguageManifest
    tokenizer: Tokenizer
    template: ChatTemplate | None


class Bundles(Protocol):
    """How to open bundles. Pickled, and sent to every front and replica."""

    def open_model(self, bundle: Bundle) -> LocalLanguageService:
        """Open a bundle in a model replica; raises BundleError."""

    def open_text(self, bundle: Bundle) -> TextParts:
        """Open a bundle in a front; raises BundleError."""


@dataclass(frozen=True)
class BundleFolders:
    """Bundles in folders, opened with the settings of `hearth serve`."""

    settings: Settings

    def describe(self, folder: Path) -> Bundle:
        """The bundle in a folder; raises BundleError, also if it exceeds the memory limit."""
        settings = self.settings
        manifest = read_manifest_of(folder, LanguageManifest)
        slots, cache = manifest.slots, int(settings.cache_ram)
        limit = settings.max_memory or manifest.max_memory
        if limit is not None:
            admitted = manifest.memory.admit(limit, slots=slots, prefix_cache=cache)
            slots, cache = admitted.slots, admitted.prefix_cache
        return Bundle(
            id=f"{fingerprint(manifest)}:{folder.resolve()}",
            name=next(iter(settings.names), folder.resolve().name),
            slots=slots,
            chunk=max(entry.tokens for entry in manifest.entry_points if entry.kind == "prefill"),
            memory=manifest.memory.needed(slots, cache),
        )

    def open_model(self, bundle: Bundle) -> LocalLanguageService:
        """As Bundles.open_model."""
        folder = self._folder(bundle)
        settings = self.settings.model_copy(update={"max_memory": bundle.memory})
        return open_model(settings, folder, bundle.name)

    def open_text(self, bundle: Bundle) -> TextParts:
        """As Bundles.open_text."""
        folder = self._folder(bundle)
        if keys := read_signing_keys(self.settings):
            require_signed_files(folder, keys)
        manifest = read_manifest_of(folder, LanguageManifest)
        tokenizer = open_tokenizer(folder, manifest)
        template = read_template(self.settings)
        return TextParts(
            manifest, tokenizer, open_template(folder, manifest, tokenizer, instead=template)
        )

    def _folder(self, bundle: Bundle) -> Path:
        deployed, _, folder = bundle.id.partition(":")
        current = fingerprint(read_manifest_of(Path(folder), LanguageManifest))
        if current != deployed:
            raise Replaced(
                f"{folder}: holds another bundle than it did when the application was deployed: "
                f"got {current}, expected {deployed}; bake a new version into a folder of its own"
            )
        return Path(folder)
