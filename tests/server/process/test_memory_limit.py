"""Who limits memory, what is opened under a limit, and where weights are."""

from __future__ import annotations

import contextlib
import gc
import resource
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ByteSize

from hearthd.bundle import (
    DEFAULT_PREFIX_CACHE,
    FETCHED_MEMORY,
    PARAMETERS,
    SHARED_MEMORY,
    SIGNATURE_MEMORY,
    TOKENIZER,
    Admitted,
    BundleError,
    CacheSpec,
    LanguageManifest,
    NotABundle,
    NotEnoughMemory,
    Serving,
    read_manifest_of,
)
from hearthd.runtime.language_model import IreeRuntime
from hearthd.runtime.system import available_memory
from hearthd.server.api.stored.store import Store
from hearthd.server.open_service import open_model, open_pool, state_size
from hearthd.server.process import memory_limit as memory
from hearthd.server.process.memory_limit import Limit, admit, memory_limit
from hearthd.server.settings import LoadedSettings, Settings
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
    monkeypatch.setattr(available_memory, "CGROUPS", tmp_path)
    monkeypatch.setattr(available_memory, "PROCESS_CGROUPS", tmp_path / "own")
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
    everything = Admitted(slots=4, context=tiny.CONTEXT, prefix_cache=99)
    assert admit(manifest, max_memory=None, prefix_cache=99) == everything
    asked = sizes.needed(2, sizes.block)
    assert admit(manifest, max_memory=asked, prefix_cache=10**6) == Admitted(
        slots=2, context=tiny.CONTEXT, prefix_cache=sizes.block
    )
    assert admit(manifest, max_memory=asked - 1, prefix_cache=10**6).prefix_cache == 0
    with pytest.raises(NotEnoughMemory, match=r"the limit is --max-memory\); raise it, or bake"):
        admit(manifest, max_memory=sizes.needed(1) - 1, prefix_cache=0)


@pytest.mark.usefixtures("system")
def test_the_bakers_limit_counts(manifest: LanguageManifest) -> None:
    serving = Serving(activations="int16", max_memory=manifest.memory.needed(3))
    baked = replace(manifest, serving=serving)
    assert admit(baked, max_memory=None, prefix_cache=0).slots == 3


def long_context(manifest: LanguageManifest, *, auto: bool = True) -> LanguageManifest:
    """A manifest of 100,000 positions with rows of 24 kB; one layer keeps 512 of them."""
    caches = tuple(
        CacheSpec(name=name, rows=rows + 4, width=1000, dtype="f32")
        for name, rows in (("far", 100_000), ("near", 512), ("far", 100_000))
        for name in (f"{name}.key", f"{name}.value")
    )
    serving = Serving(activations="int16", max_memory=None, auto_context=auto)
    return replace(manifest, context=100_000, caches=caches, serving=serving)


@pytest.mark.usefixtures("system")
def test_memory_decides_the_context_of_a_bundle_that_leaves_it_open(
    manifest: LanguageManifest, caplog: pytest.LogCaptureFixture
) -> None:
    opened = long_context(manifest)
    sizes = opened.memory_of(20_224)
    assert sizes.slot == 4 * 4000 * (20_224 + 4) + 2 * 4000 * 516
    limit = sizes.needed(4, sizes.context_blocks)
    with caplog.at_level("INFO"):
        admitted = admit(opened, max_memory=limit, prefix_cache=None)
    assert admitted == Admitted(slots=4, context=20_224, prefix_cache=sizes.context_blocks)
    assert "20,224 tokens per slot, what memory allows of the 100,000" in caplog.text
    assert admit(opened, max_memory=limit - 1, prefix_cache=None).context == 20_224 - 256
    assert admit(opened, max_memory=10**12, prefix_cache=None).context == 100_000
    # A context that a user sets is kept, and takes slots.
    fewer = admit(opened, max_memory=limit, prefix_cache=0, context=40_000)
    assert (fewer.slots, fewer.context) == (2, 40_000)
    with pytest.raises(NotEnoughMemory, match="one slot needs"):
        admit(long_context(manifest, auto=False), max_memory=limit, prefix_cache=0)
    with pytest.raises(BundleError, match="--context: got 100001, expected at most 100000"):
        admit(opened, max_memory=None, prefix_cache=0, context=100_001)


@pytest.mark.usefixtures("system")
def test_too_little_for_the_shortest_context_takes_slots(manifest: LanguageManifest) -> None:
    opened = long_context(manifest)
    limit = opened.memory_of(2048).needed(3) + 1
    assert admit(opened, max_memory=limit, prefix_cache=None).slots == 3
    assert admit(opened, max_memory=limit, prefix_cache=None).context == 2048
    with pytest.raises(NotEnoughMemory, match="the limit is --max-memory"):
        admit(opened, max_memory=opened.memory_of(2048).needed(1) - 1, prefix_cache=None)


