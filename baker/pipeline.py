"""Baking: from weights to a bundle, stage by stage.

The bundle is made in a folder beside its place, its manifest last, and renamed when it is whole:
whatever goes wrong before leaves nothing there.
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tokenizers import Tokenizer

from baker import recipe, targets
from baker.compile import Compilation
from baker.golden import TOLERANCE, golden_values
from baker.parameters import locate, write_parameters
from baker.prefix import prefix_ids, write_prefix
from baker.reference import NumpyRuntime, stored_parameters
from baker.tokenizer import chat_template, special_tokens, tokenizer_json
from baker.weights.open import open_weights
from models import bundle as layout
from models.bundle import LanguageManifest, read_manifest, record_file, write_manifest
from models.dsl.stablehlo import module_text
from models.program import ProgramOptions
from server.runtime.iree import IreeRuntime
from server.runtime.selftest import self_test

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from baker.recipe import Defaults, Order
    from baker.weights.source import WeightSource
    from models.architecture import Architecture
    from models.bundle import Compiler, Golden, Target
    from models.config import ModelConfig
    from models.program import Program

_MODULE = "hearth"


class BakeError(Exception):
    """A bundle cannot be made or put in place; the message says why."""


class Progress(Protocol):
    """Where the baker says what it is doing."""

    def stage(self, name: str, total: int = 0) -> AbstractContextManager[Callable[[int], None]]:
        """A stage of the work; the function that it gives is told of `total` units as they go."""


@dataclass(frozen=True)
class _Work:
    """What the stages share."""

    source: WeightSource
    architecture: Architecture[Any]
    config: ModelConfig
    defaults: Defaults
    target: Target
    program: Program
    prefix: str | None
    folder: Path
    progress: Progress


def bake(order: Order, progress: Progress) -> Path:
    """Bake a bundle; returns its folder.

    Raises WeightsError, ConfigError, RecipeError, TargetError, CompileError, PrefixError, BakeError
    or OSError; then, as after KeyboardInterrupt, no bundle and no file is left behind.
    """
    with progress.stage("open the weights"):
        architecture = recipe.architecture_of(order)
        source = open_weights(order.weights or recipe.packaged_weights(order))
        config = _config(source, architecture)
        defaults = recipe.defaults_for(order, config)
        target = targets.find_target(order.target)
        prefix = _prefix_text(order.prefix, target)
    with progress.stage("trace the model"):
        options = ProgramOptions(
            context=defaults.context,
            precision=defaults.precision,
            prefill_tokens=defaults.prefill_tokens,
            decode_batches=recipe.decode_batches(defaults.slots),
        )
        program = architecture.program(config, options)
    out = order.out or Path(_name(order, config, defaults, target))
    with _folder_beside(out) as folder:
        work = _Work(
            source, architecture, config, defaults, target, program, prefix, folder, progress
        )
        _make(work)
        _put_in_place(folder, out)
    return out


def _make(work: _Work) -> None:
    """Write every file of the bundle. The compiler works while the weights are written."""
    folder = work.folder
    stored = locate(work.source, work.architecture, work.config, work.program)
    with work.progress.stage("lower to StableHLO"):
        text = folder / "model.mlir"
        text.write_text(
            module_text(_MODULE, work.program.graphs, layout.PARAMETER_SCOPE), encoding="utf-8"
        )
    with Compilation(text, folder / layout.VMFB, work.target) as compilation:
        size = sum(kind.nbytes for kind in work.program.parameters.values())
        with work.progress.stage("write the weights", size) as advance:
            write_parameters(work.source, stored, work.program, folder / layout.PARAMETERS, advance)
        with work.progress.stage("write the tokenizer"):
            tokenizer = _write_tokenizer(work)
        with work.progress.stage("compile"):
            compilation.wait()
    text.unlink()
    # Not beside the compiler: its threads and NumPy's would take each other's time.
    golden = _golden(work, tokenizer)
    targets.check_program((folder / layout.VMFB).read_bytes(), work.target)
    with work.progress.stage("write the manifest"):
        manifest = _manifest(work, compilation.compiler, golden)
        write_manifest(folder, manifest)
    if targets.runs_here(work.target):
        with work.progress.stage("compare with NumPy"):
            runtime = IreeRuntime(folder, manifest, threads=None)
            verdict = self_test(runtime, manifest.golden, manifest.tolerance)
        if not verdict.passed:
            raise BakeError(f"the compiled program is not the model: {verdict.message}")
        _write_prefix(work, tokenizer, runtime, manifest)


def _write_prefix(
    work: _Work, tokenizer: Tokenizer, runtime: IreeRuntime, manifest: LanguageManifest
) -> None:
    """Read the prefix, if there is one, and put what it leaves into the bundle."""
    if work.prefix is None:
        return
    bos = manifest.special_tokens.bos
    with work.progress.stage("read the prefix"):
        ids = prefix_ids(work.prefix, tokenizer, bos, chunk=runtime.chunk, context=manifest.context)
        path = work.folder / layout.PREFIX
        write_prefix(runtime, ids, path)
        files = (*manifest.files, record_file(path))
        write_manifest(work.folder, replace(manifest, files=files))


def _prefix_text(path: Path | None, target: Target) -> str | None:
    if path is None:
        return None
    if not targets.runs_here(target):
        raise BakeError(
            f"--prefix: the program for {target.name} must run to read it, and this machine cannot "
            "run it: bake on the device, or leave it out"
        )
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BakeError(f"--prefix: {path} is not UTF-8 text: {error}") from error


def _config(source: WeightSource, architecture: Architecture[Any]) -> ModelConfig:
    if source.format == "gguf":
        shapes = {name: source.shape(name) for name in source.names()}
        config: ModelConfig = architecture.from_gguf(source.metadata(), shapes)
    else:
        config = architecture.from_hugging_face(source.metadata())
    return config


def _name(order: Order, config: ModelConfig, defaults: Defaults, target: Target) -> str:
    """The name of a bundle for which the order has none."""
    size = recipe.size_of(order.model, config) or "custom"
    parts = [order.model, size, defaults.precision]
    return "-".join(parts if target.name == "host" else [*parts, target.name])


def _write_tokenizer(work: _Work) -> Tokenizer:
    text = tokenizer_json(work.source)
    (work.folder / layout.TOKENIZER).write_text(text, encoding="utf-8")
    template = chat_template(work.source)
    if template is not None:
        (work.folder / layout.CHAT_TEMPLATE).write_text(template, encoding="utf-8")
    return Tokenizer.from_str(text)


def _golden(work: _Work, tokenizer: Tokenizer) -> tuple[Golden, ...]:
    parameters = stored_parameters(work.program, work.folder / layout.PARAMETERS)
    context, slots = work.defaults.context, work.defaults.slots
    runtime = NumpyRuntime(work.program, parameters, context=context, slots=slots)
    with work.progress.stage("compute golden values with NumPy"):
        return tuple(golden_values(runtime, tokenizer))


def _manifest(work: _Work, compiler: Compiler, golden: tuple[Golden, ...]) -> LanguageManifest:
    program = work.program
    statistics = {
        "parameters": len(program.parameters),
        "weights_bytes": sum(kind.nbytes for kind in program.parameters.values()),
        "cache_bytes_per_slot": sum(spec.bytes for spec in program.caches),
    } | {f"ops.{graph.name}": len(graph.nodes) for graph in program.graphs}
    return LanguageManifest(
        format=layout.FORMAT,
        hearth=version("hearth"),
        architecture=work.architecture.name,
        config=work.architecture.to_manifest(work.config),
        precision=work.defaults.precision,
        vocab_size=program.vocab_size,
        context=work.defaults.context,
        slots=work.defaults.slots,
        tolerance=TOLERANCE[work.defaults.precision],
        special_tokens=special_tokens(work.source),
        caches=program.caches,
        entry_points=tuple(point for point, _ in program.entry_points),
        target=work.target,
        compiler=compiler,
        statistics=statistics,
        golden=golden,
        sources=tuple(record_file(path) for path in work.source.files()),
        files=tuple(record_file(path) for path in sorted(work.folder.iterdir())),
    )


@contextmanager
def _folder_beside(out: Path) -> Iterator[Path]:
    """A folder on the same disk as `out`, which is gone afterwards. Refuses a place in use."""
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.exists() and not _is_bundle(out):
        raise BakeError(f"{out} exists and is not a bundle: choose another --out")
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as folder:
        made = Path(folder) / "bundle"
        made.mkdir()
        yield made


def _put_in_place(folder: Path, out: Path) -> None:
    """Rename the finished bundle to its place; an older bundle there steps aside first."""
    if out.exists():
        out.rename(folder.parent / "replaced")
    folder.rename(out)


def _is_bundle(path: Path) -> bool:
    try:
        read_manifest(path)
    except layout.WrongFormat:
        return True  # of another version, whose readers are told to bake it again
    except layout.BundleError:
        return False
    return True
