"""What baking has in common, whatever is baked: places, the compiler at work, weights.

A bundle is made in a folder beside its place, its manifest last, and renamed when it is whole:
whatever goes wrong before leaves nothing there.
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from baker.compile import Compilation
from baker.parameters import write_parameters
from baker.targets import check_program
from models.bundle import (
    PARAMETER_SCOPE,
    PARAMETERS,
    VMFB,
    BundleError,
    WrongFormat,
    read_manifest,
    record_file,
)
from models.dsl.stablehlo import module_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from baker.weights.source import WeightSource
    from models.bundle import Compiler, FileRecord, Target
    from models.dsl.graph import Graph
    from models.dsl.types import TensorType
    from models.program import StoredTensor

_MODULE = "hearth"


class BakeError(Exception):
    """A bundle cannot be made or put in place; the message says why."""


class Progress(Protocol):
    """Where the baker says what it is doing."""

    def stage(self, name: str, total: int = 0) -> AbstractContextManager[Callable[[int], None]]:
        """A stage of the work; the function that it gives is told of `total` units as they go."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a bundle is made, for which machine, and who is told."""

    folder: Path
    target: Target
    progress: Progress


@contextmanager
def folder_beside(out: Path) -> Iterator[Path]:
    """A folder on the same disk as `out`, which is gone afterwards. Refuses a place in use.

    When the block ends without an error, what it made is renamed to `out`; an older bundle there
    steps aside first.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.exists() and not _is_bundle(out):
        raise BakeError(f"{out} exists and is not a bundle: choose another --out")
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as folder:
        made = Path(folder) / "bundle"
        made.mkdir()
        yield made
        if out.exists():
            out.rename(made.parent / "replaced")
        made.rename(out)


@contextmanager
def compiling(place: Place, graphs: Sequence[Graph]) -> Iterator[Compiler]:
    """Compile graphs while the block runs; when it ends, model.vmfb is there, for the target.

    Raises CompileError or TargetError.
    """
    vmfb, text = place.folder / VMFB, place.folder / "model.mlir"
    with place.progress.stage("lower to StableHLO"):
        text.write_text(module_text(_MODULE, graphs, PARAMETER_SCOPE), encoding="utf-8")
    with Compilation(text, vmfb, place.target) as compilation:
        yield compilation.compiler
        with place.progress.stage("compile"):
            compilation.wait()
    text.unlink()
    check_program(vmfb.read_bytes(), place.target)


def write_weights(
    place: Place,
    source: WeightSource,
    stored: Mapping[str, StoredTensor],
    parameters: Mapping[str, TensorType],
) -> None:
    """Write params.irpa, block by block; raises a WeightsError."""
    size = sum(kind.nbytes for kind in parameters.values())
    with place.progress.stage("write the weights", size) as advance:
        write_parameters(source, stored, parameters, place.folder / PARAMETERS, advance)


def statistics(graphs: Sequence[Graph], parameters: Mapping[str, TensorType]) -> dict[str, int]:
    """How large a program is."""
    return {
        "parameters": len(parameters),
        "weights_bytes": sum(kind.nbytes for kind in parameters.values()),
    } | {f"ops.{graph.name}": len(graph.nodes) for graph in graphs}


def records(paths: Iterable[Path]) -> tuple[FileRecord, ...]:
    """What the manifest says of some files."""
    return tuple(record_file(path) for path in paths)


def _is_bundle(path: Path) -> bool:
    try:
        read_manifest(path)
    except WrongFormat:
        return True  # of another version, whose readers are told to bake it again
    except BundleError:
        return False
    return True
