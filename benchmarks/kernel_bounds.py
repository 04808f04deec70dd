"""Predict by llvm-mca how fast CPUs that are not here multiply quantized weights.

    python -m benchmarks.kernel_bounds --llvm-mca llvm-mca-19 --json bounds.json

For each board and precision, the kernel is compiled as a bake for the board does. llvm-mca, a tool
of LLVM, simulates the loop that multiplies one row of activations with groups of 512 weights
(16 rows of 32 columns) on its model of the core, where all data are in the first cache. From the
cycles of a group follow the weights that all cores can multiply, in GB/s. Where that exceeds what
the board's memory delivers by its data sheet, decoding is bound by memory.

LLVM has no model of Gracemont: that of Alder Lake's large core is used, which has twice its vector
units.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.report.machine import describe_machine, write_json
from hearthd.baker.compiler.kernel_objects import FLAGS, PACKAGE
from hearthd.baker.compiler.targets import find_target
from hearthd.baker.presentation.table import Table, print_table
from hearthd.models.dsl import matrix_format as formats
from hearthd.models.dsl.kernel_sources import KERNELS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hearthd.models.bundle import Target

PARTS = 2  # of an activation
PRODUCTS = formats.ROWS * formats.GROUP * PARTS  # of a group with one row
_ITERATIONS = 50
# The products that an instruction computes, by its text as clang writes it.
_MULTIPLIES = (
    (re.compile(r"s(mull|mlal)2?\s+v\d+\.8h"), 8),
    (re.compile(r"sdot\s"), 16),
    (re.compile(r"smmla\s"), 32),
    (re.compile(r"(\{vex\}\s+)?vp(dpbusd|maddubsw)\s.*%zmm"), 64),
    (re.compile(r"(\{vex\}\s+)?vp(dpbusd|maddubsw)\s.*%ymm"), 32),
)
_LABEL = re.compile(r"(\.L\w+):")
_BRANCH = re.compile(r"\s+(?:b\.?\w*|cbn?z|tbn?z|j\w+)\s+(?:.*,\s*)?(\.L\w+)$")
_CYCLES = re.compile(r"^Total Cycles:\s+(\d+)", re.MULTILINE)


class BoundsError(Exception):
    """A loop is not found, or llvm-mca fails."""


@dataclass(frozen=True, kw_only=True)
class Board:
    """A machine: its target of `bake`, llvm-mca's model of its cores, and its memory by data sheet.

    gigahertz  of all cores at once
    memory     GB/s: transfers a second times the bytes of one
    """

    name: str
    target: str
    model: str
    cores: int
    gigahertz: float
    memory: float


BOARDS = (
    # LPDDR2-900, 32 bits.
    Board(name="Raspberry Pi 3", target="aarch64-v8", model="cortex-a53", cores=4, gigahertz=1.2,
          memory=3.6),
    # LPDDR4-3200, 32 bits.
    Board(name="Raspberry Pi 4", target="aarch64-v8", model="cortex-a72", cores=4, gigahertz=1.5,
          memory=12.8),
    # LPDDR4X-4267, 32 bits.
    Board(name="Raspberry Pi 5", target="aarch64", model="cortex-a76", cores=4, gigahertz=2.4,
          memory=17.1),
    # DDR5-4800, 8 channels of 64 bits.
    Board(name="Graviton 3", target="aarch64-i8mm", model="neoverse-v1", cores=64, gigahertz=2.6,
          memory=307.2),
    # DDR5-4800, 64 bits.
    Board(name="Intel N100", target="x86_64-avxvnni", model="alderlake", cores=4, gigahertz=2.9,
          memory=38.4),
    # Ryzen 7 7700; DDR5-5200, 128 bits.
    Board(name="Zen 4", target="x86_64-avx512vnni", model="znver4", cores=8, gigahertz=3.8,
          memory=83.2),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Precision:
    """A stored form of weights: its kernel, and the bytes of a group of 512 weights."""

    name: str
    kernel: str
    group_bytes: int


def precisions() -> tuple[Precision, ...]:
    """The formats of at most 8 bits without minimums, by bits."""
    return tuple(
        Precision(
            name=one.name,
            kernel=f"linear_{one.symbol}",
            group_bytes=sum(
                array.nbytes for array in one.arrays(formats.ROWS, formats.GROUP).values()
            ),
        )
        for one in formats.STORED
        if one.bits <= 8 and not one.minimum
    )


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A prediction: cycles of a group on a core, and GB/s of weights that all cores multiply."""

    board: str
    precision: str
    cycles: float
    computed: float
    memory: float

    @property
    def limit(self) -> str:
        """What bounds a product with one row."""
        return "memory" if self.computed >= self.memory else "computation"


def assembly(kernel: str, target: Target) -> str:
    """The kernel as the bake's compiler writes it for a target."""
    machine = target.triple.partition("-")[0]
    flags = ("-target", f"{machine}-linux-gnu", f"-mcpu={target.cpu.replace('-', '_')}", *FLAGS)
    command = (sys.executable, "-m", PACKAGE, "cc", *flags, "-Wno-unused-command-line-argument")
    with (
        as_file(files("hearthd.models.dsl") / "kernels") as sources,
        tempfile.TemporaryDirectory() as top,
    ):
        out = Path(top) / "kernel.s"
        source = KERNELS[kernel]
        macros = [f"-D{macro}={value}" for macro, value in source.macros.items()]
        arguments = [*macros, f"-I{sources}", "-S", str(sources / source.file)]
        subprocess.run([*command, *arguments, "-o", str(out)], check=True)
        return out.read_text()


