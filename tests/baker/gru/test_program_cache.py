"""A program that was compiled before is copied; whatever decides its bytes makes it another one."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from hearthd.baker.checks.reproduction import compare, reproduce
from hearthd.baker.compiler import program_cache
from hearthd.baker.compiler.compilation import Compilation
from hearthd.baker.compiler.kernel_objects import FLAGS
from hearthd.baker.compiler.program_cache import (
    FOLDER,
    ProgramCache,
    ProgramSource,
    compiling,
)
from hearthd.baker.compiler.targets import find_target
from hearthd.baker.pipeline.bake import bake
from hearthd.bundle import VMFB, Compiler, KernelBuild, bundle_home
from hearthd.models.dsl.kernel_sources import KERNELS as SOURCES
from hearthd.runtime.system import cpu_features
from tests.baker.gru.gru_example import gru_options
from tests.conftest import Silent

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = ProgramSource(
    text=b"module {}", kernels=("residual_norm",), chains={}, target=find_target("x86_64-v3")
)
KERNELS = KernelBuild(names=("residual_norm",), instructions=None)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The targets that the compiler was started for."""
    started: list[str] = []

    class Counted(Compilation):
        def __init__(self, source: Path, output: Path, target: Any, **options: Any) -> None:
            started.append(target.name)
            super().__init__(source, output, target, **options)

    monkeypatch.setattr(program_cache, "Compilation", Counted)
    return started


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(bundle_home.ENVIRONMENT, str(tmp_path / "home"))
    return tmp_path / "home"


class Idle:
    """Takes the place of a compilation."""

    kernels = KERNELS

    def __init__(self, _: Path, output: Path, *__: object, **___: object) -> None:
        output.write_bytes(b"a program")

    def __enter__(self) -> Idle:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def wait(self) -> None:
        """It is complete."""


def test_products_have_one_thread_while_compilers_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A process that is copied to start a compiler ends the threads of OpenBLAS: a product that has
    # given them work waits for ever.
    monkeypatch.setattr(program_cache, "Compilation", Idle)
    cache, output = ProgramCache(tmp_path / "programs"), tmp_path / "program.vmfb"
    for _ in ("compiled", "copied"):
        with threadpool_limits(2):
            with compiling(SOURCE, tmp_path / "text", output, cache):
                assert {pool["num_threads"] for pool in threadpool_info()} == {1}
            assert {pool["num_threads"] for pool in threadpool_info()} == {2}
        monkeypatch.delattr(program_cache, "Compilation", raising=False)


@pytest.mark.nightly
def test_a_second_bake_has_the_same_bytes_and_compiles_nothing(
    file: Path, home: Path, tmp_path: Path, compiled: list[str]
) -> None:
    other = "aarch64" if find_target("host").triple.startswith("x86") else "x86_64-v3"
    first = bake(gru_options(file, out=tmp_path / "first"), Silent())
    assert compiled == ["host"]
    again = bake(gru_options(file, out=tmp_path / "again"), Silent())
    assert compiled == ["host"]
    assert list(compare(first, again)) == []
    bake(gru_options(file, out=tmp_path / "other", target=other), Silent())
    bake(gru_options(file, out=tmp_path / "forced", recompile=True), Silent())
    assert reproduce(first, file, Silent()) == []
    assert compiled == ["host", other, "host", "host"]
    assert (home / FOLDER).is_dir()


