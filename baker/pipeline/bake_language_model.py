"""Bake a language model: weights to a bundle, in stages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hearthd.baker.adapters.adapter import read_adapter
from hearthd.baker.adapters.merged_weights import MergedWeights
from hearthd.baker.atomic_folder import BakeError, check_destination, folder_beside
from hearthd.baker.calibration.calibration_text import calibration_text, sequences
from hearthd.baker.compiler import targets
from hearthd.baker.parameters.native import default_precision
from hearthd.baker.pipeline import recipe
from hearthd.baker.pipeline.auto_stage import AutoStage, Chosen
from hearthd.baker.pipeline.bill_of_materials import licence_of, write_manifest_and_bill
from hearthd.baker.pipeline.calibration_stage import Calibration, layers_to_round
from hearthd.baker.pipeline.golden_stage import golden_stage
from hearthd.baker.pipeline.memory_plan import check_fits, footprint
from hearthd.baker.pipeline.opened_model import OpenedModel
from hearthd.baker.pipeline.prompt_prefix import prefix_ids, write_prefix
from hearthd.baker.pipeline.shared_stages import (
    RecordedRequest,
    Workspace,
    compile_in_background,
    provenance,
    records,
    require_passed,
    statistics,
    weights_bytes,
    write_weights,
)
from hearthd.baker.pipeline.weights_config import check_architecture, model_config
from hearthd.baker.precision.auto_precision import AUTO
from hearthd.baker.reference.golden_values import prompt_ids
from hearthd.baker.temporary_folder import temporary_folder
from hearthd.baker.weights.open_weights import PackagedWeights, open_weights
from hearthd.models import bundle as layout
from hearthd.models.bundle import LanguageManifest, record_file
from hearthd.models.dsl.types import TypeRuleError
from hearthd.models.peft.adapter_folder import adapter_files
from hearthd.models.precision import KV_TOLERANCE, PRECISIONS, activation_tolerance, kv_cache_of
from hearthd.models.text_files import read_text
from hearthd.runtime.language_model import IreeRuntime
from hearthd.runtime.self_test import self_test

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    from hearthd.baker.pipeline.recipe import BakeRequest, Defaults
    from hearthd.baker.pipeline.shared_stages import CompiledProgram
    from hearthd.baker.progress import Progress
    from hearthd.baker.tokenizer.tokenizer_files import SourceTokenizer
    from hearthd.baker.weights.source import WeightSource
    from hearthd.models.bundle import Golden, GoldenRow, Target
    from hearthd.models.config import ModelConfig
    from hearthd.models.decoder.architecture import Architecture
    from hearthd.models.program import Program

# Bytes of the program, the tokenizer and the manifest: 16 MB with a vocabulary of 262144.
_OTHER_FILES = 24 << 20


@dataclass(frozen=True)
class _Texts:
    """The start of prompts, if any, its tokens, and the text that layers are rounded for."""

    prefix: str | None
    calibration: str
    prefix_ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class _BakeInputs:
    """The inputs of every stage of baking a language model.

    `storages` are those of parameters that are not stored as the precision says.
    """

    recorded: RecordedRequest
    model: OpenedModel
    defaults: Defaults
    storages: Mapping[str, str]
    program: Program
    texts: _Texts
    calibration: Calibration
    workspace: Workspace


def bake(request: BakeRequest, progress: Progress) -> Path:
    """Bake a bundle; returns its folder.

    Raises WeightsError, ConfigError, RecipeError, TargetError, CompileError, PrefixError, BakeError
    or OSError. After an error or KeyboardInterrupt, no bundle and no file is left behind.
    """
    recipe.check_storage(request)
    check_destination(request.out)
    with progress.stage("open the weights"):
        weights = request.weights or recipe.packaged_weights(request.model, request.size)
        model, defaults = _open(request, open_weights(weights))
        if defaults.precision != AUTO:  # which chooses one that rounds as the request says
            recipe.check_activations(request, defaults.precision)
        chosen = targets.find_targets(request.target)
        texts = _Texts(_prefix_text(request.prefix, chosen), calibration_text(request.calibration))
    with progress.stage("read the tokenizer"):
        tokenizer = model.tokenizer
    with temporary_folder("hearth-") as scratch:
        calibration = _calibration(model, defaults, texts, scratch, progress)
        choice, options = Chosen(), _options(request, defaults)
        if defaults.precision == AUTO:
            choice = AutoStage(request, model, defaults, chosen[0], calibration, progress).choose()
            last = choice.tried[-1]
            defaults = replace(defaults, precision=last.precision, activations=last.activations)
        recorded = RecordedRequest(
            model=request.model,
            options=options,
            tried=choice.tried,
            package=weights.package if isinstance(weights, PackagedWeights) else None,
            adapter=() if request.adapter is None else adapter_files(request.adapter),
        )
        storages = choice.storages or model.storages(defaults.precision)
        program = _program(request, model, defaults, storages, progress)
        texts = _with_prefix(texts, tokenizer, program, defaults)
        out = request.out or Path(recipe.bundle_name(request, model.config, defaults))
        size = weights_bytes(program.weights) + _OTHER_FILES
        with folder_beside(out, size=size) as folder:
            workspace = Workspace(folder=folder, targets=chosen, progress=progress)
            _make(
                _BakeInputs(
                    recorded, model, defaults, storages, program, texts, calibration, workspace
                )
            )
    return out


def _open(request: BakeRequest, source: WeightSource) -> tuple[OpenedModel, Defaults]:
    """The model of a request, and the values to bake it with."""
    architecture = recipe.architecture_of(request)
    check_architecture(request.model, source)
    config = model_config(source, architecture)
    source = _merged(request, source, architecture, config)
    defaults = _defaults(request, source, architecture, config)
    recipe.check_limits(request, defaults.precision)
    recipe.check_calibration(request, defaults.precision)
    return OpenedModel(source, architecture, config.for_context(defaults.context)), defaults


def _calibration(
    model: OpenedModel, defaults: Defaults, texts: _Texts, folder: Path, progress: Progress
) -> Calibration:
    def read() -> NDArray[np.int32]:
        tokenizer = model.tokenizer
        return sequences(texts.calibration, tokenizer.tokenizer, tokenizer.bos, defaults.context)

    return Calibration(model.source, model.architecture, model.config, read, folder, progress)


def _program(
    request: BakeRequest,
    model: OpenedModel,
    defaults: Defaults,
    storages: Mapping[str, str],
    progress: Progress,
) -> Program:
    """The program of a bundle, which fits into the memory of the request."""
    with progress.stage("trace the model"):
        try:
            program = model.program(defaults, storages)
        except TypeRuleError as error:
            raise BakeError(
                f"--precision {defaults.precision} does not support this model: {error}; "
                "--precision bf16 supports every size"
            ) from error
    if request.max_memory is not None:
        with progress.stage("check the memory limit"):
            check_fits(program, defaults, request.max_memory, model.program)
    return program


def _defaults(
    request: BakeRequest, source: WeightSource, architecture: Architecture[Any], config: ModelConfig
) -> Defaults:
    """The values of the request or the recipe; the precision fits these weights.

    Activations that the request does not name are the default of the precision.
    """
    defaults = recipe.defaults_for(request, config)
    if request.precision is None:
        precision = default_precision(defaults.precision, source, architecture, config)
        defaults = replace(defaults, precision=precision)
    # `--precision auto` measures the divergence with each kind of activations, and chooses later.
    if request.activations is None and defaults.precision != AUTO:
        defaults = replace(defaults, activations=PRECISIONS[defaults.precision].rounding)
    return defaults


def _merged(
    request: BakeRequest, source: WeightSource, architecture: Architecture[Any], config: ModelConfig
) -> WeightSource:
    """The weights with the adapter of a request, if any."""
    if request.adapter is None:
        return source
    terms = read_adapter(request.adapter, architecture, config)
    return MergedWeights(source, terms, architecture, config)


def _make(inputs: _BakeInputs) -> None:
    """Write every file of the bundle. The compiler runs while the weights are written."""
    workspace, program = inputs.workspace, inputs.program
    model, located = inputs.model, inputs.model.locate(program)
    with compile_in_background(workspace, program.graphs) as compiled:
        with workspace.progress.stage("write the tokenizer"):
            tokenizer = _write_tokenizer(inputs)
        if "calibration" in inputs.recorded.options:
            path = workspace.folder / layout.CALIBRATION
            path.write_bytes(inputs.texts.calibration.encode())
        rounded = inputs.calibration.rounded(layers_to_round(model.source, located))
        write_weights(workspace, model.source, located, rounded.arrays)
    # After the compiler has ended: its threads and NumPy's would slow each other down.
    golden = golden_stage(
        workspace,
        model.architecture,
        model.config,
        prompt_ids(tokenizer),
        precision=inputs.defaults.precision,
        prefill_tokens=inputs.defaults.prefill_tokens,
        storages=inputs.storages,
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
        require_passed(program_file, verdict)
        _write_prefix(inputs, runtime, manifest)


def _with_prefix(
    texts: _Texts, tokenizer: SourceTokenizer, program: Program, defaults: Defaults
) -> _Texts:
    """The texts with the tokens of the prefix, if any; raises PrefixError."""
    if texts.prefix is None:
        return texts
    chunk = max(point.tokens for point, _ in program.entry_points if point.kind == "prefill")
    library, bos = tokenizer.tokenizer, tokenizer.bos
    ids = prefix_ids(texts.prefix, library, bos, chunk=chunk, context=defaults.context)
    return replace(texts, prefix_ids=ids)


def _write_prefix(inputs: _BakeInputs, runtime: IreeRuntime, manifest: LanguageManifest) -> None:
    """Prefill the prefix, if any, and write the KV cache rows of its whole chunks."""
    if inputs.texts.prefix is None:
        return
    with inputs.workspace.progress.stage("prefill the prefix"):
        rows, text = (
            inputs.workspace.folder / name for name in (layout.PREFIX, layout.PREFIX_TEXT)
        )
        write_prefix(runtime, inputs.texts.prefix_ids, rows)
        text.write_bytes(inputs.texts.prefix.encode())
        files = (*manifest.files, record_file(rows), record_file(text))
        _write_manifest(inputs, replace(manifest, files=files))


def _write_manifest(inputs: _BakeInputs, manifest: LanguageManifest) -> LanguageManifest:
    return write_manifest_and_bill(
        inputs.workspace.folder, manifest, licence_of(inputs.model.source)
    )


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
    if request.activations is not None or defaults.activations != "int16":
        options["activations"] = defaults.activations
    if request.max_bytes is not None:
        options["max_bytes"] = request.max_bytes
    elif defaults.precision == AUTO:
        options["max_kl"] = request.kl_limit
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
        return read_text(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BakeError(f"--prefix: {path} cannot be read: {reason}") from error


def _write_tokenizer(inputs: _BakeInputs) -> Tokenizer:
    tokenizer = inputs.model.tokenizer
    (inputs.workspace.folder / layout.TOKENIZER).write_text(tokenizer.text, encoding="utf-8")
    if tokenizer.template is not None:
        path = inputs.workspace.folder / layout.CHAT_TEMPLATE
        path.write_text(tokenizer.template, encoding="utf-8")
    return tokenizer.tokenizer


def _manifest(
    inputs: _BakeInputs,
    compiled: CompiledProgram,
    golden: tuple[Golden, ...],
    rows: tuple[GoldenRow, ...],
) -> LanguageManifest:
    program, model = inputs.program, inputs.model
    cache_bytes = sum(spec.bytes for spec in program.caches)
    return LanguageManifest(
        format=layout.FORMAT,
        architecture=model.architecture.name,
        config=model.architecture.to_manifest(model.config),
        precision=inputs.defaults.precision,
        storages=dict(inputs.storages),
        vocab_size=program.vocab_size,
        context=inputs.defaults.context,
        slots=inputs.defaults.slots,
        tolerance=PRECISIONS[inputs.defaults.precision].tolerance
        + KV_TOLERANCE[kv_cache_of([cache.dtype for cache in program.caches])]
        + activation_tolerance(
            inputs.defaults.activations, {weight.storage.name for weight in program.weights}
        ),
        special_tokens=model.tokenizer.special,
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
        provenance=provenance(inputs.recorded, model.source, compiled),
        files=records(sorted(inputs.workspace.folder.iterdir())),
    )
