"""The compiler has the faults of docs/iree-reports, and each has its function in iree_faults.

When the compiler is mended, a test of its report fails: then the function and the report can go.
"""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import re
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from iree.compiler.tools.binaries import find_tool

from hearthd.baker.compiler.compilation import compiler_for
from hearthd.baker.compiler.targets import find_target
from hearthd.models.dsl import iree_faults
from hearthd.models.dsl.graph import Graph, Input, Tensor
from hearthd.models.dsl.types import DType, TensorType
from tests.models.compiled import Loaded
from tests.models.families.test_compiled import concurrent_copies

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Array = NDArray[Any]

ROOT = Path(__file__).parents[3]
REPORTS = {path.stem: path for path in (ROOT / "docs/iree-reports").glob("*.mlir")}
CHECKED = "--verify=true"  # checks between passes, which `hearth bake` leaves out
WRITES = "write affecting operations on global resources are restricted"
# The compiler's message for each report, and flags besides the baker's.
REJECTED = {
    "contracted_broadcast": ("invalid accumulator/result vector shape", CHECKED),
    "converted_reshape": ("failed to legalize operation 'stablehlo.negate'",),
    "gathered_column": (
        "LLVM Translation failed for operation: builtin.unrealized_conversion_cast",
    ),
    "loop_beside_initializer": ("maximum iteration count exceeded in fixed point pipeline",),
    "narrow_groups": ("op requires the same type for all operands and results",),
    "packed_booleans": ("expected padding_value has 'i8' but got: 'i1'", CHECKED),
    "packed_in_a_sum": (WRITES,),
    "padded_sum": (WRITES,),
    "padded_update": (WRITES,),
    "product_of_one_term": (WRITES,),
    "repeated_rows": ("include the crash backtrace",),
    "repeated_weights": ("include the crash backtrace",),
    "reversed_slice": (
        "LLVM Translation failed for operation: builtin.unrealized_conversion_cast",
    ),
    "updated_slice": (WRITES,),
    "waiting_kernels": ("failed to schedule execution partitions without cyclic dependencies",),
    "wide_rows": ("One or more operations with large vector sizes",),
    "written_by_a_matvec": (WRITES,),
}


def normal(*shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(3).normal(size=shape).astype(dtype)


def f32(*values: float) -> Array:
    return np.array(values, np.float32)


def packed_rows() -> tuple[list[Array], list[Array]]:
    w, v = np.abs(normal(2, 3, 3)) + 1, normal(2, 3, 4)
    return [w, v], [(w / w.sum(2, keepdims=True)) @ v]


def merged_axes() -> tuple[list[Array], list[Array]]:
    x, y = normal(3, 2, 5, 3, dtype=ml_dtypes.bfloat16), normal(2, 3, 3, dtype=ml_dtypes.bfloat16)
    return [x, y], [np.einsum("kbmn,bpk->bmnp", x.astype(np.float32), y.astype(np.float32))]


def updated_argument() -> tuple[list[Array], list[Array]]:
    x, updates = normal(5, 3), np.ones((2, 3), np.float32)
    expected = x.copy()
    expected[[1, 3]] = updates
    return [x, np.array([1, 3], np.int32), updates], [expected, x]


def updated_before_read() -> tuple[list[Array], list[Array]]:
    a, b, updates, h = normal(1, 4), normal(12, 1, 4), np.ones((1, 4), np.float32), normal(9, 3, 12)
    half = h.astype(np.float16)
    expected = [np.exp(a) - b, np.exp(a) + updates, half * np.float16(0.5)]
    return [a, b, np.zeros(1, np.int32), updates, half], expected


def padded_between() -> tuple[list[Array], list[Array]]:
    return [f32(1, 2, 3)[None]], [np.stack([f32(1, 0, 2, 0, 3), np.zeros(5, np.float32)])]


def padded_before() -> tuple[list[Array], list[Array]]:
    return [f32(1)], [np.eye(12, dtype=np.float32)[7]]


def one_hot_rows() -> tuple[list[Array], list[Array]]:
    x, rows = normal(8, 4), np.array([2, 0, 7], np.int32)
    return [x, rows], [x[rows]]


def skipped_by_dilation() -> tuple[list[Array], list[Array]]:
    x, w = normal(1, 4, 3), normal(2, 2, 2)
    x[0, :, 1] = np.inf
    taken = x[0, :, ::2].reshape(2, 2, 2)  # groups, their channels, and what the kernel covers
    return [x, w], [np.einsum("gck,gck->g", taken, w).reshape(1, 2, 1)]


def large_angles() -> tuple[list[Array], list[Array]]:
    return [f32(131072, 1)], [np.cos([131072.0, 1.0]).astype(np.float32)]


def negative_powers() -> tuple[list[Array], list[Array]]:
    return [f32(-2, 0, 1), f32(4, 0, np.inf)], [f32(16, 1, 1)]


WRONG: tuple[Callable[[], tuple[list[Array], list[Array]]], ...] = (
    packed_rows,
    merged_axes,
    updated_argument,
    updated_before_read,
    padded_between,
    padded_before,
    one_hot_rows,
    skipped_by_dilation,
    large_angles,
    negative_powers,
)


def compile_report(
    name: str, folder: Path, *flags: str, target: str
) -> subprocess.CompletedProcess[str]:
    command = [find_tool("iree-compile"), *compiler_for(find_target(target)).flags]
    added = ["--iree-input-type=auto", *flags, "-o", str(folder / "report")]
    return subprocess.run(
        [*command, *added, str(REPORTS[name])],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(folder)},
    )


