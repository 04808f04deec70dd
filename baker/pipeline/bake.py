"""Bake weights to a bundle: resolve the options to a plan, then run the stages of its model."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeAlias

from hearthd.baker.atomic_folder import check_destination
from hearthd.baker.pipeline.bake_options import BadOption
from hearthd.baker.pipeline.image_projector import with_projector
from hearthd.baker.pipeline.kinds.bake_arrays import bake_model
from hearthd.baker.pipeline.kinds.bake_encoder import EncoderPlan, EncoderToBake, encoder_plan
from hearthd.baker.pipeline.kinds.bake_gru import GRU, GruPlan, bake_gru, gru_plan
from hearthd.baker.pipeline.kinds.bake_language_model import bake_language_model
from hearthd.baker.pipeline.kinds.bake_speech import SpeechPlan, SpeechToBake, speech_plan
from hearthd.baker.pipeline.language_plan import LanguagePlan, language_plan
from hearthd.baker.pipeline.recipe import open_named, packaged_names, packaged_weights
from hearthd.baker.pipeline.weights_config import families, identify, opened_as
from hearthd.baker.tokenizer.tokenizer_files import require_tokenizer
from hearthd.bundle import NO_PRESET
from hearthd.models.families.jina_bert_v3 import TASKS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hearthd.baker.pipeline.bake_options import BakeOptions
    from hearthd.baker.progress import Progress
    from hearthd.bundle import Preset

Plan: TypeAlias = LanguagePlan | EncoderPlan | SpeechPlan | GruPlan


def bake(options: BakeOptions, progress: Progress, preset: Preset = NO_PRESET) -> Path:
    """Bake a bundle of a model, with a preset if it is a language model; returns its folder.

    Raises one of BAKE_ERRORS. After an error or KeyboardInterrupt, no bundle and no file is left
    behind.
    """
    check_destination(options.out)  # before weights are opened, if it is named
    with progress.stage("open the weights"):
        plan = resolve(options, progress.note)
        check_destination(plan.destination.out)
        if options.weights is not None and options.weights.is_dir():
            require_tokenizer(options.weights)
    if isinstance(plan, LanguagePlan):
        return bake_language_model(replace(plan, preset=preset), progress)
    if preset != NO_PRESET:
        progress.note("leaves out the parameters and texts beside the weights: it writes no text")
    match plan:
        case EncoderPlan():
            return bake_model(plan, EncoderToBake, progress)
        case SpeechPlan():
            return bake_model(plan, SpeechToBake, progress)
        case GruPlan():
            return bake_gru(plan, progress)


def resolve(options: BakeOptions, note: Callable[[str], None] = lambda _: None) -> Plan:
    """The plan of a bake. Opens the weights and reads what describes them, but no tensor.

    `note` is told which projector of images beside the weights is used. Raises one of BAKE_ERRORS.
    """
    if options.model == GRU:
        return gru_plan(options)
    if options.model is None and options.weights is None:
        raise BadOption(
            "MODEL is missing: expected a GGUF file, a Hugging Face folder, hf:ORG/REPO, "
            f"ollama:NAME, or one of {named_models()}"
        )
    model = options.model or ""
    source = opened_as(open_named(model, options.weights, options.size), options.as_)
    source, options = with_projector(source, options, note)
    family = identify(source, options.model)
    if family.is_encoder:
        if tasks := source.metadata().get(TASKS):
            note(f"leaves out the adapters of tasks, as if no task is given: {tasks!s:.120}")
        return encoder_plan(options, source, family)
    if family.is_speech:
        return speech_plan(options, source, family)
    package = None if options.weights else packaged_weights(model, options.size).package
    return language_plan(options, source, family, package)


def bakeable() -> tuple[str, ...]:
    """The names that `hearth bake` takes in place of a path."""
    return (*families(), GRU)


def named_models(like: str = "") -> str:
    """The names that are like a text, or those that need no file of weights, for an error."""
    names = get_close_matches(like, bakeable()) or packaged_names()
    return ", ".join(names)
