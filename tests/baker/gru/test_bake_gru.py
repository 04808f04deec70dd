"""`bake gru`, the bundle, and what is refused."""

from __future__ import annotations

import json
import platform
import re
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from rich.console import Console
from safetensors.numpy import save_file
from typing_extensions import override

from hearthd.baker.atomic_folder import BakeError
from hearthd.baker.checks import inspection as inspect
from hearthd.baker.checks.reproduction import changes, compare, reproduce
from hearthd.baker.checks.verification import verify
from hearthd.baker.compiler.targets import embedded_elfs
from hearthd.baker.parameters.quantization import NotFiniteError
from hearthd.baker.pipeline.bake import bake
from hearthd.baker.pipeline.kinds.bake_arrays import TOLERANCE
from hearthd.baker.pipeline.origin import source_records
from hearthd.baker.pipeline.recipe import RecipeError
from hearthd.baker.weights.source import BadFile, NoWeights, UnsupportedType
from hearthd.bundle import (
    GOLDEN,
    PARAMETERS,
    VMFB,
    ArraysManifest,
    Corrupt,
    read_manifest_of,
    record_file,
    verify_files,
    write_manifest,
)
from hearthd.cli import main
from hearthd.models.config import ConfigError
from hearthd.runtime.array_functions import ArraysRuntime
from hearthd.runtime.checks.self_test import Verdict
from hearthd.runtime.open_bundle import open_functions
from hearthd.runtime.system.cpu_features import UnsupportedCpu
from tests.baker.gru.gru_example import (
    LAYERS,
    B,
    D,
    H,
    S,
    gru_options,
    weights,
)
from tests.conftest import Silent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.runtime.array_bytes import Arrays

    Array = NDArray[np.float32]
    Capture = pytest.CaptureFixture[str]

_OTHER = {"x86_64": ("aarch64", 183), "aarch64": ("x86_64-v3", 62)}


def copy_of(bundle: Path, place: Path) -> Path:
    place.mkdir()
    for path in bundle.iterdir():
        (place / path.name).write_bytes(path.read_bytes())
    return place


