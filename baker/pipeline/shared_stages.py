"""The stages that every bake shares: compile, write the weights, record files and provenance."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from baker.compiler.compilation import Compilation
from baker.compiler.targets import check_program
from baker.parameters.parameter_writer import LOWER, write_parameters
from baker.pipeline.origin import hearth, source_records, tools
from models.bundle import (
    PARAMETER_SCOPE,
    PARAMETERS,
    VMFB,
    Provenance,
    record_file,
)
from models.dsl.stablehlo import kernels, module_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from baker.progress import Progress
    from baker.weights.source import WeightSource
    from models.bundle import Compiler, FileRecord, Kernels, Target, TriedPrecision
    from models.dsl.graph import Graph
    from models.dsl.types import TensorType
    from models.program import StoredTensor

_MODULE = "hearth"


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """The folder that a bundle is made in, its target, and where progress is reported."""

    folder: Path
    target: Target
    progress: Progress


@dataclass(frozen=True, kw_only=True)
class RecordedRequest:
    """A bake request as the provenance records it: see models/bundle/provenance.py.

    `package` is the import name of the package that holds the weights, None if they are files.
    """

    model: str
    options: Mapping[str, Any]
    tried: tuple[TriedPrecision, ...] = ()
    package: str | None


@dataclass(frozen=True, kw_only=True)
class CompiledProgram:
    """The compiler and the kernels of a program, and the sha256 of its StableHLO text."""

    compiler: Compiler
    kernels: Kernels
    graph: str


@contextmanager
def compile_in_background(
    workspace: Workspace, graphs: Sequence[Graph]
) -> Iterator[CompiledProgram]:
    """Compile graphs while the block runs; model.vmfb is complete when it ends.

    Raises CompileError or TargetError.
    """
    vmfb, text = workspace.folder / VMFB, workspace.folder / "model.mlir"
    with workspace.progress.stage("lower to StableHLO"):
        program = program_text(graphs)
        text.write_bytes(program)
    with Compilation(text, vmfb, workspace.target, kernels=kernels(graphs)) as compilation:
        yield CompiledProgram(
            compiler=compilation.compiler,
            kernels=compilation.kernels,
            graph=hashlib.sha256(program).hexdigest(),
        )
        with workspace.progress.stage("compile"):
            compilation.wait()
    text.unlink()
    check_program(vmfb.read_bytes(), workspace.target)


def program_text(graphs: Sequence[Graph]) -> bytes:
    """The StableHLO of a program as UTF-8, the input of the compiler."""
    return module_text(_MODULE, graphs, PARAMETER_SCOPE).encode()


def write_weights(
    workspace: Workspace,
    source: WeightSource,
    stored: Mapping[str, tuple[StoredTensor, ...]],
    parameters: Mapping[str, TensorType],
) -> None:
    """Write params.irpa in blocks; raises a WeightsError, also if the weights change meanwhile."""
    with workspace.progress.stage("write the weights", weights_bytes(parameters)) as advance:
        write_parameters(source, stored, parameters, workspace.folder / PARAMETERS, advance)
    source.require_unchanged()


def weights_bytes(parameters: Mapping[str, TensorType]) -> int:
    """The size of the weights in memory and, except for a few bytes, on disk."""
    return sum(kind.nbytes for kind in parameters.values())


def statistics(graphs: Sequence[Graph], parameters: Mapping[str, TensorType]) -> dict[str, int]:
    """How large a program is."""
    return {
        "parameters": len(parameters),
        "weights_bytes": weights_bytes(parameters),
        # Lower halves, of which a step reads what matters.
        "refining_bytes": sum(
            kind.nbytes for name, kind in parameters.items() if name.endswith(LOWER)
        ),
    } | {f"ops.{graph.name}": len(graph.nodes) for graph in graphs}


def provenance(
    recorded: RecordedRequest, source: WeightSource, compiled: CompiledProgram
) -> Provenance:
    """The provenance of the new bundle; computes the digests of the weights' files.

    Raises BadFile if they have changed.
    """
    sources = source_records(source.files(), recorded.package)
    source.require_unchanged()  # the digests are of the content that was read
    return Provenance(
        model=recorded.model,
        options=dict(recorded.options),
        tried=recorded.tried,
        hearth=hearth(),
        sources=sources,
        graph=compiled.graph,
        compiler=compiled.compiler,
        kernels=compiled.kernels,
        tools=tools(compiled.kernels),
    )


def records(paths: Iterable[Path]) -> tuple[FileRecord, ...]:
    """The records of files for the manifest."""
    return tuple(record_file(path) for path in paths)
