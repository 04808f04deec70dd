"""A bundle for several machines: one program for each, beside one copy of the weights."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from rich.console import Console

from hearthd.baker.checks import inspection
from hearthd.baker.checks.reproduction import changes, compare
from hearthd.baker.checks.verification import verify
from hearthd.baker.compiler import targets
from hearthd.baker.compiler.targets import embedded_elfs, runnable
from hearthd.baker.pipeline.bake import bake
from hearthd.bundle import ArraysManifest, Corrupt, read_manifest_of
from hearthd.runtime.array_functions import ArraysRuntime
from hearthd.runtime.open_bundle import open_functions
from hearthd.runtime.system.cpu_features import UnsupportedCpu, best_program
from hearthd.server.services.array_service import FunctionsOptions, open_array_service
from tests.baker.gru.gru_example import expected, gru_options
from tests.conftest import Silent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    Array = NDArray[np.float32]

# One that this machine does not run is among them, and two that it may run.
pytestmark = pytest.mark.nightly  # three compilations of the GRU

TARGETS = ("x86_64-v3", "x86_64-avxvnni", "aarch64-v8")
NAMES = [f"model.{name}.vmfb" for name in TARGETS[1:]]
MACHINES = {"x86_64": 62, "aarch64": 183}


@pytest.fixture(scope="module", autouse=True)
def few_targets() -> Iterator[None]:
    """A group of fewer targets than `all` has, to save time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(targets, "TARGET_GROUPS", {"all": TARGETS})
        yield


@pytest.fixture(scope="module")
def several(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The GRU for these machines."""
    out = tmp_path_factory.mktemp("several") / "sensor"
    return bake(gru_options(file, out, target="all"), Silent())


def test_each_target_has_a_program_of_its_machine(several: Path) -> None:
    manifest = read_manifest_of(several, ArraysManifest)
    assert [one.file for one in manifest.programs] == ["model.vmfb", *NAMES]
    assert manifest.provenance.options["target"] == "all"
    assert not [line for line in changes(manifest) if "modified" not in line]
    for one in manifest.programs:
        elfs = embedded_elfs((several / one.file).read_bytes())
        machine = MACHINES[one.target.triple.partition("-")[0]]
        assert {elf.machine for elf in elfs} == {machine}


def test_the_rest_of_the_bundle_is_that_of_one_target(several: Path, bundle: Path) -> None:
    names = {one.file for one in compare(bundle, several)}
    assert names == {"model.vmfb", *NAMES, "bom.cdx.json", "manifest.json"}


def test_every_program_computes_the_formula(several: Path, sequence: tuple[Array, Array]) -> None:
    manifest, (x, h0) = read_manifest_of(several, ArraysManifest), sequence
    programs = runnable(manifest)
    assert programs
    for one in programs:
        runtime = ArraysRuntime(several, manifest, threads=1, program=one)
        got = runtime.run("run", {"x": x, "h0": h0})
        for name, value in zip(("y", "h_n"), expected(x, h0), strict=True):
            np.testing.assert_allclose(got[name], value, atol=1e-5)


def test_the_fastest_program_is_served_and_logged(
    several: Path, caplog: pytest.LogCaptureFixture
) -> None:
    best = best_program(read_manifest_of(several, ArraysManifest))
    assert best == runnable(read_manifest_of(several, ArraysManifest))[-1]
    with caplog.at_level("INFO"):
        service = open_array_service(several, FunctionsOptions(threads=1, name="gru"))
    assert service.program == best
    assert service.fingerprint.endswith(f"-{best.target.name}")
    assert f"gru: runs the program for {best.target.name} (no kernels)" in caplog.messages


def test_inspect_and_verify_show_every_program(several: Path) -> None:
    console = Console(record=True, width=200)
    inspection.show(several, console)
    verdicts = verify(several, console, Silent())
    assert all(verdict.passed for verdict in verdicts.values())
    manifest = read_manifest_of(several, ArraysManifest)
    assert list(verdicts) == [one.file for one in runnable(manifest)]
    said = console.export_text()
    for one in manifest.programs:
        size = (several / one.file).stat().st_size
        assert re.search(rf"{re.escape(one.file)} +{size:,} bytes", said)
        assert f"program: {one.file}, for {one.target.name}" in said
        assert (f"golden values of {one.file}" in said) == (one in runnable(manifest))


@pytest.mark.parametrize("name", ["model.vmfb", *NAMES])
def test_a_damaged_program_is_never_loaded(several: Path, tmp_path: Path, name: str) -> None:
    """Also one for another machine: the file of the bundle is not what was baked."""
    for path in several.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    data = bytearray((tmp_path / name).read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / name).write_bytes(data)
    with pytest.raises(Corrupt, match=f"{name}: wrong sha256"):
        open_functions(tmp_path, ArraysManifest, ArraysRuntime, threads=1, level="quick")


def test_a_bundle_without_a_program_for_this_machine_is_rejected(several: Path) -> None:
    manifest = read_manifest_of(several, ArraysManifest)
    others = [one for one in manifest.programs if one not in runnable(manifest)]
    with pytest.raises(UnsupportedCpu, match=r"the bundle was baked for .*; bake it with"):
        best_program(replace(manifest, target=others[0].target, other_programs=tuple(others[1:])))