def exit_code(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> object:
    """Run `hearth` with these arguments in this process."""
    monkeypatch.setattr("sys.argv", ["hearth", *map(str, arguments)])
    with pytest.raises(SystemExit) as exited:
        main()
    return exited.value.code


# The bundle.


def test_a_bundle_has_the_functions_and_files_of_the_gru(bundle: Path, file: Path) -> None:
    manifest = read_manifest_of(bundle, ArraysManifest)
    verify_files(bundle, manifest)
    names = ["bom.cdx.json", "golden.bin", "manifest.json", "model.vmfb", "params.irpa"]
    assert sorted(path.name for path in bundle.iterdir()) == names
    origin = manifest.provenance
    assert origin.sources == source_records([record_file(file)], package=None)
    assert origin.options == {
        "steps": S, "batch": B, "form": "fused", "batch_first": False, "target": "host"
    }  # fmt: skip
    assert (manifest.config["hidden"], manifest.config["layers"]) == (H, LAYERS)
    run, step = manifest.functions
    assert [(spec.name, spec.shape, spec.default) for spec in run.inputs] == [
        ("x", (S, B, D), "none"),
        ("h0", (LAYERS, B, H), "zeros"),
    ]
    assert [(spec.name, spec.shape) for spec in run.outputs] == [
        ("y", (S, B, H)),
        ("h_n", (LAYERS, B, H)),
    ]
    assert [spec.takes for spec in step.outputs] == [None, "h"]


def test_inspect_and_verify_show_a_gru(bundle: Path, tmp_path: Path) -> None:
    console = Console(record=True, width=200)
    inspect.show(bundle, console)
    assert verify(bundle, console, Silent())[VMFB].passed
    said = console.export_text()
    for fact in ("x f32[5, 2, 3], h0 f32[2, 2, 4] or zeros -> y", "in place of h", "passed"):
        assert fact in said
    changed = copy_of(bundle, tmp_path / "changed")
    golden = np.fromfile(changed / GOLDEN, "<f4")
    golden[-1] += 10 * TOLERANCE
    golden.tofile(changed / GOLDEN)
    with pytest.raises(Corrupt, match=r"golden.bin: wrong sha256"):
        verify(changed, console, Silent())
    manifest = read_manifest_of(changed, ArraysManifest)
    files = tuple(record_file(changed / record.name) for record in manifest.files)
    write_manifest(changed, replace(manifest, files=files))
    assert not verify(changed, console, Silent())[VMFB].passed
    assert re.search(r"a value differs by 0.001 at step: h\b", console.export_text())
    (changed / GOLDEN).write_bytes(b"short")
    with pytest.raises(Corrupt, match=r"golden.bin: wrong size: got 5 bytes"):
        open_functions(changed, ArraysManifest, ArraysRuntime, threads=None)


def test_a_bake_is_reproducible(
    bundle: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    renamed = tmp_path / "renamed.safetensors"
    renamed.write_bytes(file.read_bytes())
    assert exit_code(monkeypatch, "reproduce", bundle, "--weights", renamed) == 0
    assert capfd.readouterr().out.endswith(f"{bundle}: baked again, every byte is equal\n")
    with pytest.raises(BakeError, match=r"baked from model.safetensors .*; specify --weights PATH"):
        reproduce(bundle, None, Silent())
    save_file(weights() | {"bias_hh_l0": np.ones(3 * H, np.float32)}, renamed)
    with pytest.raises(BakeError, match=r"expected model.safetensors \(sha256 \w+\), got renamed"):
        reproduce(bundle, renamed, Silent())


@pytest.mark.parametrize("place", [0, 100, -1])
def test_the_first_different_byte_is_named(bundle: Path, tmp_path: Path, place: int) -> None:
    changed = copy_of(bundle, tmp_path / "changed")
    data = bytearray((bundle / VMFB).read_bytes())
    data[place] ^= 1
    (changed / VMFB).write_bytes(data)
    (changed / PARAMETERS).write_bytes((bundle / PARAMETERS).read_bytes() + b"more")
    (changed / GOLDEN).unlink()
    assert [difference.message for difference in compare(bundle, changed)] == [
        "golden.bin is in only one of the bundles",
        f"model.vmfb differs from byte {place % len(data):,}",
        f"params.irpa differs from byte {(bundle / PARAMETERS).stat().st_size:,}",
    ]


def test_changes_since_the_bake_are_listed(bundle: Path) -> None:
    manifest = read_manifest_of(bundle, ArraysManifest)
    assert not [line for line in changes(manifest) if "modified" not in line]
    origin = manifest.provenance
    older = replace(
        origin,
        compiler=replace(origin.compiler, version="3.12.0"),
        tools={**origin.tools, "numpy": "1.0", "cc": "9"},
    )
    here = origin.compiler.version
    assert {
        f"iree-base-compiler, from 3.12.0 to {here}",
        f"numpy, from 1.0 to {np.__version__}",
        "cc, from 9 to absent",
    } == {line for line in changes(replace(manifest, provenance=older)) if "modified" not in line}


def test_verify_prints_its_verdict_as_json(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    def verified(folder: Path) -> tuple[object, Verdict]:
        code = exit_code(monkeypatch, "verify", "--json", folder)
        output = json.loads(capfd.readouterr().out, parse_constant=pytest.fail)
        return code, Verdict.from_json(output[VMFB])

    code, verdict = verified(bundle)
    assert (code, verdict.passed, verdict.level) == (0, True, "full")
    assert 0 < verdict.largest_difference < verdict.tolerance == TOLERANCE
    changed = copy_of(bundle, tmp_path / "changed")
    np.full_like(np.fromfile(bundle / GOLDEN, "<f4"), np.nan).tofile(changed / GOLDEN)
    manifest = read_manifest_of(changed, ArraysManifest)
    files = tuple(record_file(changed / record.name) for record in manifest.files)
    write_manifest(changed, replace(manifest, files=files))
    code, verdict = verified(changed)
    assert (code, verdict.passed, verdict.largest_difference) == (1, False, np.inf)


@pytest.mark.nightly
def test_a_bundle_for_another_machine_is_verified_without_running_it(
    bundle: Path, file: Path, tmp_path: Path
) -> None:
    target, machine = _OTHER[platform.machine()]
    made = bake(gru_options(file, tmp_path / "other", target=target), Silent())
    assert {elf.machine for elf in embedded_elfs((made / VMFB).read_bytes())} == {machine}
    assert (made / GOLDEN).read_bytes() == (bundle / GOLDEN).read_bytes()
    console = Console(record=True, width=200)
    assert verify(made, console, Silent()) == {}
    assert "not checked, since this machine cannot run the program" in console.export_text()
    with pytest.raises(UnsupportedCpu):
        open_functions(made, ArraysManifest, ArraysRuntime, threads=None)


# What is refused, and what is left then.


def without(name: str) -> dict[str, Array]:
    return {key: value for key, value in weights().items() if key != name}


@pytest.mark.parametrize(
    ("tensors", "error", "message"),
    [
        (without("weight_hh_l0"), ConfigError, "weight_hh_l0: expected a matrix"),
        (without("bias_hh_l1"), ConfigError, r"bias_hh_l1: expected \(12,\), got no such tensor"),
        (
            weights() | {"weight_hh_l1": np.zeros((12, 5), np.float32)},
            ConfigError,
            r"weight_hh_l1: expected \(12, 4\), got \(12, 5\)",
        ),
        (
            weights() | {"lin.weight": np.zeros((2, 4), np.float32)},
            ConfigError,
            "lin.weight: expected no such tensor",
        ),
        (
            weights() | {"bias_hh_l0": np.zeros(12, np.float64)},
            UnsupportedType,
            "tensor bias_hh_l0 is F64, expected one of F32, F16, BF16",
        ),
        (
            weights() | {"bias_hh_l1": np.full(12, np.nan, np.float32)},
            NotFiniteError,
            r"tensor bias_hh_l1: the weight at \(0,\) of the block is nan",
        ),
        (
            {f"gru.{name}": tensor for name, tensor in weights().items()},
            ConfigError,
            r"gru.weight_ih_l0: expected weight_ih_l0; the names have the prefix 'gru.': save the",
        ),
    ],
    ids=["missing", "no bias", "shape", "unknown", "dtype", "NaN", "prefix"],
)
def test_weights_that_are_not_a_gru_are_rejected(
    tmp_path: Path, tensors: dict[str, Any], error: type[Exception], message: str
) -> None:
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(error, match=message):
        bake(gru_options(tmp_path / "model.safetensors", tmp_path / "gru"), Silent())
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_files_that_are_not_weights_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(NoWeights, match="absent does not exist; specify a safetensors file"):
        bake(gru_options(tmp_path / "absent", tmp_path / "gru"), Silent())
    with pytest.raises(BadFile, match="is a folder, expected a file"):
        bake(gru_options(tmp_path, tmp_path / "gru"), Silent())
    (tmp_path / "model").write_bytes(b"GGUF and so on")
    with pytest.raises(BadFile, match="is not a complete safetensors file"):
        bake(gru_options(tmp_path / "model", tmp_path / "gru"), Silent())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps: expected"),
        ({"batch": -1}, "batch: expected"),
        ({"form": "x"}, "form: "),
    ],
    ids=str,
)
def test_invalid_options_are_rejected_by_name(
    file: Path, tmp_path: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        bake(gru_options(file, tmp_path / "gru", **options), Silent())
    assert not list(tmp_path.iterdir())


class Interrupted(Silent):
    """A progress in which Ctrl-C comes when a stage begins."""

    def __init__(self, at: str) -> None:
        self._at = at

    @contextmanager
    @override
    def stage(self, name: str, total: int = 0) -> Iterator[Callable[[int], None]]:
        if name == self._at:
            raise KeyboardInterrupt
        with super().stage(name, total) as advance:
            yield advance


def test_an_unused_form_is_reported_with_the_reason(file: Path, tmp_path: Path) -> None:
    """In the name of a stage, where this bake then ends."""
    stage = "trace the model, unrolled (fused: one step has no other to share a matmul with)"
    options = gru_options(file, tmp_path / "gru", steps=1, form="fused")
    with pytest.raises(KeyboardInterrupt):
        bake(options, Interrupted(stage))


@pytest.mark.parametrize("at", ["lower to StableHLO", "write the weights", "wait for the compiler"])
def test_an_interrupted_bake_leaves_nothing(file: Path, tmp_path: Path, at: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        bake(gru_options(file, tmp_path / "gru"), Interrupted(at))
    assert not list(tmp_path.iterdir())


def test_a_program_that_fails_its_self_test_is_not_kept(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ArraysRuntime.run

    def wrong(self: ArraysRuntime, function: str, inputs: Arrays) -> Arrays:
        return {name: array + 1 for name, array in run(self, function, inputs).items()}

    monkeypatch.setattr(ArraysRuntime, "run", wrong)
    with pytest.raises(BakeError, match=r"model\.vmfb: .* differs by .*; report it") as refused:
        bake(gru_options(file, tmp_path / "gru"), Silent())
    assert "bake the bundle" not in str(refused.value)
    assert not list(tmp_path.iterdir())


def amplifying() -> dict[str, NDArray[np.float32]]:
    """The weights of a GRU whose state after some steps depends on the rounding of the first."""
    rng, hidden = np.random.default_rng(0), 16
    return {
        "weight_ih_l0": rng.normal(size=(3 * hidden, D)).astype("f4"),
        "weight_hh_l0": (12 * hidden**-0.5 * rng.normal(size=(3 * hidden, hidden))).astype("f4"),
        "bias_ih_l0": np.zeros(3 * hidden, "f4"),
        "bias_hh_l0": np.zeros(3 * hidden, "f4"),
    }


@pytest.mark.nightly
def test_a_gru_that_amplifies_rounding_is_not_called_a_fault(tmp_path: Path) -> None:
    save_file(amplifying(), tmp_path / "chaotic.safetensors")
    options = gru_options(tmp_path / "chaotic.safetensors", tmp_path / "gru", steps=40, form="loop")
    message = (
        r"run: y: the function amplifies rounding: .* by \d\.\d+ in NumPy, .*; bake fewer steps"
    )
    with pytest.raises(BakeError, match=message) as refused:
        bake(options, Silent())
    assert "report it" not in str(refused.value)


def test_torch_rounds_that_gru_as_far_apart() -> None:
    """In f32 and in f64."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    tensors = amplifying()
    gru = torch.nn.GRU(D, tensors["weight_hh_l0"].shape[1])
    gru.load_state_dict({name: torch.tensor(array) for name, array in tensors.items()})
    x = torch.tensor(np.random.default_rng(1).standard_normal((40, B, D), np.float32))
    with torch.no_grad():
        narrow, wide = gru(x)[0].double(), gru.double()(x.double())[0]
    assert float((narrow - wide).abs().max()) > 100 * TOLERANCE


def test_a_gru_has_no_options_of_language_models(file: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="--context: gru is not a language model or encoder; "):
        bake(gru_options(file, tmp_path / "gru", context=64), Silent())
