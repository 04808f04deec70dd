"""Who limits memory, what is opened under a limit, and where weights are."""

from __future__ import annotations

import contextlib
import resource
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hearthd.bundle import (
    PARAMETERS,
    SIGNATURE_MEMORY,
    TOKENIZER,
    Admitted,
    LanguageManifest,
    NotABundle,
    NotEnoughMemory,
    Serving,
    read_manifest_of,
    read_public_key,
)
from hearthd.runtime.language_model import IreeRuntime
from hearthd.server.open_service import open_model
from hearthd.server.process import memory_limit as memory
from hearthd.server.process.memory_limit import Limit, admit, memory_limit
from hearthd.server.services.language_service import EngineOptions, open_language_service
from hearthd.server.settings import Settings
from tests.bundle.signed_folders import SigningKey
from tests.server import fakes, tiny

NO_LIMIT_V1 = "9223372036854771712"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bundles") / "tiny"


@pytest.fixture(scope="module")
def manifest(bundle: Path) -> LanguageManifest:
    return tiny.write_bundle(bundle)


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system without limits: the folder of its control groups."""
    (tmp_path / "own").write_text("")
    monkeypatch.setattr(memory, "_CGROUPS", tmp_path)
    monkeypatch.setattr(memory, "_PROCESS_CGROUPS", tmp_path / "own")
    monkeypatch.setattr(memory, "_RESOURCES", {})
    return tmp_path


def say(system: Path, groups: str, files: dict[str, str]) -> None:
    (system / "own").write_text(groups)
    for name, text in files.items():
        (system / name).parent.mkdir(parents=True, exist_ok=True)
        (system / name).write_text(text + "\n")


@pytest.mark.parametrize(
    ("groups", "files", "lowest"),
    [
        ("0::/\n", {"memory.max": "max"}, None),
        ("0::/\n", {"memory.max": "500"}, "memory.max"),
        ("0::/a/b\n", {"a/memory.max": "300", "a/b/memory.max": "max"}, "a/memory.max"),
        ("0::/a/b\n", {"a/memory.max": "300", "a/b/memory.max": "200"}, "a/b/memory.max"),
        ("4:memory:/\n0::/\n", {"memory/memory.limit_in_bytes": NO_LIMIT_V1}, None),
        (
            "9:cpu,memory:/a\n",
            {"memory/a/memory.limit_in_bytes": "700"},
            "memory/a/memory.limit_in_bytes",
        ),
        # A container, whose own group has another name outside.
        (
            "4:memory:/docker/0af\n",
            {"memory/memory.limit_in_bytes": "800"},
            "memory/memory.limit_in_bytes",
        ),
        ("3:cpu:/a\n", {"cpu/a/memory.limit_in_bytes": "1"}, None),
    ],
)
def test_the_lowest_limit_of_a_control_group_and_its_parents_counts(
    system: Path, groups: str, files: dict[str, str], lowest: str | None
) -> None:
    say(system, groups, files)
    limit = memory_limit(None, None)
    if lowest is None:
        assert limit is None
    else:
        assert limit == Limit(bytes=int(files[lowest]), source=str(system / lowest))


@pytest.mark.usefixtures("system")
def test_the_operators_limit_replaces_the_bakers_and_the_lowest_counts(system: Path) -> None:
    assert memory_limit(None, 900) == Limit(bytes=900, source="hearth bake --max-memory")
    assert memory_limit(1000, 900) == Limit(bytes=1000, source="--max-memory")
    say(system, "0::/\n", {"memory.max": "950"})
    assert memory_limit(1000, 900) == Limit(bytes=950, source=str(system / "memory.max"))
    assert memory_limit(940, None) == Limit(bytes=940, source="--max-memory")


def test_ulimit_counts() -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_DATA, (2**33, 2**33)); "
        "from hearthd.server.process.memory_limit import memory_limit; "
        "print(memory_limit(2**40, None))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert resource.RLIM_INFINITY in resource.getrlimit(resource.RLIMIT_DATA)
    assert f"bytes={2**33}, source='ulimit -d'" in said.stdout


@pytest.mark.usefixtures("system")
def test_slots_and_cache_are_reduced_to_fit(manifest: LanguageManifest) -> None:
    sizes = manifest.memory
    assert admit(manifest, max_memory=None, prefix_cache=99) == Admitted(slots=4, prefix_cache=99)
    asked = sizes.needed(2, sizes.block)
    assert admit(manifest, max_memory=asked, prefix_cache=10**6) == Admitted(
        slots=2, prefix_cache=sizes.block
    )
    assert admit(manifest, max_memory=asked - 1, prefix_cache=10**6).prefix_cache == 0
    with pytest.raises(NotEnoughMemory, match=r"the limit is --max-memory\); raise it, or bake"):
        admit(manifest, max_memory=sizes.needed(1) - 1, prefix_cache=0)


@pytest.mark.usefixtures("system")
def test_the_bakers_limit_counts(manifest: LanguageManifest) -> None:
    serving = Serving(activations="int16", max_memory=manifest.memory.needed(3))
    baked = replace(manifest, serving=serving)
    assert admit(baked, max_memory=None, prefix_cache=0).slots == 3


@pytest.mark.usefixtures("system", "manifest")
def test_checking_signatures_takes_memory(bundle: Path, tmp_path: Path) -> None:
    signed = shutil.copytree(bundle, tmp_path / "signed")
    fakes.gemma_like().save(str(signed / TOKENIZER))
    manifest = read_manifest_of(signed, LanguageManifest)
    signer = SigningKey(tmp_path / "keys")
    signer.sign(signed)
    key, needed = read_public_key(signer.public), manifest.memory.needed(1)
    for missing in (0, 1):
        options = EngineOptions(keys=(key,), max_memory=needed + SIGNATURE_MEMORY - missing)
        with pytest.raises(NotEnoughMemory) if missing else contextlib.nullcontext():
            open_language_service(signed, options=options, threads=1)


def test_an_entry_point_without_a_size_is_named(manifest: LanguageManifest) -> None:
    bad = replace(manifest, footprint=replace(manifest.footprint, calls={}))
    with pytest.raises(NotABundle, match=r"footprint\.calls\.decode_1: missing field"):
        admit(bad, max_memory=None, prefix_cache=0)


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_with_fewer_slots_every_batch_fits(
    bundle: Path, manifest: LanguageManifest, slots: int
) -> None:
    runtime = IreeRuntime(bundle, manifest.with_slots(slots), threads=1)
    assert runtime.slots == slots
    assert runtime.batch == (3 if slots == 3 else 1)
    for slot in range(slots):
        runtime.prefill(slot, [slot], 0)
        logits = runtime.decode([slot], [6 - slot], [1])[0]
        np.testing.assert_allclose(logits, tiny.expected([slot, 6 - slot]), rtol=1e-5, atol=1e-5)
    assert len(runtime._caches) == slots


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.usefixtures("manifest")
def test_weights_are_mapped_or_in_memory(bundle: Path, mmap: bool) -> None:
    fakes.gemma_like().save(str(bundle / TOKENIZER))
    service = open_model(Settings(bundle=(bundle,), threads=1, mmap=mmap), bundle, "tiny")
    maps = Path("/proc/self/maps").read_text("utf-8")
    assert (str((bundle / PARAMETERS).resolve()) in maps) is mmap
    del service