def call_report(program: Path, arguments: list[Array], expected: list[Array]) -> list[Array]:
    types = (TensorType(one.shape, DType.of(one.dtype)) for one in expected)
    results = tuple(Tensor(one, Input(f"y{i}")) for i, one in enumerate(types))
    return Loaded(program).call(Graph("f", (), results, {}, {}, ()), arguments)


def test_the_faults_are_those_of_the_installed_compiler() -> None:
    """After an upgrade, the nightly tests of this file show which of them are mended."""
    assert version("iree-base-compiler") == iree_faults.IREE_VERSION
    page = (ROOT / "docs/iree-reports.md").read_text(encoding="utf-8")
    assert f"IREE {iree_faults.IREE_VERSION} " in page


def test_each_fault_that_programs_avoid_has_a_function_of_its_name() -> None:
    page = (ROOT / "docs/iree-reports.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| `(\w+)(?:\.mlir`|`, no small program yet) \| .* \| (.*) \|$", page, re.M
    )
    modules = [
        importlib.import_module(f"{iree_faults.__name__}.{module.name}")
        for module in pkgutil.iter_modules(iree_faults.__path__)
        if module.name not in ("barriers", "tensor_sets")
    ]
    functions = {
        name
        for module in modules
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }
    assert functions == {name for name, avoided in rows if not avoided.startswith("nothing")}
    assert {name for name, _ in rows} == {*REPORTS, "large_vector_sizes"}


def test_each_report_is_tested() -> None:
    wrong = {one.__name__ for one in WRONG}
    assert {*REJECTED, *wrong, "concurrent_copies"} == set(REPORTS)


@pytest.mark.nightly
@pytest.mark.parametrize("name", REJECTED)
def test_the_compiler_rejects_or_crashes(name: str, tmp_path: Path) -> None:
    """For CPUs with AVX-512: some reports compile for others."""
    message, *flags = REJECTED[name]
    done = compile_report(name, tmp_path, *flags, target="x86_64-v4")
    assert done.returncode
    assert message in done.stderr


@pytest.mark.nightly
@pytest.mark.parametrize("report", WRONG, ids=lambda one: one.__name__)
def test_the_compiler_computes_wrong_values(report: Any, tmp_path: Path) -> None:
    name = report.__name__
    assert not compile_report(name, tmp_path, target="host").returncode
    arguments, expected = report()
    results = call_report(tmp_path / "report", arguments, expected)
    assert not all(map(np.allclose, results, expected))


@pytest.mark.nightly
def test_copies_run_at_the_same_time(tmp_path: Path) -> None:
    """Wrong values are rare, so what the compiler schedules is read."""
    done = compile_report("concurrent_copies", tmp_path, "--compile-to=stream", target="host")
    assert not done.returncode
    regions = list(concurrent_copies((tmp_path / "report").read_text(encoding="utf-8")))
    assert any(a.writes_what(b) for copies in regions for a in copies for b in copies)
