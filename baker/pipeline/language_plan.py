"""The plan of a bake of a language model: everything that follows from its options and weights.

It is resolved once, before anything is traced. Two options replace a part of it later:
`--precision auto` the precision, which it chooses by tracing and measuring (auto_stage.py), and
`--context auto` the context (context_choice.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hearthd.baker.adapters.adapter import read_adapter
from hearthd.baker.adapters.drafted_weights import (
    DraftedWeights,
    model_drafter,
    mtp_left_out,
    with_mtp,
)
from hearthd.baker.adapters.merged_weights import MergedWeights
from hearthd.baker.calibration.calibration_text import calibration_text
from hearthd.baker.parameters.native import default_precision
from hearthd.baker.pipeline import recipe
from hearthd.baker.pipeline.bake_options import DEFAULT_RANK
from hearthd.baker.pipeline.context_choice import first_context
from hearthd.baker.pipeline.draft_model import draft_model_path, with_draft_model
from hearthd.baker.pipeline.image_sizes import image_rows
from hearthd.baker.pipeline.opened_model import OpenedModel
from hearthd.baker.pipeline.recipe import (
    LONG_PREFILL_CHUNKS,
    NARROW,
    PAIR_TOKENS,
    VERIFY_TOKENS,
    VERIFY_TOKENS_OF_DRAFTER,
    VERIFY_TOKENS_WITHOUT_STATES,
    RecipeError,
)
from hearthd.baker.pipeline.shared_stages import BakeRecord, destination
from hearthd.baker.precision.auto_precision import AUTO, MAX_KL
from hearthd.baker.tokenizer.tokenizer_cache import TokenizerCache
from hearthd.bundle import MIN_CONTEXT, NO_PRESET
from hearthd.bundle.lora.read_adapter import adapter_files
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.decoder.architecture import DraftShape
from hearthd.models.decoder.drafting.mtp import MtpConfig, drafted_tokens
from hearthd.models.decoder.experts import ExpertsConfig
from hearthd.models.precision import NAMED_PRECISIONS, PRECISIONS
from hearthd.models.program import ProgramOptions

if TYPE_CHECKING:
    from hearthd.baker.pipeline.bake_options import BakeOptions
    from hearthd.baker.pipeline.recipe import Defaults
    from hearthd.baker.pipeline.shared_stages import Destination
    from hearthd.baker.pipeline.weights_config import Family
    from hearthd.baker.weights.source import WeightSource
    from hearthd.bundle import Activations, Preset
    from hearthd.models.config import ModelConfig
    from hearthd.models.decoder.architecture import Architecture
    from hearthd.runtime.drafter_file import DrafterFile

# `--precision auto` has not chosen: predictions are compared with f32's.
_NOT_CHOSEN = "f32"


@dataclass(frozen=True, kw_only=True)
class AutoLimits:
    """The limits of `--precision auto`.

    max_kl       largest mean KL divergence from f32, in nats
    max_bytes    most bytes that the weights take, in place of `max_kl`; None: no such limit
    activations  what products must round activations to; None: the better of all
    """

    max_kl: float
    max_bytes: int | None
    activations: Activations | None


@dataclass(frozen=True, kw_only=True)
class LanguagePlan:
    """One bake of a language model.

    record       what the provenance says of it
    destination  where the bundle is written, and for which machines
    model        the weights, an adapter merged into them, and what they are
    program      options of the program; with `auto`, its precision is not chosen yet, and with
                 `auto_context` neither are the context and perhaps the caches
    auto_context  whether the context is chosen when the program is traced: `--context auto`
    slots        sequences that the server can hold at once
    auto         limits of `--precision auto`; None: the precision is given, or was chosen
    max_memory   limit for the memory that serving takes, in bytes; None: no limit
    calibration  text that layers are rounded for, which the bundle keeps; None: Hearth's
    drafter      the file of a tuned drafter; None: the bundle has none
    without_mtp  why the layer of the weights that predicts further tokens is left out; None: it is
                 not, there is none, or the options ask for another drafter or for none
    verify_later  whether the comparison with NumPy is left to `hearth verify`
    preset       settings of requests that a Modelfile or Ollama has beside the weights
    streamed     whether kernels read experts ahead from their file, because only so the model fits
                 into `max_memory`: known when the program is traced
    """

    record: BakeRecord
    destination: Destination
    model: OpenedModel
    program: ProgramOptions
    auto_context: bool
    slots: int
    auto: AutoLimits | None
    max_memory: int | None
    calibration: str | None
    drafter: DrafterFile | None
    without_mtp: str | None
    verify_later: bool
    preset: Preset = NO_PRESET
    streamed: bool = False


def language_plan(
    options: BakeOptions, source: WeightSource, family: Family, package: str | None
) -> LanguagePlan:
    """Resolve options; `package` is the import name of the package with the weights, if any.

    Raises RecipeError, TargetError, BakeError, ConfigError, a WeightsError, or what reading an
    adapter raises.
    """
    options.require_kind("language model", family.name)
    architecture = ARCHITECTURES[family.architecture]
    source = _merged(options, source, architecture, family.config)
    defaults = recipe.defaults_of(family.recipe, family.config)
    _require_size(options, family)
    context = _context(options, family.config)
    source, family, drafter = _drafted(options, source, architecture, family)
    precision = options.precision or default_precision(
        defaults.precision, source, architecture, family.config
    )
    _check_precision(options, precision)
    model = OpenedModel(
        source,
        architecture,
        family.config.for_context(context),
        None if options.recompile else TokenizerCache.at_home(),
    )
    if (draft := draft_model_path(options.drafter)) is not None:
        model = with_draft_model(model, draft, context)
    slots = options.slots or defaults.slots
    program = _program(options, model, precision, context, slots, defaults, drafter)
    resolved = _resolved(options, program, precision)
    record = options.record("language model", **resolved, slots=slots)
    return LanguagePlan(
        record=BakeRecord(
            model=family.name,
            options=record,
            package=package,
            others=_other_files(options, model),
        ),
        destination=destination(options, _name(family, precision)),
        model=model,
        program=program,
        auto_context=options.fixed_context is None,
        slots=slots,
        auto=_auto_limits(options) if precision == AUTO else None,
        max_memory=options.max_memory,
        calibration=None if options.calibration is None else calibration_text(options.calibration),
        drafter=drafter,
        without_mtp=None if options.drafter else mtp_left_out(model),
        verify_later=options.verify_later,
    )


def _merged(
    options: BakeOptions, source: WeightSource, architecture: Architecture[Any], config: ModelConfig
) -> WeightSource:
    """The weights with the adapter of the options, if any."""
    if options.adapter is None:
        return source
    terms = read_adapter(options.adapter, architecture, config)
    return MergedWeights(source, terms, architecture, config)


def _drafted(
    options: BakeOptions,
    source: WeightSource,
    architecture: Architecture[Any],
    family: Family,
) -> tuple[WeightSource, Family, DrafterFile | None]:
    """The weights with a tuned drafter's if given, what they are, and the drafter's file.

    By default, the layer of the weights that predicts further tokens is used. Raises BadFile.
    """
    config = family.config
    if draft_model_path(options.drafter) is not None:
        return source, family, None
    if isinstance(options.drafter, Path):
        drafter = model_drafter(options.drafter, architecture, config)
        return DraftedWeights(source, drafter, architecture, config), family, drafter
    if options.drafter is None:
        family = replace(family, config=with_mtp(source, architecture, config))
    return source, family, None


def _other_files(options: BakeOptions, model: OpenedModel) -> tuple[Path, ...]:
    """The files of an adapter that is merged into the weights, then of a draft model."""
    return (
        *(() if options.adapter is None else adapter_files(options.adapter)),
        *(() if model.draft is None else model.draft.source.files()),
    )


def _require_size(options: BakeOptions, family: Family) -> None:
    size, config = recipe.size_of(family.recipe, family.config), family.config
    if options.size is not None and options.size != size:
        raise RecipeError(
            f"--size {options.size}: the weights have size {size or 'unknown'} "
            f"({config.layers} layers of width {config.hidden})"
        )


def _context(options: BakeOptions, config: ModelConfig) -> int:
    """The context of the options, or where `--context auto` begins."""
    context = options.fixed_context
    if context is None:
        return first_context(config)
    if not MIN_CONTEXT <= context <= config.max_context:
        raise RecipeError(
            f"--context {context} is out of range: expected {MIN_CONTEXT} to "
            f"{config.max_context}, the context that the model was trained for"
        )
    return context


def _check_precision(options: BakeOptions, precision: str) -> None:
    """Raise RecipeError for an option that needs another precision."""
    limits = {"--max-kl": options.max_kl, "--max-bytes": options.max_bytes}
    for name, value in limits.items():
        if value is not None and precision != AUTO:
            raise RecipeError(f"{name} needs --precision {AUTO}")
    if precision == AUTO:
        return
    chosen = PRECISIONS[precision]
    if options.calibration is not None and not chosen.calibrated:
        rounding = (name for name in NAMED_PRECISIONS if PRECISIONS[name].calibrated)
        raise RecipeError(
            f"--calibration: {precision} does not round by a calibration text; specify "
            f"--precision {' or '.join(rounding)}"
        )
    if options.activations not in (None, *chosen.activations):
        rounding = (name for name in NAMED_PRECISIONS if PRECISIONS[name].activations)
        raise RecipeError(
            f"--activations: {precision} multiplies floats and rounds no activations to "
            f"{options.activations}; specify --precision {' or '.join(rounding)}"
        )


def _program(
    options: BakeOptions,
    model: OpenedModel,
    precision: str,
    context: int,
    slots: int,
    defaults: Defaults,
    drafter: DrafterFile | None,
) -> ProgramOptions:
    tokens = 0 if drafter is None else len(drafter.head_tokens)
    draft_model = None
    if model.draft is not None:
        tokens = min(opened.config.vocab_size for opened in (model, model.draft))
        draft_model = DraftShape(architecture=model.draft.architecture, config=model.draft.config)
    if isinstance(model.config, MtpConfig) and model.config.mtp:
        tokens = drafted_tokens(model.config.vocab_size)
    # `--precision auto` measures the divergence with each kind of activations, and chooses later.
    rounding = "int16" if precision == AUTO else PRECISIONS[precision].rounding
    stored = _NOT_CHOSEN if precision == AUTO else precision
    return ProgramOptions(
        context=context,
        precision=stored,
        prefill_tokens=defaults.prefill_tokens,
        long_prefill=_long_prefill(model, defaults, context),
        decode_batches=recipe.decode_batches(slots),
        verify_tokens=_verify_tokens(model) if tokens else VERIFY_TOKENS,
        pair_tokens=PAIR_TOKENS if slots > 1 else 0,
        reads_rows=model.config.reads_rows,
        image_rows=image_rows(model.images, options.image_max_tokens),
        sound_rows=() if model.sound is None else model.sound.sizes,
        storages=model.storages(stored),
        kv_cache=options.kv_cache,
        activations=options.activations or rounding,
        draft_tokens=tokens,
        draft_model=draft_model,
        adapters=options.adapters or 0,
        adapter_rank=options.rank or DEFAULT_RANK,
    )


def _long_prefill(model: OpenedModel, defaults: Defaults, context: int) -> int:
    """The size of the prefill of several chunks; 0 for none.

    With fewer calls, a mixture reads its experts less often, and the threads of a narrow model wait
    less often for each other. The rings of windows would have rows for all chunks, which only a
    mixture is worth. The prefix cache needs snapshots of states after some chunks.
    """
    tokens = LONG_PREFILL_CHUNKS * defaults.prefill_tokens[-1]
    decoder, layers = model.architecture.model(model.config), range(model.config.layers)
    has_windows = any(decoder.window(layer) is not None for layer in layers)
    is_narrow = model.config.hidden <= NARROW and not has_windows
    pays = isinstance(model.config, ExpertsConfig) or is_narrow
    return tokens if pays and not _has_states(model) and tokens < context else 0


def _has_states(model: OpenedModel) -> bool:
    """Whether a layer is recurrent."""
    decoder = model.architecture.model(model.config)
    return any(decoder.states(layer) for layer in range(model.config.layers))


def _verify_tokens(model: OpenedModel) -> tuple[int, ...]:
    """The sizes of the verify entry points beside a drafter."""
    return VERIFY_TOKENS_OF_DRAFTER if _has_states(model) else VERIFY_TOKENS_WITHOUT_STATES


def _resolved(options: BakeOptions, program: ProgramOptions, precision: str) -> dict[str, Any]:
    """The values of options that are not given, for the provenance."""
    is_auto = options.fixed_context is None
    values: dict[str, Any] = {
        "precision": precision,
        "context": AUTO if is_auto else program.context,
    }
    if precision != AUTO:
        chosen = PRECISIONS[precision]
        if not (is_auto and options.max_memory):  # the caches are chosen with the context
            values["kv_cache"] = program.kv_cache or chosen.kv_cache
        values["activations"] = program.activations if chosen.activations else None
    elif options.max_bytes is None:
        values["max_kl"] = _auto_limits(options).max_kl
    if program.image_rows:
        values["image_max_tokens"] = program.image_rows[-1]
    if (draft := draft_model_path(options.drafter)) is not None:
        values["drafter"] = draft.name  # not in the bundle
    if program.adapters:
        values["rank"] = program.adapter_rank
    return values


def _auto_limits(options: BakeOptions) -> AutoLimits:
    return AutoLimits(
        max_kl=MAX_KL if options.max_kl is None else options.max_kl,
        max_bytes=options.max_bytes,
        activations=options.activations,
    )


def _name(family: Family, precision: str) -> str:
    """The name of a bundle whose options name no folder."""
    size = recipe.size_of(family.recipe, family.config) or "custom"
    return f"{family.name}-{size}-{precision}"
