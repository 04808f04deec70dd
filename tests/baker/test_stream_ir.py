"""What the compiler makes of the caches: updated where they lie, never copied, never merged."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hearthd.baker.compiler.compilation import Compilation
from hearthd.baker.compiler.targets import find_target
from hearthd.baker.pipeline.memory_plan import footprint
from hearthd.models.decoder import entry_points
from hearthd.models.dsl.mlir.stablehlo import module_text
from hearthd.models.families.gemma3 import Gemma3
from hearthd.models.program import ProgramOptions
from tests.models.presets import GEMMA3

if TYPE_CHECKING:
    from hearthd.models.program import Program

OPTIONS = ProgramOptions(
    context=2048,
    precision="f32",
    prefill_tokens=(16, 128),
    decode_batches=(1, 2),
    verify_tokens=(2,),
)
# The 270m's first layers, the last one global: it has three times these.
CONFIG = replace(GEMMA3["270m"], layers=6, windows=GEMMA3["270m"].windows[:6])
# A layer of each kind.
SHORT = replace(CONFIG, layers=2, windows=CONFIG.windows[-2:])
# Those that read a few tokens and give logits.
KINDS = ("decode", "verify")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((CONFIG, {"precision": "f32"}), marks=pytest.mark.nightly, id="f32"),
        pytest.param((CONFIG, {"precision": "int8-g32"}), id="int8-g32"),
        pytest.param(
            (SHORT, {"precision": "int8-g32", "kv_cache": "int8", "decode_batches": (1,)}),
            id="int8-g32 with int8 caches",
        ),
    ],
)
def program(request: pytest.FixtureRequest) -> Program:
    """With the compiler's attention, and with our kernels' over f16 and int8."""
    config, options = request.param
    return entry_points.program(Gemma3(config), replace(OPTIONS, **options))


def smallest_cache(program: Program) -> int:
    """The bytes of the smallest buffer of keys or values."""
    return min(spec.bytes for spec in program.caches if not spec.name.endswith("_scale"))


@pytest.fixture(scope="module")
def decode_ir(program: Program, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The stream dialect of the entry points of KINDS: every copy, fill, allocation by size."""
    folder = tmp_path_factory.mktemp("stream")
    graphs = [graph for point, graph in program.entry_points if point.kind in KINDS]
    (folder / "in.mlir").write_text(module_text("hearth", graphs, "model"), encoding="utf-8")
    target = find_target("host")
    with Compilation(folder / "in.mlir", folder / "out.mlir", target, until="stream") as compiler:
        compiler.wait()
    return (folder / "out.mlir").read_text(encoding="utf-8")


def constants(ir: str) -> dict[str, int]:
    """Index constants by name: sizes are written as %c1024 or %c1024_7."""
    return {
        name: int(value)
        for name, value in re.findall(r"(%c\w+) = arith.constant (\d+) : index", ir)
    }


def test_decode_copies_nothing_of_cache_size(program: Program, decode_ir: str) -> None:
    smallest = smallest_cache(program)
    sizes = constants(decode_ir)
    operation = r"stream\.(?:cmd\.(?:copy|fill)|async\.(?:clone|copy|update|fill|splat))"
    moved = [sizes[name] for name in re.findall(rf"{operation} [^\n]*?, (%c\w+) :", decode_ir)]
    assert all(size < smallest for size in moved), sorted(set(moved))


def test_no_dispatch_moves_a_cache(program: Program, decode_ir: str) -> None:
    smallest = smallest_cache(program)
    moves = re.findall(r"public @\w+_slow_memcpy .*?\n    }\n  }\n", decode_ir, re.DOTALL)
    for body in moves:
        for extents in re.findall(r"dispatch\.tensor<\w+:tensor<([\dx]+)xf32>>", body):
            assert 4 * math.prod(map(int, extents.split("x"))) < smallest


def test_every_cache_is_consumed_and_written_in_place(program: Program, decode_ir: str) -> None:
    caches = len(program.caches)
    slots = sum(point.batch for point, _ in program.entry_points if point.kind in KINDS)
    assert len(re.findall(r"stream\.tensor\.import [^\n]*\bconsume\b", decode_ir)) == slots * caches
    writes, refined = r"stream\.cmd\.dispatch @\w+::@\w*scatter", 0
    if "@chain_" in decode_ir:
        writes = r"\n +rw [^\n]*<external>"  # what is passed to a dispatch to be written
        # Logits: blocks of several rows are computed again with 16 bits before they are refined.
        points = [point for point, _ in program.entry_points if point.kind in KINDS]
        refined = sum(1 + (point.batch * point.tokens > 1) for point in points)
    assert len(re.findall(writes, decode_ir)) == slots * caches + refined


def test_no_dispatch_packs_a_cache(program: Program, decode_ir: str) -> None:
    """Data tiling would lay a whole cache out anew on every step."""
    for spec in program.caches:
        assert f"encode_{spec.rows}x{spec.width}x" not in decode_ir


def test_a_token_takes_few_dispatches(program: Program, decode_ir: str) -> None:
    """After each of them the workers wait for each other."""
    body = decode_ir[decode_ir.index("util.func public @decode_1(") :].partition("util.func")[2]
    dispatches = len(re.findall(r"stream\.cmd\.dispatch", body.partition("util.func")[0]))
    layers = sum(spec.name.endswith(".key") for spec in program.caches)
    per_layer = 1 if "@chain_" in decode_ir else 27
    # Besides: the table, the positions and the head.
    assert per_layer * layers <= dispatches <= per_layer * layers + 15


def allocations(ir: str) -> dict[str, int]:
    """Bytes that each function allocates while it runs, and, under "", bytes of weights."""
    sizes = constants(ir)
    allocated = Counter[str]()
    function = ""
    pattern = (
        r"util\.func public @(\w+)|"
        r"stream\.resource\.alloca [^\n]*!stream\.resource<(\w+)>{(%c\w+)}"
    )
    for name, lifetime, size in re.findall(pattern, ir):
        function = name or function
        if size:
            allocated["" if lifetime == "constant" else function] += sizes[size]
    return allocated


def test_allocations_stay_within_the_memory_plan(program: Program, decode_ir: str) -> None:
    graphs = {point.name: graph for point, graph in program.entry_points if point.kind in KINDS}
    predicted = footprint(list(graphs.values()), program.parameters)
    allocated = allocations(decode_ir)
    weights = allocated.pop("", 0)  # what our own kernels read lies in its place already
    assert abs(weights - predicted.laid_out) <= predicted.laid_out / 100
    assert allocated.keys() == graphs.keys()
    for name, size in allocated.items():
        assert predicted.calls[name] / 4 < size <= predicted.calls[name]
