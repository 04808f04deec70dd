"""Bake a language model: weights to a bundle, in stages."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from baker.adapters.adapter import read_adapter
from baker.adapters.merged_weights import MergedWeights
from baker.atomic_folder import BakeError, folder_beside
from baker.calibration.calibration_text import calibration_text, sequences
from baker.compiler import targets
from baker.compiler.kernel_objects import instructions_for
from baker.parameters.native import default_precision, storages
from baker.parameters.parameter_writer import locate
from baker.pipeline import recipe
from baker.pipeline.bill_of_materials import licence_of, write_manifest_and_bill
from baker.pipeline.calibration_stage import layers_to_round, rounded_layers
from baker.pipeline.golden_stage import golden_stage
from baker.pipeline.memory_plan import check_fits, footprint, too_large
from baker.pipeline.prompt_prefix import prefix_ids, write_prefix
from baker.pipeline.recipe import RecipeError
from baker.pipeline.shared_stages import (
    RecordedRequest,
    Workspace,
    compile_in_background,
    provenance,
    records,
    statistics,
    weights_bytes,
    write_weights,
)
from baker.precision.auto_precision import AUTO, MAX_KL, by_speed, choose
from baker.precision.kl_from_f32 import Meter, beginnings
from baker.reference.golden_values import prompt_ids
from baker.tokenizer.tokenizer_files import chat_template, special_tokens, tokenizer_json
from baker.weights.open_weights import PackagedWeights, open_weights
from models import bundle as layout
from models.bundle import LanguageManifest, record_file
from models.dsl.types import TypeRuleError
from models.peft.adapter_folder import adapter_files
from models.precision import ACTIVATION_TOLERANCE, KV_TOLERANCE, PRECISIONS, kv_cache_of
from models.program import ProgramOptions
from runtime.language_model import IreeRuntime
from runtime.self_test import self_test

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from baker.parameters.parameter_writer import Located, StoredRows
    from baker.pipeline.recipe import BakeRequest, Defaults
    from baker.pipeline.shared_stages import CompiledProgram
    from baker.precision.kl_from_f32 import Divergence
    from baker.progress import Progress
    from baker.weights.source import WeightSource
    from models.bundle import Golden, GoldenRow, Target, TriedPrecision
    from models.config import ModelConfig
    from models.decoder.architecture import Architecture
    from models.program import Program

# Bytes of the program, the tokenizer and the manifest: 16 MB with a vocabulary of 262144.
_OTHER_FILES = 24 << 20


@dataclass(frozen=True)
class _Texts:
    """The start of prompts, if any, and the text that layers are rounded for."""

    prefix: str | None
    calibration: str


@dataclass(frozen=True)
class _BakeInputs:
    """The inputs of every stage of baking a language model."""

    recorded: RecordedRequest
    source: WeightSource
    architecture: Architecture[Any]
    config: ModelConfig
    defaults: Defaults
    program: Program
    texts: _Texts
    workspace: Workspace


def bake(request: BakeRequest, progress: Progress) -> Path:
    """Bake a bundle; returns its folder.

    Raises WeightsError, ConfigError, RecipeError, TargetError, CompileError, PrefixError, BakeError
    or OSError. After an error or KeyboardInterrupt, no bundle and no file is left behind.
    """
    recipe.check_storage(request)
    with progress.stage("open the weights"):
        architecture = recipe.architecture_of(request)
        weights = request.weights or recipe.packaged_weights(request.model, request.size)
        source = open_weights(weights)
        recipe.check_architecture(request.model, source)
        config = recipe.model_config(source, architecture)
        source = _merged(request, source, architecture, config)
        defaults = _defaults(request, source, architecture, config)
        config = config.for_context(defaults.context)
        chosen = targets.find_targets(request.target)
        texts = _Texts(_prefix_text(request.prefix, chosen), calibration_text(request.calibration))
    recorded = RecordedRequest(
        model=request.model,
        options=_options(request, defaults),
        tried=_tried(request, source, config, defaults, progress),
        package=weights.package if isinstance(weights, PackagedWeights) else None,
        adapter=() if request.adapter is None else adapter_files(request.adapter),
    )
    trace = partial(_program, architecture, config, source)
    if recorded.tried:
        defaults = replace(defaults, precision=recorded.tried[-1].precision)
    recipe.check_calibration(request, defaults.precision)
    recipe.check_activations(request, defaults.precision)
    with progress.stage("trace the model"):
        try:
            program = trace(defaults)
        except TypeRuleError as error:
            raise BakeError(
                f"--precision {defaults.precision} does not support this model: {error}; "
                "--precision bf16 supports every size"
            ) from error
    if request.max_memory is not None:
        with progress.stage("check the memory limit"):
            check_fits(program, defaults, request.max_memory, trace)
    out = request.out or Path(recipe.bundle_name(request, config, defaults))
    size = weights_bytes(program.weights) + _OTHER_FILES
    with folder_beside(out, size=size) as folder:
        workspace = Workspace(folder=folder, targets=chosen, progress=progress)
        _make(
            _BakeInputs(recorded, source, architecture, config, defaults, program, texts, workspace)
        )
    return out


def _defaults(
    request: BakeRequest, source: WeightSource, architecture: Architecture[Any], config: ModelConfig
) -> Defaults:
    """The values of the recipe or the request, with a precision for these weights."""
    defaults = recipe.defaults_for(request, config)
    if request.precision is not None:
        return defaults
    precision = default_precision(defaults.precision, source, architecture, config)
    return replace(defaults, precision=precision)


def _merged(
    request: BakeRequest, source: WeightSource, architecture: Architecture[Any], config: ModelConfig
) -> WeightSource:
    """The weights with the adapter of a request, if any."""
    if request.adapter is None:
        return source
    terms = read_adapter(request.adapter, architecture, config)
    return MergedWeights(source, terms, architecture, config)


def _tried(
    request: BakeRequest,
    source: WeightSource,
    config: ModelConfig,
    defaults: Defaults,
    progress: Progress,
) -> tuple[TriedPrecision, ...]:
    """The precisions tried for `auto`, the chosen one last; empty for any other precision."""
    if defaults.precision != AUTO:
        if request.max_kl is not None:
            raise RecipeError(f"--max-kl needs --precision {AUTO}")
        return ()

    architecture, target = recipe.architecture_of(request), targets.find_targets(request.target)[0]

    @cache
    def meter() -> Meter:  # lazy: computing F32's predictions takes long
        return Meter(source, architecture, config, beginnings(source), defaults.activations)

    def obstacle(precision: str) -> str | None:
        candidate = replace(defaults, precision=precision)
        chosen = PRECISIONS[precision]
        if request.activations not in (None, *chosen.activations):
            return f"rounds no activations to {request.activations}"
        if chosen.native and not storages(precision, source, architecture, config):
            return f"stores these weights as {chosen.storage.name}"
        try:
            program = _program(architecture, config, source, candidate)
        except TypeRuleError as error:
            return f"does not support this model: {error}"
        return too_large(program, candidate, request.max_memory)

    def divergence(precision: str) -> Divergence:
        with progress.stage(f"measure the KL divergence of {precision}"):
            return meter().measure(precision)

    return choose(
        by_speed(instructions_for(target)),
        max_kl=MAX_KL if request.max_kl is None else request.max_kl,
        obstacle=obstacle,
        divergence=divergence,
    )


def _program(
    architecture: Architecture[Any], config: ModelConfig, source: WeightSource, defaults: Defaults
) -> Program:
    options = ProgramOptions(
        context=defaults.context,
        precision=defaults.precision,
        prefill_tokens=defaults.prefill_tokens,
        decode_batches=recipe.decode_batches(defaults.slots),
        verify_tokens=recipe.VERIFY_TOKENS,
        storages=storages(defaults.precision, source, architecture, config),
        kv_cache=defaults.kv_cache,
        activations=defaults.activations,
        adapters=defaults.adapters,
        adapter_rank=defaults.rank,
    )
    return architecture.program(config, options)


def _make(inputs: _BakeInputs) -> None:
    """Write every file of the bundle. The compiler runs while the weights are written."""
    workspace, program = inputs.workspace, inputs.program
    located = locate(inputs.source, inputs.architecture, inputs.config, program)
    with compile_in_background(workspace, program.graphs) as compiled:
        with workspace.progress.stage("write the tokenizer"):
            tokenizer = _write_tokenizer(inputs)
        with _rounded(inputs, located, tokenizer) as rounded:
            write_weights(workspace, inputs.source, located, rounded)
    # After the compiler has ended: its threads and NumPy's would slow each other down.
    golden = golden_stage(
        workspace,
        inputs.architecture,
        inputs.config,
        prompt_ids(tokenizer),
        precision=inputs.defaults.precision,
        prefill_tokens=inputs.defaults.prefill_tokens,
        storages=_storages(inputs),
        kv_cache=inputs.defaults.kv_cache,
        activations=inputs.defaults.activations,
    )
    with workspace.progress.stage("write the manifest"):
        manifest = _write_manifest(inputs, _manifest(inputs, compiled, *golden))
    for program_file in targets.runnable(manifest):
        with workspace.progress.stage(f"compare {program_file.file} with golden values"):
            runtime = IreeRuntime(workspace.folder, manifest, threads=None, program=program_file)
            rows = manifest.golden_rows
            verdict = self_test(runtime, manifest.golden, manifest.tolerance, rows=rows)
        if not verdict.passed:
            raise BakeError(f"{program_file.file}: {verdict.message}")
        _write_prefix(inputs, tokenizer, runtime, manifest)


def _rounded(
    inputs: _BakeInputs, located: Sequence[Located], tokenizer: Tokenizer
) -> AbstractContextManager[Mapping[str, StoredRows]]:
    """The layers that are rounded by the calibration text, if the precision has such."""
    storage = PRECISIONS[inputs.defaults.precision].layers
    if storage is None:
        return nullcontext({})
    if "calibration" in inputs.recorded.options:
        path = inputs.workspace.folder / layout.CALIBRATION
        path.write_bytes(inputs.texts.calibration.encode())
    names = layers_to_round(inputs.source, located, storage)
    bos = special_tokens(inputs.source).bos
    return rounded_layers(
        inputs.source,
        inputs.architecture,
        inputs.config,
        dict.fromkeys(names, storage),
        sequences(inputs.texts.calibration, tokenizer, bos, inputs.defaults.context),
        inputs.workspace.progress,
    )


def _write_prefix(
    inputs: _BakeInputs, tokenizer: Tokenizer, runtime: IreeRuntime, manifest: LanguageManifest
) -> None:
    """Prefill the prefix, if any, and write the KV cache rows of its whole chunks."""
    if inputs.texts.prefix is None:
        return
    bos = manifest.special_tokens.bos
    with inputs.workspace.progress.stage("prefill the prefix"):
        ids = prefix_ids(
            inputs.texts.prefix, tokenizer, bos, chunk=runtime.chunk, context=manifest.context
        )
        rows, text = (
            inputs.workspace.folder / name for name in (layout.PREFIX, layout.PREFIX_TEXT)
        )
        write_prefix(runtime, ids, rows)
        text.write_bytes(inputs.texts.prefix.encode())
        files = (*manifest.files, record_file(rows), record_file(text))
        _write_manifest(inputs, replace(manifest, files=files))


def _write_manifest(inputs: _BakeInputs, manifest: LanguageManifest) -> LanguageManifest:
    return write_manifest_and_bill(inputs.workspace.folder, manifest, licence_of(inputs.source))


def _options(request: BakeRequest, defaults: Defaults) -> dict[str, str | int | float]:
    """The options of a bake by the names of their flags; the prefix is a file of the bundle."""
    options: dict[str, str | int | float] = {
        "precision": defaults.precision,
        "context": defaults.context,
        "slots": defaults.slots,
        "target": request.target,
    }
    if request.kv_cache is not None:
        options["kv_cache"] = request.kv_cache
    if request.activations is not None:
        options["activations"] = request.activations
    if defaults.precision == AUTO:
        options["max_kl"] = MAX_KL if request.max_kl is None else request.max_kl
    if request.max_memory is not None:
        options["max_memory"] = request.max_memory
    if request.prefix is not None:
        options["prefix"] = layout.PREFIX_TEXT
    if request.calibration is not None:
        options["calibration"] = layout.CALIBRATION
    if request.adapter is not None:
        options["adapter"] = request.adapter.name
    if defaults.adapters:
        options |= {"adapters": defaults.adapters, "rank": defaults.rank}
    return options


def _prefix_text(path: Path | None, chosen: Sequence[Target]) -> str | None:
    if path is None:
        return None
    target, *others = chosen
    if others:
        raise BakeError(
            "--prefix: KV rows are valid for one program, and --target names several; bake for one "
            "target, or omit --prefix"
        )
    if not targets.runs_here(target):
        raise BakeError(
            f"--prefix: this machine cannot run a program for {target.name} to prefill the prefix; "
            "bake on the device, or omit --prefix"
        )
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BakeError(f"--prefix: {path} is not UTF-8 text: {error}") from error


def _write_tokenizer(inputs: _BakeInputs) -> Tokenizer:
    text = tokenizer_json(inputs.source)
    (inputs.workspace.folder / layout.TOKENIZER).write_text(text, encoding="utf-8")
    template = chat_template(inputs.source)
    if template is not None:
        (inputs.workspace.folder / layout.CHAT_TEMPLATE).write_text(template, encoding="utf-8")
    return Tokenizer.from_str(text)


def _storages(inputs: _BakeInputs) -> dict[str, str]:
    return storages(inputs.defaults.precision, inputs.source, inputs.architecture, inputs.config)


def _manifest(
    inputs: _BakeInputs,
    compiled: CompiledProgram,
    golden: tuple[Golden, ...],
    rows: tuple[GoldenRow, ...],
) -> LanguageManifest:
    program = inputs.program
    cache_bytes = sum(spec.bytes for spec in program.caches)
    return LanguageManifest(
        format=layout.FORMAT,
        architecture=inputs.architecture.name,
        config=inputs.architecture.to_manifest(inputs.config),
        precision=inputs.defaults.precision,
        storages=_storages(inputs),
        vocab_size=program.vocab_size,
        context=inputs.defaults.context,
        slots=inputs.defaults.slots,
        tolerance=PRECISIONS[inputs.defaults.precision].tolerance
        + KV_TOLERANCE[kv_cache_of([cache.dtype for cache in program.caches])]
        + ACTIVATION_TOLERANCE[inputs.defaults.activations],
        special_tokens=special_tokens(inputs.source),
        caches=program.caches,
        entry_points=tuple(point for point, _ in program.entry_points),
        adapters=program.adapters,
        target=inputs.workspace.targets[0],
        other_programs=tuple(compiled.others),
        statistics=statistics(program.graphs, program.weights, program.fusions)
        | {"cache_bytes_per_slot": cache_bytes},
        golden=golden,
        golden_rows=rows,
        footprint=footprint(program.graphs, program.parameters),
        provenance=provenance(inputs.recorded, inputs.source, compiled),
        files=records(sorted(inputs.workspace.folder.iterdir())),
    )
