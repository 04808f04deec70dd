# ruff: noqa: E501  recorded lines are as long as they are
"""CPU features with LLVM's names, from the files and words of Linux on real machines."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from hearthd.baker.compiler.targets import find_target, find_targets
from hearthd.bundle import ProgramFile, Target
from hearthd.runtime.system.cpu_features import (
    UnsupportedCpu,
    cpu_features,
    cpuinfo_flags,
    fastest,
    hwcap_flags,
    llvm_names,
)

if TYPE_CHECKING:
    from pathlib import Path

_ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads what only Linux has")
# The lines "Features" of an ARM machine's /proc/cpuinfo.
PI_4 = "fp asimd evtstrm crc32 cpuid"
PI_5 = "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp"
# The words HWCAP and HWCAP2 of the same cores, and of one with all that QEMU 7.2 knows.
PI_4_WORDS = (0x887, 0)
PI_5_WORDS = (0x119FFF, 0)
QEMU_MAX_WORDS = (0xECFFFFFB, 0x7F877FFF)
HASWELL = """\
processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Intel(R) Core(TM) i5-4590 CPU @ 3.30GHz
flags\t\t: fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush dts acpi mmx fxsr sse sse2 ss ht tm pbe syscall nx pdpe1gb rdtscp lm constant_tsc arch_perfmon pebs bts rep_good nopl xtopology nonstop_tsc cpuid aperfmperf pni pclmulqdq dtes64 monitor ds_cpl vmx smx est tm2 ssse3 sdbg fma cx16 xtpr pdcm pcid sse4_1 sse4_2 x2apic movbe popcnt tsc_deadline_timer aes xsave avx f16c rdrand lahf_lm abm cpuid_fault epb invpcid_single pti ssbd ibrs ibpb stibp tpr_shadow flexpriority ept vpid ept_ad fsgsbase tsc_adjust bmi1 avx2 smep bmi2 erms invpcid xsaveopt dtherm ida arat pln pts md_clear flush_l1d
bugs\t\t: cpu_meltdown spectre_v1
"""
ZEN_4 = """\
processor\t: 0
vendor_id\t: AuthenticAMD
model name\t: AMD Ryzen 9 7950X 16-Core Processor
flags\t\t: fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush mmx fxsr sse sse2 ht syscall nx mmxext fxsr_opt pdpe1gb rdtscp lm constant_tsc rep_good amd_lbr_v2 nopl nonstop_tsc cpuid extd_apicid aperfmperf rapl pni pclmulqdq monitor ssse3 fma cx16 sse4_1 sse4_2 x2apic movbe popcnt aes xsave avx f16c rdrand lahf_lm cmp_legacy svm extapic cr8_legacy abm sse4a misalignsse 3dnowprefetch osvw ibs skinit wdt tce topoext perfctr_core perfctr_nb bpext perfctr_llc mwaitx cpb cat_l3 cdp_l3 hw_pstate ssbd mba perfmon_v2 ibrs ibpb stibp ibrs_enhanced vmmcall fsgsbase bmi1 avx2 smep bmi2 erms invpcid cqm rdt_a avx512f avx512dq rdseed adx smap avx512ifma clflushopt clwb avx512cd sha_ni avx512bw avx512vl xsaveopt xsavec xgetbv1 xsaves cqm_llc cqm_occup_llc cqm_mbm_total cqm_mbm_local user_shstk avx512_bf16 clzero irperf xsaveerptr rdpru wbnoinvd cppc arat npt lbrv svm_lock nrip_save avx512vbmi umip pku ospke avx512_vbmi2 gfni vaes vpclmulqdq avx512_vnni avx512_bitalg avx512_vpopcntdq rdpid overflow_recov succor smca fsrm flush_l1d
"""
# The features that iree-compile 3.13 expands x86-64-v3 and v4 to.
V3 = (
    "avx avx2 bmi bmi2 cmov crc32 cx16 cx8 f16c fma fxsr lzcnt mmx movbe popcnt sahf sse sse2 sse3 "
    "sse4.1 sse4.2 ssse3 x87 xsave"
)
V4 = f"{V3} avx512bw avx512cd avx512dq avx512f avx512vl"


def target(triple: str, features: str) -> Target:
    return Target(name="some-target", triple=triple, cpu="some", features=tuple(features.split()))


def check_features(target: Target, machine: str, features: frozenset[str]) -> None:
    """Raise UnsupportedCpu if a bundle with one program has none for the machine."""
    program = ProgramFile(file="model.vmfb", target=target, instructions=None)
    assert fastest([program], machine, features) is program


def test_a_raspberry_pi_4_lacks_dot_products() -> None:
    features = llvm_names(hwcap_flags(*PI_4_WORDS), "aarch64")
    assert {"neon", "fp-armv8", "crc"} <= features
    assert not {"dotprod", "i8mm", "fullfp16", "lse"} & features
    with pytest.raises(UnsupportedCpu) as caught:
        check_features(target("aarch64-linux-gnu", "neon dotprod"), "aarch64", features)
    assert str(caught.value) == (
        "the bundle was baked for target some-target and this aarch64 CPU lacks dotprod; "
        "bake it with `--target aarch64-v8`, or on this machine with `--target host`"
    )


def test_a_raspberry_pi_5_has_dot_products() -> None:
    features = llvm_names(hwcap_flags(*PI_5_WORDS), "aarch64")
    assert {"neon", "dotprod", "fullfp16", "lse", "rdm", "rcpc", "sha2", "aes"} <= features
    assert "i8mm" not in features
    check_features(target("aarch64-linux-gnu", "neon dotprod"), "aarch64", features)


@pytest.mark.parametrize("name", find_target("aarch64").features)
def test_a_missing_feature_is_named(name: str) -> None:
    features = llvm_names(hwcap_flags(*PI_5_WORDS), "aarch64")
    check_features(find_target("aarch64"), "aarch64", features)
    with pytest.raises(UnsupportedCpu, match=f"this aarch64 CPU lacks {name}; bake it with"):
        check_features(find_target("aarch64"), "aarch64", features - {name})


def test_raspberry_pis_run_the_targets_for_them() -> None:
    pi_4 = llvm_names(hwcap_flags(*PI_4_WORDS), "aarch64")
    check_features(find_target("aarch64-v8"), "aarch64", pi_4)
    with pytest.raises(UnsupportedCpu, match="lacks dotprod, fullfp16, lse, rdm; bake it with"):
        check_features(find_target("aarch64"), "aarch64", pi_4)


def test_an_x86_cpu_without_avx512_runs_avx2_only() -> None:
    features = llvm_names(cpuinfo_flags(HASWELL), "x86_64")
    check_features(target("x86_64-linux-gnu", V3), "x86_64", features)
    with pytest.raises(
        UnsupportedCpu, match="lacks avx512bw, avx512cd, avx512dq, avx512f, avx512vl"
    ):
        check_features(target("x86_64-linux-gnu", V4), "x86_64", features)


def test_an_x86_cpu_with_avx512_lacks_amx() -> None:
    features = llvm_names(cpuinfo_flags(ZEN_4), "x86_64")
    check_features(target("x86_64-linux-gnu", f"{V4} avx512vnni avx512bf16"), "x86_64", features)
    with pytest.raises(UnsupportedCpu, match="lacks amx-int8"):
        check_features(target("x86_64-linux-gnu", "amx-int8"), "x86_64", features)


def programs(group: str) -> tuple[ProgramFile, ...]:
    """The programs of a bundle that was baked for a group of targets."""
    return tuple(
        ProgramFile(file=f"model.{one.name}.vmfb", target=one, instructions=None)
        for one in find_targets(group)
    )


N100 = "avx avx2 bmi1 bmi2 f16c fma abm movbe avx_vnni"
CASCADE_LAKE = (
    "avx avx2 bmi1 bmi2 f16c fma abm movbe avx512f avx512bw avx512cd avx512dq avx512vl avx512_vnni"
)
SAPPHIRE_RAPIDS = f"{CASCADE_LAKE} avx512vbmi avx512_bf16 avx_vnni amx_tile amx_int8 amx_bf16"


@pytest.mark.parametrize(
    ("flags", "target"),
    [
        (cpuinfo_flags(HASWELL), "x86_64-v3"),
        (N100.split(), "x86_64-avxvnni"),
        (CASCADE_LAKE.split(), "x86_64-avx512vnni"),
        (cpuinfo_flags(ZEN_4), "x86_64-avx512vnni"),
        (f"{CASCADE_LAKE} avx_vnni".split(), "x86_64-avx512vnni"),
        (SAPPHIRE_RAPIDS.split(), "x86_64-amx"),
    ],
)
@pytest.mark.parametrize("group", ["x86_64", "all"])
def test_a_cpu_gets_the_fastest_program(group: str, flags: frozenset[str], target: str) -> None:
    features = llvm_names(flags, "x86_64")
    assert fastest(programs(group), "x86_64", features).target.name == target


@pytest.mark.parametrize(
    ("words", "target"),
    [(PI_4_WORDS, "aarch64-v8"), (PI_5_WORDS, "aarch64"), (QEMU_MAX_WORDS, "aarch64-i8mm")],
)
def test_an_arm_machine_gets_the_fastest_program(words: tuple[int, int], target: str) -> None:
    features = llvm_names(hwcap_flags(*words), "aarch64")
    assert fastest(programs("all"), "aarch64", features).target.name == target
    with pytest.raises(UnsupportedCpu, match=r"baked for x86_64 .* and this machine is aarch64"):
        fastest(programs("x86_64"), "aarch64", features)


def test_a_cpu_that_runs_no_program_lacks_what_the_least_needs() -> None:
    with pytest.raises(UnsupportedCpu, match=r"target x86_64-v3 and this x86_64 CPU lacks avx2;"):
        fastest(programs("all"), "x86_64", llvm_names(cpuinfo_flags(HASWELL), "x86_64") - {"avx2"})


def test_another_machine_is_rejected() -> None:
    with pytest.raises(UnsupportedCpu) as caught:
        check_features(target("aarch64-linux-gnu", ""), "x86_64", frozenset())
    assert str(caught.value) == (
        "the bundle was baked for aarch64 (target some-target) and this machine is x86_64; "
        "bake it with `--target x86_64-v3`"
    )


@pytest.mark.parametrize(
    ("words", "features"), [(PI_4_WORDS, PI_4), (PI_5_WORDS, PI_5), ((0, 0), "")]
)
def test_the_words_of_an_arm_machine_agree_with_its_cpuinfo(
    words: tuple[int, int], features: str
) -> None:
    assert hwcap_flags(*words) == set(features.split())


def test_unnamed_bits_of_the_second_word_are_ignored() -> None:
    flags = hwcap_flags(*QEMU_MAX_WORDS)
    assert {"paca", "pacg", "sve2", "i8mm", "bf16", "rng", "sme"} <= flags
    assert not {"evtstrm", "uscat", "ssbs", "dgh", "ecv", "mte3"} & flags
    assert {"i8mm", "bf16", "sve", "sve2", "sme", "dotprod"} <= llvm_names(flags, "aarch64")
    assert hwcap_flags(1 << 63, 1 << 63) == set()


def test_a_feature_must_be_on_every_core() -> None:
    assert cpuinfo_flags("flags\t: fma avx2\nflags\t: fma\n") == {"fma"}


def test_flags_that_compiled_code_does_not_use_are_left_out() -> None:
    assert not llvm_names(cpuinfo_flags(HASWELL), "x86_64") & {"md_clear", "lm", "syscall"}
    assert not llvm_names(hwcap_flags(*PI_4_WORDS), "aarch64") & {"evtstrm", "cpuid", "fp"}


def test_unknown_machines_and_empty_files_have_no_features() -> None:
    assert cpuinfo_flags("") == frozenset()
    assert cpuinfo_flags("isa\t: rv64gc\n") == frozenset()
    assert llvm_names({"fma"}, "riscv64") == frozenset()


@_ON_LINUX
def test_this_machine_has_features() -> None:
    assert cpu_features() & {"sse2", "neon"}


@_ON_LINUX
@pytest.mark.parametrize("status", [0, -1])
def test_tiles_need_the_permission_of_the_system(
    status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("flags\t\t: avx512_vnni amx_bf16 avx2 amx_tile amx_int8\n")
    system = SimpleNamespace(syscall=lambda *_: status)
    monkeypatch.setattr("hearthd.runtime.system.cpu_features.CPUINFO", cpuinfo)
    monkeypatch.setattr("hearthd.runtime.system.cpu_features.this_machine", lambda: "x86_64")
    monkeypatch.setattr("hearthd.runtime.system.cpu_features.ctypes.CDLL", lambda *_, **__: system)
    tiles = {"amx-bf16", "amx-tile", "amx-int8"} if status == 0 else set()
    assert cpu_features() == {"avx512vnni", "avx2"} | tiles
