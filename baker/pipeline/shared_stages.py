"""The stages that every bake shares: compile, write the weights, record files and provenance."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hearthd.baker.atomic_folder import BakeError, folder_beside
from hearthd.baker.compiler.program_cache import ProgramCache, ProgramSource, compiling
from hearthd.baker.compiler.targets import check_program, find_targets
from hearthd.baker.parameters.native import requantized
from hearthd.baker.parameters.parameter_writer import write_parameters
from hearthd.baker.pipeline.file_digests import FileDigests
from hearthd.baker.pipeline.origin import hearth, source_records, tools
from hearthd.bundle import (
    PARAMETER_SCOPE,
    PARAMETERS,
    VMFB,
    ProgramFile,
    Provenance,
    record_file,
)
from hearthd.models.dsl.mlir.stablehlo import module, module_text
from hearthd.models.dsl.types import TypeRuleError
from hearthd.runtime.system.available_memory import available_memory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hearthd.baker.compiler.program_cache import Compiling
    from hearthd.baker.parameters.parameter_writer import Located, StoredRows
    from hearthd.baker.pipeline.bake_options import BakeOptions
    from hearthd.baker.progress import Progress
    from hearthd.baker.weights.source import WeightSource
    from hearthd.bundle import FileRecord, Target, TriedPrecision
    from hearthd.models.dsl.graph import Graph
    from hearthd.models.dsl.rewrites.stored_weights import Weight
    from hearthd.models.optimized import Unfused
    from hearthd.runtime.checks.self_test import Verdict

_MODULE = "hearth"
# Bytes of the sources that are hashed before the weights in them are written: about one tensor.
_LEAD = 256 << 20


@contextmanager
def storing_in(precision: str) -> Iterator[None]:
    """Trace a program in the block; raises BakeError if the precision cannot store a matrix."""
    try:
        yield
    except TypeRuleError as error:
        raise BakeError(
            f"--precision {precision} does not support this model: {error}; "
            "--precision bf16 supports every size"
        ) from error


@dataclass(frozen=True, kw_only=True)
class Destination:
    """Where a bundle is written, and for which machines.

    out       its folder
    targets   machines to compile for; the program of the first one is model.vmfb
    programs  programs that were compiled before, and where new ones are kept; None: neither
    """

    out: Path
    targets: tuple[Target, ...]
    programs: ProgramCache | None

    @contextmanager
    def workspace(self, size: int, progress: Progress) -> Iterator[Workspace]:
        """A folder that replaces `out` after the block, which writes `size` bytes.

        Raises BakeError or OSError. After an error or KeyboardInterrupt, nothing is left behind.
        """
        with folder_beside(self.out, size=size) as folder:
            yield Workspace(
                folder=folder, targets=self.targets, programs=self.programs, progress=progress
            )


def destination(options: BakeOptions, name: str) -> Destination:
    """Where a bake with these options writes; `name` is the folder's if they have none.

    Raises TargetError.
    """
    return Destination(
        out=options.out or Path(name if options.target == "host" else f"{name}-{options.target}"),
        targets=find_targets(options.target),
        programs=None if options.recompile else ProgramCache.at_home(),
    )


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """The folder that a bundle is made in, its targets, and where progress is reported.

    `targets` and `programs` as in the Destination.
    """

    folder: Path
    targets: tuple[Target, ...]
    programs: ProgramCache | None
    progress: Progress


@dataclass(frozen=True, kw_only=True)
class BakeRecord:
    """What the provenance records of a bake: see bundle/provenance.py.

    `package` is the import name of the package that holds the weights, None if they are files;
    `others` are the files of an adapter that is merged into them, then of a draft model.
    """

    model: str
    options: Mapping[str, Any]
    tried: tuple[TriedPrecision, ...] = ()
    package: str | None
    others: tuple[Path, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CompiledProgram:
    """A program that is being compiled, and the sha256 of its StableHLO text.

    `others` are the programs for other targets, once they are compiled.
    """

    compilation: Compiling
    graph: str
    others: list[ProgramFile] = field(default_factory=list)


@contextmanager
def compile_in_background(
    workspace: Workspace, graphs: Sequence[Graph], *, streamed: bool = False
) -> Iterator[CompiledProgram]:
    """Compile graphs while the block runs; all programs are complete when it ends.

    `streamed` as in `build`. The programs for other targets than the first are compiled at the end
    of the block. Raises CompileError or TargetError.
    """
    vmfb, text = workspace.folder / VMFB, workspace.folder / "model.mlir"
    with workspace.progress.stage("lower to StableHLO"):
        lowered = module(_MODULE, graphs, PARAMETER_SCOPE)
        program = lowered.text.encode()
        text.write_bytes(program)
    target, *others = workspace.targets
    source = ProgramSource(
        text=program,
        kernels=lowered.kernels,
        chains=lowered.chains,
        target=target,
        streamed=streamed,
    )
    with compiling(source, text, vmfb, workspace.programs) as compilation:
        compiled = CompiledProgram(
            compilation=compilation, graph=hashlib.sha256(program).hexdigest()
        )
        yield compiled
        with workspace.progress.stage("wait for the compiler"):
            compilation.wait()
    check_program(vmfb.read_bytes(), target)
    for other in others:
        with workspace.progress.stage(f"compile for {other.name}"):
            compiled.others.append(_compile_other(workspace, text, replace(source, target=other)))
    text.unlink()


def _compile_other(workspace: Workspace, text: Path, source: ProgramSource) -> ProgramFile:
    vmfb = workspace.folder / f"model.{source.target.name}.vmfb"
    with compiling(source, text, vmfb, workspace.programs) as compilation:
        compilation.wait()
    check_program(vmfb.read_bytes(), source.target)
    instructions = compilation.kernels.instructions
    return ProgramFile(file=vmfb.name, target=source.target, instructions=instructions)


def program_text(graphs: Sequence[Graph]) -> bytes:
    """The StableHLO of a program as UTF-8, the input of the compiler."""
    return module_text(_MODULE, graphs, PARAMETER_SCOPE).encode()


@dataclass(frozen=True)
class WeightRecords:
    """The records of params.irpa, and of the files that its weights come from."""

    parameters: FileRecord
    sources: tuple[FileRecord, ...]


def write_weights(
    workspace: Workspace,
    source: WeightSource,
    located: Sequence[Located],
    rounded: Mapping[str, StoredRows] = MappingProxyType({}),
) -> WeightRecords:
    """Write params.irpa in blocks; raises a WeightsError, also if the weights change meanwhile.

    The files are hashed meanwhile. `rounded` has the arrays of parameters that are already rounded.
    """
    size = weights_bytes(entry.weight for entry in located)
    if (text := requantized(source, located)) is not None:
        workspace.progress.note(text)
    path, sources = workspace.folder / PARAMETERS, source.files()
    source_bytes = sum(file.stat().st_size for file in sources)
    exceeds = source_bytes + size > available_memory()
    with (
        workspace.progress.stage("write the weights", size) as advance,
        FileDigests([path]) as written,
        FileDigests(sources, drops=exceeds) as read,
    ):
        count = 0

        def advanced(block: int) -> None:
            nonlocal count
            count += block
            advance(block)
            read.advance(count / size * source_bytes + _LEAD)

        write_parameters(source, located, path, advanced, rounded, reached=written.advance)
        (parameters,) = written.records()
        records = WeightRecords(parameters, read.records())
    source.require_unchanged()  # the digests are of the content that was read
    return records


def weights_bytes(weights: Iterable[Weight]) -> int:
    """The size of the weights in memory and, except for a few bytes, on disk."""
    return sum(array.type.nbytes for weight in weights for array in weight.parameters.values())


def statistics(
    graphs: Sequence[Graph],
    weights: Sequence[Weight],
    fusions: Mapping[str, Mapping[str, int]] = MappingProxyType({}),
) -> dict[str, int]:
    """The size of a program; and by function, how often each fusion was applied."""
    return {
        "parameters": sum(len(weight.parameters) for weight in weights),
        "weights_bytes": weights_bytes(weights),
        **{f"ops.{graph.name}": len(graph.nodes) for graph in graphs},
        **{
            f"fused.{name}.{rule}": count
            for name, counts in fusions.items()
            for rule, count in counts.items()
        },
    }


def unfused_texts(unfused: Mapping[str, Mapping[str, Unfused]]) -> Iterator[str]:
    """A line for each fusion whose kernel does not take a part of the program, which is slower.

    `unfused` has such parts by entry point and by fusion.
    """
    for fusion in dict.fromkeys(name for refused in unfused.values() for name in refused):
        points = [point for point, refused in unfused.items() if fusion in refused]
        refused = unfused[points[-1]][fusion]
        layers = f", layers {_ranges(refused.layers)}" if refused.layers else ""
        yield (
            f"not fused: {fusion} x{refused.count} in {points[-1]}{layers}, one of {len(points)} "
            f"such entry points: {refused.expected}"
        )


def _ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers, such as "0-3, 5"."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][-1] == number - 1:
            ranges[-1].append(number)
        else:
            ranges.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in ranges)


def provenance(
    record: BakeRecord, sources: Sequence[FileRecord], compiled: CompiledProgram
) -> Provenance:
    """The provenance of the new bundle, whose weights come from files with these records.

    The program is compiled.
    """
    kernels = compiled.compilation.kernels
    return Provenance(
        model=record.model,
        options=dict(record.options),
        tried=record.tried,
        hearth=hearth(),
        sources=(
            *source_records(sources, record.package),
            *source_records(records(record.others), None),
        ),
        graph=compiled.graph,
        compiler=compiled.compilation.compiler,
        kernels=kernels,
        tools=tools(kernels),
    )


def records(paths: Iterable[Path], *known: FileRecord) -> tuple[FileRecord, ...]:
    """The records of files for the manifest; `known` records are not computed again."""
    by_name = {record.name: record for record in known}
    return tuple(by_name.get(path.name) or record_file(path) for path in paths)


class ComparisonFailed(BakeError):
    """A compiled program does not compute what NumPy does."""


def require_passed(program_file: ProgramFile, verdict: Verdict) -> None:
    """Raise ComparisonFailed if a compiled program failed its comparison with golden values."""
    if not verdict.passed:
        raise ComparisonFailed(
            f"{program_file.file}: the comparison of the compiled program with NumPy failed: "
            f"{verdict.failure}; report it with the command of this bake and its weights"
        )
