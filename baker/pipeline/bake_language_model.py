"""Baking a language model: from weights to a bundle, stage by stage."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits
from tokenizers import Tokenizer

from baker.atomic_folder import BakeError, folder_beside
from baker.compiler import targets
from baker.compiler.kernel_objects import instructions_for
from baker.parameters.parameter_writer import locate
from baker.pipeline import recipe
from baker.pipeline.memory_plan import check_fits, footprint, too_large
from baker.pipeline.prompt_prefix import prefix_ids, write_prefix
from baker.pipeline.recipe import RecipeError
from baker.pipeline.stages import (
    Asked,
    Place,
    compiling,
    provenance,
    records,
    statistics,
    weights_bytes,
    write_weights,
)
from baker.precision.auto_precision import AUTO, MAX_KL, by_speed, choose
from baker.precision.kl_from_f32 import Meter, beginnings
from baker.reference.golden_values import STEPS, TOLERANCE, golden_values, prompt_ids
from baker.reference.numpy_runtime import NumpyRuntime, stored_parameters
from baker.tokenizer.tokenizer_files import chat_template, special_tokens, tokenizer_json
from baker.tokenizer.unused_merges import drop_unused_merges
from baker.weights.open_weights import PackagedWeights, open_weights
from baker.weights.source import BadFile
from models import bundle as layout
from models.bundle import LanguageManifest, record_file, write_manifest
from models.dsl.types import TypeRuleError
from models.program import ProgramOptions
from runtime.language_model import IreeRuntime
from runtime.self_test import self_test

if TYPE_CHECKING:
    from baker.pipeline.recipe import Defaults, Order
    from baker.pipeline.stages import Compiled, Progress
    from baker.precision.kl_from_f32 import Divergence
    from baker.weights.source import WeightSource
    from models.architecture import Architecture
    from models.bundle import Golden, Target, Tried
    from models.config import ModelConfig
    from models.program import Program

# Program, tokenizer and manifest: 16 MB with a vocabulary of 262144.
_BESIDE_WEIGHTS = 24 << 20


@dataclass(frozen=True)
class _Work:
    """What the stages share."""

    asked: Asked
    source: WeightSource
    architecture: Architecture[Any]
    config: ModelConfig
    defaults: Defaults
    program: Program
    prefix: str | None
    place: Place


def bake(order: Order, progress: Progress) -> Path:
    """Bake a bundle; returns its folder.

    Raises WeightsError, ConfigError, RecipeError, TargetError, CompileError, PrefixError, BakeError
    or OSError; then, as after KeyboardInterrupt, no bundle and no file is left behind.
    """
    with progress.stage("open the weights"):
        architecture = recipe.architecture_of(order)
        weights = order.weights or recipe.packaged_weights(order)
        source = open_weights(weights)
        config = _config(source, architecture)
        defaults = recipe.defaults_for(order, config)
        target = targets.find_target(order.target)
        prefix = _prefix_text(order.prefix, target)
    asked = Asked(
        model=order.model,
        options=_options(order, defaults, target),
        tried=_tried(order, source, config, defaults, progress),
        package=weights.package if isinstance(weights, PackagedWeights) else None,
    )
    if asked.tried:
        defaults = replace(defaults, precision=asked.tried[-1].precision)
    with progress.stage("trace the model"):
        try:
            program = _program(architecture, config, defaults)
        except TypeRuleError as error:
            raise BakeError(
                f"--precision {defaults.precision} is not for this model: {error}; "
                "--precision bf16 takes any size"
            ) from error
    if order.max_memory is not None:
        with progress.stage("see whether it fits"):
            trace = partial(_program, architecture, config)
            check_fits(program, defaults, order.max_memory, trace)
    out = order.out or Path(_name(order, config, defaults, target))
    size = weights_bytes(program.parameters) + _BESIDE_WEIGHTS
    with folder_beside(out, size=size) as folder:
        place = Place(folder=folder, target=target, progress=progress)
        _make(_Work(asked, source, architecture, config, defaults, program, prefix, place))
    return out


def _tried(
    order: Order, source: WeightSource, config: ModelConfig, defaults: Defaults, progress: Progress
) -> tuple[Tried, ...]:
    """The precisions that were tried for `auto`, the one to bake last; none for another order."""
    if defaults.precision != AUTO:
        if order.max_kl is not None:
            raise RecipeError(f"--max-kl is for --precision {AUTO}")
        return ()

    architecture, target = recipe.architecture_of(order), targets.find_target(order.target)

    @cache
    def meter() -> Meter:  # only once something is to be measured
        return Meter(source, architecture, config, beginnings(source))

    def obstacle(precision: str) -> str | None:
        wanted = replace(defaults, precision=precision)
        try:
            program = _program(architecture, config, wanted)
        except TypeRuleError as error:
            return f"not for this model, {error}"
        return too_large(program, wanted, order.max_memory)

    def divergence(precision: str) -> Divergence:
        with progress.stage(f"compare {precision} with F32"):
            return meter().measure(precision)

    return choose(
        by_speed(instructions_for(target)),
        max_kl=MAX_KL if order.max_kl is None else order.max_kl,
        obstacle=obstacle,
        divergence=divergence,
    )


def _program(architecture: Architecture[Any], config: ModelConfig, defaults: Defaults) -> Program:
    options = ProgramOptions(
        context=defaults.context,
        precision=defaults.precision,
        prefill_tokens=defaults.prefill_tokens,
        decode_batches=recipe.decode_batches(defaults.slots),
        verify_tokens=recipe.VERIFY_TOKENS,
    )
    return architecture.program(config, options)


def _make(work: _Work) -> None:
    """Write every file of the bundle. The compiler works while the weights are written."""
    place, program = work.place, work.program
    stored = locate(work.source, work.architecture, work.config, program)
    with compiling(place, program.graphs) as compiled:
        write_weights(place, work.source, stored, program.parameters)
        with place.progress.stage("write the tokenizer"):
            tokenizer = _write_tokenizer(work)
    # Not beside the compiler: its threads and NumPy's would take each other's time.
    golden = _golden(work, tokenizer)
    with place.progress.stage("write the manifest"):
        manifest = _manifest(work, compiled, golden)
        write_manifest(place.folder, manifest)
    if targets.runs_here(place.target):
        with place.progress.stage("compare with NumPy"):
            runtime = IreeRuntime(place.folder, manifest, threads=None)
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
    with work.place.progress.stage("read the prefix"):
        ids = prefix_ids(work.prefix, tokenizer, bos, chunk=runtime.chunk, context=manifest.context)
        rows, text = (work.place.folder / name for name in (layout.PREFIX, layout.PREFIX_TEXT))
        write_prefix(runtime, ids, rows)
        text.write_bytes(work.prefix.encode())
        files = (*manifest.files, record_file(rows), record_file(text))
        write_manifest(work.place.folder, replace(manifest, files=files))


def _options(order: Order, defaults: Defaults, target: Target) -> dict[str, str | int | float]:
    """The options of a bake by their flags' names; the prefix is a file of the bundle."""
    options: dict[str, str | int | float] = {
        "precision": defaults.precision,
        "context": defaults.context,
        "slots": defaults.slots,
        "target": target.name,
    }
    if defaults.precision == AUTO:
        options["max_kl"] = MAX_KL if order.max_kl is None else order.max_kl
    if order.max_memory is not None:
        options["max_memory"] = order.max_memory
    if order.prefix is not None:
        options["prefix"] = layout.PREFIX_TEXT
    return options


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
    tensors = len(source.names())
    if config.layers > tensors:  # else many layers of nothing would be traced first
        raise BadFile(
            f"the configuration has {config.layers} layers, the weights {tensors} tensors"
        )
    return config


