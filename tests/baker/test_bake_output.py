"""What `hearth bake` prints when the bundle is complete."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hearthd.baker.cli import _show
from hearthd.bundle import FileRecord, KernelBuild, ProgramFile, write_manifest
from tests.bundle.example_manifests import EXAMPLE, ORIGIN

if TYPE_CHECKING:
    from pathlib import Path

OTHER = ProgramFile(file="model.v3.vmfb", target=EXAMPLE.target, instructions="avx512vnni")
SEVERAL = replace(
    EXAMPLE,
    other_programs=(OTHER,),
    files=(FileRecord(name=OTHER.file, bytes=1, sha256="ab"),),
    statistics={"fused.decode_1.residual_norm": 36},
)


@pytest.mark.parametrize("verbose", [False, True])
def test_kernels_are_printed_if_they_are_asked_for(
    verbose: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "my models"
    folder.mkdir()
    write_manifest(folder, SEVERAL)
    _show(folder, 0, verbose=verbose)
    shown = capsys.readouterr().out
    assert "bf16: mean KL divergence" in shown
    assert shown.endswith(f"\nnext: hearth serve '{folder}'\n")
    for line in (
        "kernels: linear_int8_g32 (avx2)",
        "programs: host (avx2), host (avx512vnni)",
        "fused: residual_norm x36",
    ):
        assert (f"{line}\n" in shown) == verbose


def test_slow_kernels_are_always_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernels = KernelBuild(names=("linear_int8_g32",), instructions="portable")
    write_manifest(tmp_path, replace(EXAMPLE, provenance=replace(ORIGIN, kernels=kernels)))
    _show(tmp_path, 0, verbose=False)
    assert "(portable, slow: the target has no instructions" in capsys.readouterr().out


def test_the_name_of_a_bundle_is_printed_without_control_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "\x1b]0;title\x07"
    folder.mkdir()
    write_manifest(folder, SEVERAL)
    _show(folder, 0, verbose=False)
    shown = capsys.readouterr().out
    assert "\\x1b]0;title\\x07: 0.0 MB" in shown
    assert not any(character in shown for character in "\x1b\x07")