@pytest.mark.usefixtures("system")
def test_without_a_limit_the_context_and_the_cache_fit_in_the_machine(
    manifest: LanguageManifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = long_context(manifest)
    sizes = opened.memory_of(20_224)
    needed = sizes.needed(4, sizes.context_blocks)
    monkeypatch.setattr(memory, "physical_memory", lambda: needed * 4 // 3 + 4)
    assert admit(opened, max_memory=None, prefix_cache=None).context == 20_224
    # Two models share the memory that is not of the process.
    shared = admit(opened, max_memory=None, prefix_cache=None, models=2).context
    assert 2048 < shared < 20_224 * 0.6
    half = needed // 2
    reserved = admit(opened, max_memory=None, prefix_cache=None, reserved=half, models=2)
    assert reserved.context <= shared
    # What a bundle fixes is served, and the prefix cache is what is left, if that is more.
    fixed = long_context(manifest, auto=False)
    assert admit(fixed, max_memory=None, prefix_cache=None) == Admitted(
        slots=4, context=100_000, prefix_cache=DEFAULT_PREFIX_CACHE
    )


@pytest.mark.usefixtures("system")
def test_a_limit_that_counts_reserved_pages_takes_slots(
    manifest: LanguageManifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = long_context(manifest)
    limit = opened.memory.needed(2)
    monkeypatch.setattr(memory, "_RESOURCES", {"ulimit -v": "RLIMIT_AS"})
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    admitted = admit(opened, max_memory=None, prefix_cache=0)
    assert (admitted.slots, admitted.context) == (2, 100_000)


@pytest.mark.usefixtures("system", "manifest")
def test_checking_signatures_and_downloading_images_take_memory(
    bundle: Path, tmp_path: Path
) -> None:
    signed = shutil.copytree(bundle, tmp_path / "signed")
    fakes.gemma_like().save(str(signed / TOKENIZER))
    manifest = read_manifest_of(signed, LanguageManifest)
    signer = SigningKey(tmp_path / "keys")
    signer.sign(signed)
    needed = manifest.memory.needed(1)
    for fields, taken in (
        ({"require_signature": (signer.public,)}, SIGNATURE_MEMORY),
        ({"fetch_images": True}, FETCHED_MEMORY),
    ):
        for missing in (0, 1):
            limit = ByteSize(needed + taken - missing)
            settings = Settings(bundle=(str(signed),), threads=1, max_memory=limit, **fields)
            with pytest.raises(NotEnoughMemory) if missing else contextlib.nullcontext():
                open_pool(LoadedSettings(settings=settings, origins={}))


def test_an_entry_point_without_a_size_is_named(manifest: LanguageManifest) -> None:
    bad = replace(manifest, footprint=replace(manifest.footprint, calls={}))
    with pytest.raises(NotABundle, match=r"footprint\.calls\.decode_1: missing field"):
        admit(bad, max_memory=None, prefix_cache=0)


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_with_fewer_slots_every_batch_fits(
    bundle: Path, manifest: LanguageManifest, slots: int
) -> None:
    runtime = IreeRuntime(bundle, manifest.opened(slots=slots, context=tiny.CONTEXT), threads=1)
    assert runtime.slots == slots
    assert runtime.batch == (3 if slots == 3 else 1)
    for slot in range(slots):
        runtime.prefill(slot, [slot], 0)
        logits = runtime.decode([slot], [6 - slot], [1])[0]
        np.testing.assert_allclose(logits, tiny.expected([slot, 6 - slot]), rtol=1e-5, atol=1e-5)
    assert len(runtime._caches) == slots


def test_a_shorter_context_gives_the_same_bits_and_no_position_beyond_it(
    bundle: Path, manifest: LanguageManifest
) -> None:
    results = []
    for context in (8, tiny.CONTEXT):
        runtime = IreeRuntime(bundle, manifest.opened(slots=1, context=context), threads=1)
        runtime.prefill(0, [1, 2, 3], 4)  # padded beyond eight positions
        results.append(runtime.decode([0], [5], [7])[0])
        with pytest.raises(AssertionError, match=f"positions {context} to"):
            runtime.decode([0], [5], [context])
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.usefixtures("manifest")
def test_weights_are_mapped_or_in_memory(bundle: Path, mmap: bool) -> None:
    fakes.gemma_like().save(str(bundle / TOKENIZER))
    gc.collect()  # services of tests before, which had mapped the same file
    service = open_model(Settings(bundle=(str(bundle),), threads=1, mmap=mmap), bundle, "tiny")
    maps = Path("/proc/self/maps").read_text("utf-8")
    assert (str((bundle / PARAMETERS).resolve()) in maps) is mmap
    del service


@pytest.mark.usefixtures("system")
def test_stored_responses_are_a_part_of_the_limit(
    bundle: Path, manifest: LanguageManifest, tmp_path: Path
) -> None:
    """They take what a slot leaves, and models get the rest."""
    fakes.gemma_like().save(str(bundle / TOKENIZER))

    def taken(**fields: Any) -> int:
        settings = Settings(bundle=(str(bundle),), state_size=ByteSize(2**20), **fields)
        loaded = LoadedSettings(settings=settings, origins={})
        store = Store(settings.state_dir, limit=state_size(loaded))
        (deployment,) = open_pool(loaded, store.memory)
        assert deployment.current is not None
        assert (
            settings.max_memory is None
            or SHARED_MEMORY + deployment.memory + store.memory <= settings.max_memory
        )
        return store.memory

    needed = manifest.memory.needed(1)
    full = taken()
    assert full == round(2.6 * 2**20)
    assert taken(max_memory=needed + 2 * full) == full
    assert full / 3 < taken(max_memory=needed + full // 2) <= full // 2
    assert taken(max_memory=needed) == 0
    assert taken(max_memory=needed, state_dir=tmp_path / "state") == 0