def group_loop(text: str) -> list[str]:
    """The instructions that multiply a group with one row, in the order in which they run.

    The loop over groups may have one inner loop that multiplies, which is repeated as often as the
    products of a group need. A loop over rows, which is all that multiplies in a loop over groups,
    is left out: it does not unpack the weights. Raises BoundsError if no loop is left.
    """
    lines = [re.split(r"//|#(?!\d|:|-)", line)[0].rstrip() for line in text.splitlines()]
    loops = list(_loops(lines))
    found = []
    for start, end in loops:
        inner = [
            (first, last)
            for first, last in loops
            if start < first and last < end and _products(_instructions(lines[first:last]))
        ]
        body = _instructions(lines[start:end])
        static = _products(body)
        over_rows = any(
            first < start and end < last and _products(_instructions(lines[first:last])) == static
            for first, last in loops
        )
        if len(inner) > 1 or over_rows:
            continue
        if inner:
            first, last = inner[0]
            repeated = _instructions(lines[first:last])
            count = (PRODUCTS - _products(body)) // _products(repeated) + 1
            before, after = lines[start:first], lines[last:end]
            body = [*_instructions(before), *count * repeated, *_instructions(after)]
        if _products(body) == PRODUCTS:
            found.append(body)
    if not found:
        raise BoundsError("no loop multiplies one row with a group of weights")
    return min(found, key=len)


def _loops(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The first line of each loop, and the one after its branch back."""
    labels: dict[str, int] = {}
    for number, line in enumerate(lines):
        if label := _LABEL.match(line):
            labels[label[1]] = number
        elif (branch := _BRANCH.match(line)) and branch[1] in labels:
            yield labels[branch[1]], number + 1


def _instructions(lines: Sequence[str]) -> list[str]:
    """Without labels, directives and branches, which llvm-mca does not follow."""
    return [
        line.strip()
        for line in lines
        if line[:1] == "\t" and line.strip()[:1] != "." and not _BRANCH.match(line)
    ]


def _products(instructions: Sequence[str]) -> int:
    return sum(count for line in instructions for form, count in _MULTIPLIES if form.match(line))


def cycles(llvm_mca: str, instructions: Sequence[str], triple: str, model: str) -> float:
    """The cycles of a run of the instructions, one of many; raises BoundsError."""
    command = (llvm_mca, f"-mtriple={triple}", f"-mcpu={model}", f"-iterations={_ITERATIONS}", "-")
    done = subprocess.run(
        command, input="\n".join(instructions), capture_output=True, text=True, check=False
    )
    total = _CYCLES.search(done.stdout)
    if done.returncode or not total:
        raise BoundsError(f"{llvm_mca}: {done.stderr.strip()}")
    return int(total[1]) / _ITERATIONS


def predict(llvm_mca: str, board: Board, precision: Precision) -> Bound:
    """Compile, simulate, and scale to all cores; raises BoundsError."""
    target = find_target(board.target)
    instructions = group_loop(assembly(precision.kernel, target))
    taken = cycles(llvm_mca, instructions, target.triple, board.model)
    computed = board.cores * board.gigahertz * precision.group_bytes / taken
    return Bound(
        board=board.name,
        precision=precision.name,
        cycles=taken,
        computed=computed,
        memory=board.memory,
    )


def bounds_table(bounds: Sequence[Bound]) -> Table:
    """A row for each board and precision."""
    return Table(
        title="One row times int4 to int8, predicted",
        headings=("Board", "Precision", "Cycles", "All cores, GB/s", "Memory, GB/s", "Bound by"),
        rows=tuple(
            (
                bound.board,
                bound.precision,
                f"{bound.cycles:.0f}",
                f"{bound.computed:.1f}",
                f"{bound.memory:.1f}",
                bound.limit,
            )
            for bound in bounds
        ),
    )


def main() -> None:
    """Predict every board and precision, print the table and write the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--llvm-mca", default="llvm-mca", metavar="PATH", help="LLVM's simulator")
    parser.add_argument("--json", type=Path, help="write the figures as JSON")
    arguments = parser.parse_args()
    if not shutil.which(arguments.llvm_mca):
        sys.exit(f"kernel_bounds: {arguments.llvm_mca} is not a program; set --llvm-mca")
    try:
        bounds = [
            predict(arguments.llvm_mca, board, precision)
            for board in BOARDS
            for precision in precisions()
        ]
    except BoundsError as error:
        sys.exit(f"kernel_bounds: {error}")
    print_table(bounds_table(bounds))
    if arguments.json:
        rows = [{**asdict(bound), "limit": bound.limit} for bound in bounds]
        write_json(arguments.json, describe_machine(1), bounds=rows)


if __name__ == "__main__":
    main()