def _name(order: Order, config: ModelConfig, defaults: Defaults, target: Target) -> str:
    """The name of a bundle for which the order has none."""
    size = recipe.size_of(order.model, config) or "custom"
    parts = [order.model, size, defaults.precision]
    return "-".join(parts if target.name == "host" else [*parts, target.name])


def _write_tokenizer(work: _Work) -> Tokenizer:
    text = drop_unused_merges(tokenizer_json(work.source))
    (work.place.folder / layout.TOKENIZER).write_text(text, encoding="utf-8")
    template = chat_template(work.source)
    if template is not None:
        (work.place.folder / layout.CHAT_TEMPLATE).write_text(template, encoding="utf-8")
    return Tokenizer.from_str(text)


def _golden(work: _Work, tokenizer: Tokenizer) -> tuple[Golden, ...]:
    """By a program that has room for the golden prompts, all at once, and for no more."""
    ids = prompt_ids(tokenizer)
    options = ProgramOptions(
        context=max(len(tokens) for tokens in ids) + STEPS,
        precision=work.defaults.precision,
        prefill_tokens=work.defaults.prefill_tokens,
        decode_batches=(1, len(ids)),
    )
    program = work.architecture.program(work.config, options)
    parameters = stored_parameters(program.parameters, work.place.folder / layout.PARAMETERS)
    runtime = NumpyRuntime(program, parameters, context=options.context, slots=len(ids))
    # A sum's last bits depend on how many threads share it, and a bundle's bytes must not.
    with work.place.progress.stage("compute golden values with NumPy"), threadpool_limits(1):
        return golden_values(runtime, ids)


def _manifest(work: _Work, compiled: Compiled, golden: tuple[Golden, ...]) -> LanguageManifest:
    program = work.program
    cache_bytes = sum(spec.bytes for spec in program.caches)
    return LanguageManifest(
        format=layout.FORMAT,
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
        target=work.place.target,
        statistics=statistics(program.graphs, program.parameters)
        | {"cache_bytes_per_slot": cache_bytes},
        golden=golden,
        footprint=footprint(program.graphs, program.parameters),
        provenance=provenance(work.asked, work.source, compiled),
        files=records(sorted(work.place.folder.iterdir())),
    )
