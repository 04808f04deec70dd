"""Kernels are built for every target, and their objects say for which instructions."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hearthd import cli
from hearthd.baker.compiler.compilation import Compilation
from hearthd.baker.compiler.kernel_objects import KernelError, build, instructions
from hearthd.baker.compiler.targets import TARGET_NAMES, find_target
from hearthd.baker.pipeline.origin import tools
from hearthd.bundle import KernelBuild
from hearthd.runtime.system.cpu_features import cpu_features

if TYPE_CHECKING:
    from pathlib import Path

DOT = "linear_int8_g32"
# x86-64-v4 has AVX-512 without its integer dot products.
INSTRUCTIONS = {
    "x86_64-v3": "avx2",
    "x86_64-v4": "avx2",
    "x86_64-avxvnni": "avxvnni",
    "x86_64-avx512vnni": "avx512vnni",
    "x86_64-amx": "amx",
    "aarch64": "dotprod",
    "aarch64-i8mm": "i8mm",
    "aarch64-v8": "neon",
}


def of_this_machine() -> str:
    """What this machine's kernels use, by the features that the server sees."""
    for name, features in (
        ("amx", {"amx-int8", "avx512vnni", "avx512bw"}),
        ("avx512vnni", {"avx512vnni", "avx512bw"}),
        ("avxvnni", {"avxvnni"}),
        ("avx2", {"avx2"}),
        ("i8mm", {"i8mm", "dotprod"}),
        ("dotprod", {"dotprod"}),
        ("neon", {"neon"}),
    ):
        if features <= cpu_features():
            return name
    return "portable"


@pytest.mark.parametrize("target", TARGET_NAMES)
def test_kernels_use_the_instructions_of_their_target(target: str, tmp_path: Path) -> None:
    built = build([DOT], find_target(target), tmp_path)
    expected = {"host": of_this_machine(), **INSTRUCTIONS}[target]
    assert built == KernelBuild(names=(DOT,), instructions=expected)
    assert ("portable" in built.text) == (expected == "portable")


def test_kernels_have_no_tiles_that_the_system_refuses(tmp_path: Path) -> None:
    host = find_target("host")
    features = tuple(name for name in host.features if not name.startswith("amx-"))
    built = build([DOT], replace(host, features=features), tmp_path)
    assert built.instructions != "amx"


def test_a_kernel_for_activations_of_eight_bits_has_a_name_of_its_own(tmp_path: Path) -> None:
    built = build([DOT, f"{DOT}_a8"], find_target("host"), tmp_path)
    assert built.names == (DOT, f"{DOT}_a8")
    first, second = ((tmp_path / f"{name}.o").read_bytes() for name in built.names)
    assert f"hearth_{DOT}_a8\0".encode() in second
    assert f"hearth_{DOT}\0".encode() not in second
    assert f"hearth_{DOT}_a8\0".encode() not in first


def test_a_program_without_kernels_says_so(tmp_path: Path) -> None:
    built = build([], find_target("host"), tmp_path)
    assert built == KernelBuild(names=(), instructions=None)
    assert "compiler" in built.text


def test_kernels_of_two_instruction_sets_are_rejected() -> None:
    with pytest.raises(KernelError, match=r"avx2.*portable"):
        instructions([b"hearth dot: avx2\0", b"\x7fELF", b"hearth dot: portable\0"])


def test_the_c_compiler_is_recorded_only_with_kernels() -> None:
    assert "ziglang" in tools(KernelBuild(names=(DOT,), instructions="avx2"))
    assert "ziglang" not in tools(KernelBuild(names=(), instructions=None))


def test_a_kernel_that_does_not_compile_leaves_nothing(tmp_path: Path) -> None:
    target = replace(find_target("x86_64-v3"), cpu="nonesuch")
    with (
        pytest.raises(KernelError, match=r"does not compile: .*nonesuch"),
        Compilation(tmp_path / "in", tmp_path / "out", target, kernels=[DOT]) as compilation,
    ):
        compilation.wait()
    assert not list(tmp_path.iterdir())


def test_a_kernel_that_does_not_compile_is_one_line_of_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise KernelError("x.c does not compile: why")

    monkeypatch.setattr("hearthd.baker.cli.bake", fail)
    monkeypatch.setattr(sys, "argv", ["bake", "gemma3"])
    with pytest.raises(SystemExit, match="1"):
        cli.bake()
    assert capsys.readouterr().err == "bake: x.c does not compile: why\n"
