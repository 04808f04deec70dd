"""Bake a language model: weights to a bundle, in stages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hearthd import bundle as layout
from hearthd.baker.calibration.calibration_text import calibration_text, sequences
from hearthd.baker.pipeline.bill_of_materials import license_of, write_manifest_and_bill
from hearthd.baker.pipeline.context_choice import ContextChoice, choose_context
from hearthd.baker.pipeline.memory_plan import (
    check_fits,
    language_footprint,
    needs_streaming,
    program_memory,
    refining_bytes,
    token_bytes,
)
from hearthd.baker.pipeline.shared_stages import (
    compile_in_background,
    provenance,
    records,
    statistics,
    storing_in,
    unfused_texts,
    weights_bytes,
    write_weights,
)
from hearthd.baker.pipeline.stages.auto_stage import AutoStage
from hearthd.baker.pipeline.stages.calibration_stage import Calibration, layers_to_round
from hearthd.baker.pipeline.stages.comparison_stage import compare_with_numpy
from hearthd.baker.temporary_folder import temporary_folder
from hearthd.baker.tokenizer.gguf_vocabulary import names_no_rule
from hearthd.bundle import DraftModelRecord, LanguageManifest, Serving, megabytes
from hearthd.models.decoder.tensor_names import DRAFTER_MODULE, MTP_MODULE
from hearthd.models.precision import KV_TOLERANCE, PRECISIONS, activation_tolerance, kv_cache_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from hearthd.baker.pipeline.language_plan import LanguagePlan
    from hearthd.baker.pipeline.shared_stages import CompiledProgram, WeightRecords, Workspace
    from hearthd.baker.pipeline.stages.auto_stage import Chosen
    from hearthd.baker.progress import Progress
    from hearthd.baker.weights.source import WeightSource
    from hearthd.models.decoder.architecture import DraftShape
    from hearthd.models.program import Program

# Bytes of the program, the tokenizer and the manifest: 16 MB with a vocabulary of 262144.
_OTHER_FILES = 24 << 20


@dataclass(frozen=True)
class _BakeInputs:
    """The inputs of every stage after the model is traced."""

    plan: LanguagePlan
    program: Program
    calibration: Calibration
    workspace: Workspace


def bake_language_model(plan: LanguagePlan, progress: Progress) -> Path:
    """Bake a bundle; returns its folder.

    Raises WeightsError, CompileError, BakeError or OSError. After an error or
    KeyboardInterrupt, no bundle and no file is left behind.
    """
    with temporary_folder("hearth-") as scratch:
        calibration = _calibration(plan, scratch, progress)
        if plan.auto is not None:
            plan = _with_choice(plan, AutoStage(plan, plan.auto, calibration, progress).choose())
        plan, program = _program(plan, progress)
        size = weights_bytes(program.weights) + _OTHER_FILES
        with plan.destination.workspace(size, progress) as workspace:
            _make(_BakeInputs(plan, program, calibration, workspace))
    return plan.destination.out


def _calibration(plan: LanguagePlan, folder: Path, progress: Progress) -> Calibration:
    model, context = plan.model, plan.program.context
    text = calibration_text(None) if plan.calibration is None else plan.calibration

    def read() -> NDArray[np.int32]:
        return sequences(text, model.tokenizer.tokenizer, model.tokenizer.bos, context)

    return Calibration(model.source, model.architecture, model.config, read, folder, progress)


def _with_choice(plan: LanguagePlan, choice: Chosen) -> LanguagePlan:
    """The plan with what `--precision auto` chose."""
    last = choice.tried[-1]
    stored = plan.model.stored_in(plan.program, last.precision)
    program = replace(
        stored,
        activations=last.activations,
        storages=choice.storages or stored.storages,
    )
    record = replace(plan.record, tried=choice.tried)
    return replace(plan, program=program, record=record, auto=None)


def _program(plan: LanguagePlan, progress: Progress) -> tuple[LanguagePlan, Program]:
    """The plan with the chosen context, and its program, which fits into the memory limit."""
    model, precision = plan.model, plan.program.precision
    with progress.stage("trace the model"), storing_in(precision):
        choice = _choice(plan)
    program = choice.program
    for text in (
        *choice.notes,
        *_tokenizer_texts(model.source),
        *_drafter_texts(plan, program),
        *unfused_texts(program.unfused),
    ):
        progress.note(text)
    streamed = False
    if plan.max_memory is not None:
        with progress.stage("check the memory limit"):
            context = choice.options.context
            streamed = needs_streaming(program, context, plan.slots, plan.max_memory)
        if streamed:
            progress.note(_streamed_text(program, context, plan.slots, plan.max_memory))
        else:
            check_fits(
                program,
                choice.options,
                plan.slots,
                plan.max_memory,
                lambda other: model.program(model.stored_in(other, other.precision)),
            )
    return replace(plan, program=choice.options, streamed=streamed), program


def _streamed_text(program: Program, context: int, slots: int, limit: int) -> str:
    """A sentence about experts that do not fit into the memory limit, and what a token reads."""
    weights = language_footprint(program, streamed=True)
    memory = program_memory(program, context, streamed=True)
    spare = limit - memory.needed(slots) + weights.token_experts
    return (
        f"the experts ({megabytes(weights.experts)} MB) are read from the file while serving: "
        f"--max-memory has {megabytes(spare)} MB for them, so a token reads up to "
        f"{megabytes(weights.missed(spare))} MB; the storage decides the speed"
    )


def _tokenizer_texts(source: WeightSource) -> Iterator[str]:
    """A sentence about a vocabulary that does not say how words are split, if it does not."""
    if names_no_rule(source.metadata()):
        yield (
            "the file does not say how words are split (tokenizer.ggml.pre), so they are split as "
            "llama.cpp does then; if the model was trained with another rule, its answers are "
            "worse: use a newer GGUF file"
        )


def _drafter_texts(plan: LanguagePlan, program: Program) -> Iterator[str]:
    """Sentences about the draft model, or the layer that predicts further tokens, if there is."""
    if plan.without_mtp is not None:
        yield (
            "leaves out the layer of the weights that predicts further tokens (MTP): "
            f"{plan.without_mtp}"
        )
    if plan.model.draft is not None:
        yield (
            f"drafts tokens with a draft model, {plan.model.draft.architecture.name}, "
            f"{megabytes(_module_bytes(program, DRAFTER_MODULE))} MB"
        )
    if size := _module_bytes(program, MTP_MODULE):
        yield (
            "drafts tokens with the layer of the weights that predicts them (MTP), "
            f"{megabytes(size)} MB; --drafter none leaves it out"
        )


def _module_bytes(program: Program, module: str) -> int:
    """The size of the weights of a module."""
    return weights_bytes(
        weight
        for weight in program.weights
        if any(name.startswith(f"{module}.") for name in weight.sources)
    )


def _draft_record(draft: DraftShape | None) -> DraftModelRecord | None:
    if draft is None:
        return None
    config = draft.architecture.to_manifest(draft.config)
    return DraftModelRecord(architecture=draft.architecture.name, config=config)


def _choice(plan: LanguagePlan) -> ContextChoice:
    options = plan.program
    if not plan.auto_context:
        return ContextChoice(options, plan.model.program(options))
    return choose_context(plan.model, options, slots=plan.slots, max_memory=plan.max_memory)


def _make(inputs: _BakeInputs) -> None:
    """Write every file of the bundle.

    The compiler runs while the tokenizer is read, which ends it if it is refused, and while the
    weights are written.
    """
    workspace, program = inputs.workspace, inputs.program
    plan, model = inputs.plan, inputs.plan.model
    located = model.locate(program)
    with compile_in_background(workspace, program.graphs, streamed=plan.streamed) as compiled:
        with workspace.progress.stage("read the tokenizer"):
            _write_tokenizer(inputs)
        if plan.calibration is not None:
            path = workspace.folder / layout.CALIBRATION
            path.write_bytes(plan.calibration.encode())
        if plan.drafter is not None:
            (workspace.folder / layout.DRAFTER).write_bytes(plan.drafter.content)
        rounded = inputs.calibration.rounded(layers_to_round(model.source, located))
        weights = write_weights(workspace, model.source, located, rounded.arrays)
    with workspace.progress.stage("write the manifest"):
        manifest = write_manifest_and_bill(
            workspace.folder, _manifest(inputs, compiled, weights), license_of(model.source)
        )
    # After the compiler has ended: its threads and NumPy's would slow each other down.
    if not plan.verify_later:
        tokenizer = model.tokenizer.tokenizer
        compare_with_numpy(workspace.folder, manifest, tokenizer, workspace.progress)


def _write_tokenizer(inputs: _BakeInputs) -> None:
    tokenizer = inputs.plan.model.tokenizer
    (inputs.workspace.folder / layout.TOKENIZER).write_text(
        tokenizer.text, encoding="utf-8", newline="\n"
    )
    if tokenizer.template is not None:
        path = inputs.workspace.folder / layout.CHAT_TEMPLATE
        path.write_text(tokenizer.template, encoding="utf-8", newline="\n")


def _manifest(
    inputs: _BakeInputs, compiled: CompiledProgram, weights: WeightRecords
) -> LanguageManifest:
    plan, program, options = inputs.plan, inputs.program, inputs.plan.program
    model = plan.model
    cache_bytes = sum(spec.bytes for spec in program.caches)
    return LanguageManifest(
        format=layout.FORMAT,
        architecture=model.architecture.name,
        config=model.architecture.to_manifest(model.config),
        precision=options.precision,
        storages=dict(options.storages),
        vocab_size=program.vocab_size,
        context=options.context,
        slots=plan.slots,
        serving=Serving(
            activations=options.activations,
            max_memory=plan.max_memory,
            auto_context=plan.auto_context,
        ),
        tolerance=PRECISIONS[options.precision].tolerance
        + KV_TOLERANCE[kv_cache_of([cache.dtype for cache in program.caches])]
        + activation_tolerance(options.activations, {weight.storage for weight in program.weights}),
        special_tokens=model.tokenizer.special,
        sampling=model.sampling,
        suppressed_tokens=model.suppressed_tokens,
        preset=plan.preset,
        caches=program.caches,
        entry_points=tuple(point for point, _ in program.entry_points),
        adapters=program.adapters,
        draft_tokens=options.draft_tokens,
        draft_model=_draft_record(options.draft_model),
        images=model.square_images(),
        image_grid=model.image_grid(options),
        sound=model.sound,
        target=inputs.workspace.targets[0],
        other_programs=tuple(compiled.others),
        statistics=statistics(program.graphs, program.weights, program.fusions)
        | {
            "cache_bytes_per_slot": cache_bytes,
            "token_bytes": token_bytes(program),
            "refining_bytes": refining_bytes(program),
        },
        golden=(),
        footprint=language_footprint(program, streamed=plan.streamed),
        provenance=provenance(plan.record, weights.sources, compiled),
        files=records(sorted(inputs.workspace.folder.iterdir()), weights.parameters),
    )
