"""The bundles of a cluster: their ids, and how fronts and model replicas open them.

The id of a bundle has its fingerprint, a digest of its adapters and its folder, so two versions of
a bundle have two ids. Every node must have the folders of bundle and adapters at the same paths.
All replicas run one of its programs: the best for the node where the application is deployed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from typing_extensions import override

from hearthd.bundle import (
    SHARED_MEMORY,
    Admitted,
    BundleError,
    EncoderManifest,
    LanguageManifest,
    SpeechManifest,
    read_manifest,
    require_signed_files,
)
from hearthd.runtime.system.cpu_features import best_program
from hearthd.server.lora.loaded_adapters import read_adapters
from hearthd.server.open_service import open_any, signature_memory
from hearthd.server.process.memory_limit import Limit, admit_within
from hearthd.server.services.encoder_service import open_encoder_tokenizer
from hearthd.server.services.language_service import LanguageService, open_template, open_tokenizer
from hearthd.server.services.service import fingerprint
from hearthd.server.setting_files import adapter_folders, read_signing_keys, read_template
from hearthd.server.settings import BadSettings

if TYPE_CHECKING:
    from hearthd.bundle import Manifest, ProgramFile
    from hearthd.server.lora.adapters import Adapter
    from hearthd.server.services.service import Service
    from hearthd.server.settings import Settings
    from hearthd.text.templates.chat_template import ChatTemplate
    from hearthd.text.tokenizer import Tokenizer

# Array functions run one at a time. Ray sends a replica one call more, which then waits for no
# message.
_CALLS = 2


class Replaced(BundleError):
    """A folder holds another bundle or adapter than it did when the application was deployed."""


class OtherProgram(BundleError):
    """This node runs another program of a bundle than the node where it was deployed."""


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """A bundle, as the application was deployed with it.

    id        identifies what is served; Ray's id of a multiplexed model
    name      the name of the model in the API
    slots     requests that a replica accepts at a time
    chunk     tokens of a block of the prefix cache; 0 without one
    memory    the memory that serving takes, in bytes
    context   positions of each slot; None for all that the bundle has
    adapters  the LoRA adapters that each replica loads with it
    program   the program that each replica runs; None if it is not known, as in a test
    """

    id: str
    name: str
    slots: int
    chunk: int
    memory: int
    context: int | None = None
    adapters: tuple[Adapter, ...] = ()
    program: ProgramFile | None = None


@dataclass(frozen=True)
class TextParts:
    """The parts of a bundle that a front opens: all but the program and the weights.

    Array functions have no tokenizer.
    """

    manifest: Manifest
    tokenizer: Tokenizer | None = None
    template: ChatTemplate | None = None


class Bundles(Protocol):
    """How to open bundles. Pickled, and sent to every front and replica."""

    def open_model(self, bundle: Bundle) -> Service:
        """Open a bundle in a model replica; raises BundleError."""

    def open_text(self, bundle: Bundle) -> TextParts:
        """Open a bundle in a front; raises BundleError."""


@dataclass(frozen=True)
class BundleFolders(Bundles):
    """Bundles in folders, opened with the settings of `hearth serve`."""

    settings: Settings

    def describe(self, folder: Path) -> Bundle:
        """The bundle in a folder.

        Raises BundleError, also if it exceeds the memory limit or this node can run none of several
        programs, or BadSettings.
        """
        manifest = read_manifest(folder)
        if isinstance(manifest, SpeechManifest):
            raise BadSettings(
                f"bundle: got a model of speech, {folder}: Ray serves none; use hearth serve"
            )
        program = best_program(manifest) if manifest.other_programs else manifest.programs[0]
        adapters = self._adapters(manifest)
        identity = (fingerprint(manifest, program), _digest(adapters), str(folder.resolve()))
        name = next(iter(self.settings.names), folder.resolve().name)
        context = None
        if isinstance(manifest, LanguageManifest):
            admitted = self._admit(manifest)
            slots, context = admitted.slots, admitted.context
            memory = manifest.memory_of(context).needed(slots, admitted.prefix_cache)
            embeds = (entry for entry in manifest.entry_points if entry.kind == "embed")
            chunk = max(entry.tokens for entry in embeds)
        else:
            slots, chunk = _CALLS, 0
            added = manifest.added_request_memory(self.settings.max_body_bytes)
            memory = SHARED_MEMORY + added + manifest.own_memory
        return Bundle(
            id=":".join(identity),
            name=name,
            slots=slots,
            chunk=chunk,
            memory=memory + signature_memory(self.settings),
            context=context,
            adapters=adapters,
            program=program,
        )

    @override
    def open_model(self, bundle: Bundle) -> Service:
        folder = _folder(bundle)
        settings = self.settings.model_copy(
            update={"max_memory": bundle.memory, "context": bundle.context}
        )
        service = open_any(settings, folder, bundle.name, signature_memory(settings))
        if service.program != bundle.program:
            raise OtherProgram(_other_program(service, bundle))
        loaded = tuple(service.adapters) if isinstance(service, LanguageService) else ()
        if _digest(loaded) != _digest(bundle.adapters):
            raise Replaced(
                "lora: the folders hold other adapters than they did when the application was "
                "deployed; put new versions into folders of their own"
            )
        return service

    @override
    def open_text(self, bundle: Bundle) -> TextParts:
        folder = _folder(bundle)
        if keys := read_signing_keys(self.settings):
            require_signed_files(folder, keys)
        manifest = read_manifest(folder)
        if isinstance(manifest, EncoderManifest):
            return TextParts(manifest, open_encoder_tokenizer(folder, manifest))
        if not isinstance(manifest, LanguageManifest):
            return TextParts(manifest)
        context = manifest.context if bundle.context is None else bundle.context
        tokenizer = open_tokenizer(folder, manifest.opened(slots=bundle.slots, context=context))
        template = read_template(self.settings)
        return TextParts(
            manifest, tokenizer, open_template(folder, manifest, tokenizer, instead=template)
        )

    def _admit(self, manifest: LanguageManifest) -> Admitted:
        """What fits of a language model; raises NotEnoughMemory, or BundleError for a context.

        Without a limit, the context is chosen for the memory of this node.
        """
        settings, limit = self.settings, self.settings.max_memory or manifest.max_memory
        return admit_within(
            manifest,
            None
            if limit is None
            else Limit(bytes=limit - signature_memory(settings), source="--max-memory"),
            prefix_cache=settings.cache_ram,
            context=settings.context,
        )

    def _adapters(self, manifest: Manifest) -> tuple[Adapter, ...]:
        """The adapters of the settings at the places that every replica gives them."""
        if not isinstance(manifest, LanguageManifest):
            return ()
        folders, keys = adapter_folders(self.settings), read_signing_keys(self.settings)
        return tuple(adapter for adapter, _ in read_adapters(folders, manifest.adapters, keys))


def _digest(adapters: tuple[Adapter, ...]) -> str:
    """A digest of the files and names of adapters; empty without any."""
    parts = b"".join(adapter.digest + adapter.name.encode() + b"\0" for adapter in adapters)
    return hashlib.sha256(parts).hexdigest()[:16] if parts else ""


def _folder(bundle: Bundle) -> Path:
    deployed, _, folder = bundle.id.split(":", 2)
    current = fingerprint(read_manifest(Path(folder)), bundle.program)
    if current != deployed:
        raise Replaced(
            f"{folder}: holds another bundle than it did when the application was deployed: "
            f"got {current}, expected {deployed}; bake a new version into a folder of its own"
        )
    return Path(folder)


def _other_program(service: Service, bundle: Bundle) -> str:
    here, there = (
        "none" if program is None else program.target.name
        for program in (service.program, bundle.program)
    )
    return (
        f"{bundle.name}: this node would run the program for {here}, but the application was "
        f"deployed on a node that runs the one for {there}, and their logits may differ; deploy "
        "one application for each kind of CPU, or bake for one target that all nodes run"
    )
