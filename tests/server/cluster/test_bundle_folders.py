"""Bundles in folders: how an application is deployed with them, and what replicas reject."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.bundle import (
    MANIFEST,
    REQUEST_MEMORY,
    SHARED_MEMORY,
    SIGNATURE_MEMORY,
    BundleError,
    EntryPoint,
)
from hearthd.runtime.iree.device import CannotLoad
from hearthd.server.cluster import bundles
from hearthd.server.cluster.bundles import BundleFolders, OtherProgram, Replaced
from hearthd.server.services.service import fingerprint
from hearthd.server.settings import BadSettings, Settings
from tests.fake_runtime import FakeRuntime
from tests.server import adapter_folders, encoders, fakes, functions
from tests.server.services.test_programs import OTHER, with_other
from tests.server.speech import speech_services
from tests.server.speech.listeners import tokens

if TYPE_CHECKING:
    from pathlib import Path

    from hearthd.bundle import Manifest


def write(folder: Path, manifest: Manifest) -> Path:
    """A folder with a manifest, which is all that a deployment reads of a bundle."""
    folder.mkdir(exist_ok=True)
    (folder / MANIFEST).write_text(manifest.to_json())
    return folder


def opener(**settings: Any) -> BundleFolders:
    return BundleFolders(Settings(**settings))


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """The bundle of a language model with two places for adapters."""
    manifest = fakes.manifest_of(
        FakeRuntime(vocab_size=300, context=80, adapters=adapter_folders.PLACES)
    )
    entry = EntryPoint(kind="embed", name="embed", tokens=32, batch=1, keys=80)
    footprint = dataclasses.replace(manifest.footprint, calls={entry.name: 0})
    changed = dataclasses.replace(manifest, entry_points=(entry,), footprint=footprint)
    return write(tmp_path / "base", changed)


@pytest.mark.parametrize(
    "manifest", [encoders.service(scores=True).manifest, functions.service().manifest]
)
def test_a_replica_of_functions_takes_the_memory_of_the_bundle(
    tmp_path: Path, manifest: Manifest
) -> None:
    bundle = opener().describe(write(tmp_path / "encoder", manifest))
    assert bundle.name == "encoder"
    assert bundle.memory == SHARED_MEMORY + manifest.own_memory
    assert bundle.chunk == 0
    signed = opener(require_signature=(tmp_path,)).describe(tmp_path / "encoder")
    assert signed.memory == bundle.memory + SIGNATURE_MEMORY


def test_models_of_speech_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "ears", speech_services.manifest(tokens()))
    with pytest.raises(BadSettings, match="Ray serves none"):
        opener().describe(folder)


def test_a_replica_of_a_large_function_takes_the_memory_of_its_calls(tmp_path: Path) -> None:
    manifest = functions.copying(10**7).manifest
    folder = write(tmp_path / "large", manifest)
    small, large = (opener(max_body_bytes=size).describe(folder) for size in (10**6, 10**8))
    assert small.memory == SHARED_MEMORY + manifest.own_memory
    assert large.memory == small.memory + 18 * 10**8 - REQUEST_MEMORY


def test_the_node_that_deploys_chooses_the_context(base: Path) -> None:
    whole = opener().describe(base)
    assert (whole.slots, whole.context) == (1, 80)
    set_ = opener(context=64).describe(base)
    assert set_.context == 64
    assert set_.memory < whole.memory
    with pytest.raises(BundleError, match="--context: got 81, expected at most 80"):
        opener(context=81).describe(base)


def test_functions_have_no_tokenizer(tmp_path: Path) -> None:
    folders = opener()
    parts = folders.open_text(
        folders.describe(write(tmp_path / "gru", functions.service().manifest))
    )
    assert parts.manifest == functions.service().manifest
    assert parts.tokenizer is None


def test_a_folder_with_another_bundle_is_rejected(tmp_path: Path) -> None:
    folders = opener()
    bundle = folders.describe(write(tmp_path / "one", encoders.service(scores=True).manifest))
    write(tmp_path / "one", encoders.service(scores=False).manifest)
    for open_again in (folders.open_text, folders.open_model):
        with pytest.raises(Replaced, match="bake a new version into a folder of its own"):
            open_again(bundle)


def test_replicas_run_the_program_of_the_node_that_deploys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hearthd.runtime.system.cpu_features.this_machine", lambda: "x86_64")
    service = functions.service()
    manifest = with_other(service.manifest)
    folders = opener()
    bundle = folders.describe(write(tmp_path / "gru", manifest))
    assert bundle.program == OTHER
    assert bundle.id.startswith(f"{fingerprint(manifest, OTHER)}:")
    assert folders.open_text(bundle).manifest == manifest
    monkeypatch.setattr(bundles, "open_any", lambda *_: service)
    service.program = manifest.programs[0]
    with pytest.raises(
        OtherProgram, match=r"gru: .* program for host, .* the one for x86_64-amx, .*; deploy one"
    ):
        folders.open_model(bundle)
    service.program = OTHER
    assert folders.open_model(bundle) is service


def test_adapters_have_the_places_and_digests_that_replicas_give_them(
    tmp_path: Path, base: Path
) -> None:
    for seed, name in enumerate(("sql", "json")):
        adapter_folders.write(tmp_path / name, adapter_folders.tensors(seed))
    bundle = opener(lora=[f"{tmp_path}/sql", f"{tmp_path}/json=objects"]).describe(base)
    service = fakes.fake_service(fakes.gemma_like(), adapters=adapter_folders.PLACES)
    service.open_adapters({"sql": tmp_path / "sql", "objects": tmp_path / "json"})
    facts = [(one.place, one.name, one.digest, one.factor) for one in service.adapters]
    assert [(one.place, one.name, one.digest, one.factor) for one in bundle.adapters] == facts


def test_other_adapters_are_another_version(tmp_path: Path, base: Path) -> None:
    adapter_folders.write(tmp_path / "old" / "sql", adapter_folders.tensors(1))
    adapter_folders.write(tmp_path / "new" / "sql", adapter_folders.tensors(2))
    versions = [
        opener(lora=lora).describe(base)
        for lora in ([], [f"{tmp_path}/old/sql"], [f"{tmp_path}/new/sql"])
    ]
    assert len({bundle.id for bundle in versions}) == len(versions)


def test_an_adapter_that_does_not_fit_is_not_deployed(tmp_path: Path, base: Path) -> None:
    wide = adapter_folders.tensors(1, rank=2 * adapter_folders.RANK)
    adapter_folders.write(tmp_path / "wide", wide, rank=2 * adapter_folders.RANK)
    with pytest.raises(CannotLoad, match=re.escape("lora: ")):
        opener(lora=[f"{tmp_path}/wide"]).describe(base)
