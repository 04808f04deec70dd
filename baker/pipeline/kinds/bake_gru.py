"""`hearth bake gru`: bake the weights of a torch.nn.GRU."""

from __future__ import annotations

import dataclasses
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from hearthd.baker.pipeline.bake_options import BadOption
from hearthd.baker.pipeline.kinds.bake_arrays import ArraysToBake, bake_arrays
from hearthd.baker.pipeline.shared_stages import BakeRecord, destination
from hearthd.baker.weights.safetensors import SafetensorsFile
from hearthd.models.families.gru import config_from_shapes, program

if TYPE_CHECKING:
    from pathlib import Path

    from hearthd.baker.pipeline.bake_options import BakeOptions
    from hearthd.baker.pipeline.shared_stages import Destination
    from hearthd.baker.progress import Progress
    from hearthd.baker.weights.source import WeightSource
    from hearthd.models.families.gru import GruConfig


GRU = "gru"


@dataclass(frozen=True, kw_only=True)
class GruDefaults:
    """The values of configs/arrays/gru.toml."""

    steps: int
    batch: int
    form: str


@dataclass(frozen=True, kw_only=True)
class GruPlan:
    """One bake of a GRU.

    record       what the provenance says of it
    destination  where the bundle is written, and for which machines
    source       the weights
    config       shapes and form of its functions
    """

    record: BakeRecord
    destination: Destination
    source: WeightSource
    config: GruConfig


def gru_plan(options: BakeOptions) -> GruPlan:
    """Resolve options: the weights are a safetensors file of torch.nn.GRU's state_dict.

    Raises RecipeError, TargetError, a WeightsError, or ConfigError, which names the tensor that is
    missing, unknown or has a wrong shape.
    """
    options.require_kind("GRU", GRU)
    if options.weights is None:
        raise BadOption("--weights is missing: specify a safetensors file with the GRU's weights")
    source = SafetensorsFile(options.weights)
    values = _values(options)
    config = config_from_shapes(
        {name: source.shape(name) for name in source.names()},
        steps=values.steps,
        batch=values.batch,
        form=values.form,
        batch_first=options.batch_first,
    )
    record = options.record("GRU", **dataclasses.asdict(values))
    return GruPlan(
        record=BakeRecord(model=GRU, options=record, package=None),
        destination=destination(options, f"gru-{config.inputs}-{config.hidden}"),
        source=source,
        config=config,
    )


def bake_gru(plan: GruPlan, progress: Progress) -> Path:
    """Bake a GRU; returns the bundle's folder. Raises what bake_arrays raises."""
    with progress.stage(f"trace the model, {_form(plan.config)}"):
        model = ArraysToBake(
            record=plan.record,
            architecture=GRU,
            config=dataclasses.asdict(plan.config),
            program=program(plan.config),
            source=plan.source,
        )
    bake_arrays(model, plan.destination, progress)
    return plan.destination.out


def _values(options: BakeOptions) -> GruDefaults:
    """The values of options that are given, and defaults for the others."""
    text = (files("hearthd.configs") / "arrays" / "gru.toml").read_text("utf-8")
    defaults = GruDefaults(**tomllib.loads(text))
    given = {
        field.name: value
        for field in dataclasses.fields(GruDefaults)
        if (value := getattr(options, field.name)) is not None
    }
    return dataclasses.replace(defaults, **given)


def _form(config: GruConfig) -> str:
    """The form that is used, and the reason if it is not the one in the options."""
    return config.form if config.fallback is None else f"{config.form} ({config.fallback})"