@pytest.mark.nightly
def test_a_home_that_cannot_be_written_keeps_nothing(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: list[str]
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv(bundle_home.ENVIRONMENT, str(tmp_path / "file" / "home"))
    bake(gru_options(file, out=tmp_path / "bundle"), Silent())
    assert compiled == ["host"]


@pytest.fixture
def cache(tmp_path: Path) -> ProgramCache:
    return ProgramCache(tmp_path / "programs", limit_bytes=3000)


def keep(cache: ProgramCache, folder: Path, digest: str, data: bytes = b"\x01" * 1000) -> Path:
    path = folder / VMFB
    path.write_bytes(data)
    cache.keep(digest, path, KERNELS)
    return path


def test_a_kept_program_is_copied(cache: ProgramCache, tmp_path: Path) -> None:
    keep(cache, tmp_path, "a", b"program")
    assert cache.copy("a", tmp_path / "out") == KERNELS
    assert (tmp_path / "out").read_bytes() == b"program"
    assert cache.copy("b", tmp_path / "out") is None


@pytest.mark.parametrize("name", ["a.vmfb", "a.json"])
@pytest.mark.parametrize("damage", [b"", b"{", b"{}", b"\xff", None])
def test_a_damaged_program_is_not_copied(
    cache: ProgramCache, tmp_path: Path, name: str, damage: bytes | None
) -> None:
    keep(cache, tmp_path, "a")
    path = tmp_path / "programs" / name
    path.unlink() if damage is None else path.write_bytes(damage)
    assert cache.copy("a", tmp_path / "out") is None
    keep(cache, tmp_path, "a")
    assert cache.copy("a", tmp_path / "out") == KERNELS


def test_the_one_used_longest_ago_makes_room(cache: ProgramCache, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    for time, name in enumerate("abc"):
        keep(cache, tmp_path, name)
        os.utime(programs / f"{name}.vmfb", (time, time))
    assert cache.copy("a", tmp_path / "out")
    keep(cache, tmp_path, "d")
    assert sorted(path.name for path in programs.glob("*.vmfb")) == ["a.vmfb", "c.vmfb", "d.vmfb"]
    assert {path.stem for path in programs.iterdir()} == {"a", "c", "d"}


@pytest.mark.parametrize(
    "other",
    [
        {"text": b"module { }"},
        {"kernels": ("residual_norm", "linear_int8_g32")},
        {"chains": {"chain": "void chain(void);"}},
        {"streamed": True},
        {"target": find_target("x86_64-v4")},
        {"target": replace(find_target("x86_64-v3"), features=("avx2",))},
    ],
)
def test_another_source_has_another_digest(other: dict[str, Any]) -> None:
    assert replace(SOURCE).digest() == SOURCE.digest()
    assert replace(SOURCE, **other).digest() != SOURCE.digest()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("version", lambda _: "0"),
        ("_c_files", lambda: "0"),
        ("kernel_objects.FLAGS", (*FLAGS, "-g")),
        ("KERNELS", {"residual_norm": replace(SOURCES["residual_norm"], macros={"A": "1"})}),
        ("compiler_for", lambda _: Compiler(name="iree", version="0", flags=())),
    ],
)
def test_other_tools_have_another_digest(
    name: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = SOURCE.digest()
    monkeypatch.setattr(f"hearthd.baker.compiler.program_cache.{name}", value)
    assert SOURCE.digest() != digest


def test_a_program_for_this_cpu_has_the_digest_of_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two models of one generation have the same features, and compilers schedule for the model."""
    host = replace(SOURCE, target=replace(find_target("x86_64-v3"), name="host", cpu="host"))
    monkeypatch.setattr(cpu_features, "CPUINFO", cpuinfo := tmp_path / "cpuinfo")
    core = "processor: {}\nvendor_id: GenuineIntel\nmodel\t\t: {}\ncpu MHz: {}\nflags: avx2 fma\n\n"
    cpuinfo.write_text(core.format(0, 143, 2100.1))
    digest, named = host.digest(), SOURCE.digest()
    cpuinfo.write_text(core.format(0, 143, 3500.2) + core.format(1, 143, 800.0))
    assert host.digest() == digest
    for other in (core.format(0, 173, 2100.1), core.format(0, 143, 2100.1) + core.format(1, 1, 1)):
        cpuinfo.write_text(other)
        assert host.digest() != digest
    assert SOURCE.digest() == named
