"""`hearth bake gru`: bake the weights of a torch.nn.GRU."""

from __future__ import annotations

import dataclasses
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from hearthd.baker.atomic_folder import check_destination
from hearthd.baker.compiler.targets import find_targets
from hearthd.baker.pipeline.bake_arrays import ArraysToBake, bake_arrays
from hearthd.baker.pipeline.shared_stages import RecordedRequest
from hearthd.baker.weights.safetensors import SafetensorsFile
from hearthd.models.gru import config_from_shapes, program

if TYPE_CHECKING:
    from hearthd.baker.progress import Progress
    from hearthd.models.gru import GruConfig


@dataclass(frozen=True, kw_only=True)
class GruBakeRequest:
    """A GRU to bake. None means: as configs/arrays/gru.toml says."""

    weights: Path
    steps: int | None
    batch: int | None
    batch_first: bool
    form: str | None
    target: str
    out: Path | None


@dataclass(frozen=True, kw_only=True)
class GruDefaults:
    """The values of configs/arrays/gru.toml."""

    steps: int
    batch: int
    form: str


def bake_gru(request: GruBakeRequest, progress: Progress) -> Path:
    """Bake a safetensors file of torch.nn.GRU's state_dict; returns the bundle's folder.

    Raises ConfigError, which names the tensor that is missing, unknown or has a wrong shape, and
    what bake_arrays raises.
    """
    check_destination(request.out)
    with progress.stage("open the weights"):
        source = SafetensorsFile(request.weights)
        values = _values(request)
        config = config_from_shapes(
            {name: source.shape(name) for name in source.names()},
            steps=values.steps,
            batch=values.batch,
            form=values.form,
            batch_first=request.batch_first,
        )
        targets = find_targets(request.target)
    with progress.stage(f"trace the model, {_form(config)}"):
        options = {**dataclasses.asdict(values), "batch_first": request.batch_first}
        model = ArraysToBake(
            recorded=RecordedRequest(
                model="gru", options={**options, "target": request.target}, package=None
            ),
            architecture="gru",
            config=dataclasses.asdict(config),
            program=program(config),
            source=source,
        )
    out = request.out or Path(_name(config, request.target))
    bake_arrays(model, targets, out, progress)
    return out


def _values(request: GruBakeRequest) -> GruDefaults:
    text = (files("hearthd.configs") / "arrays" / "gru.toml").read_text("utf-8")
    defaults = GruDefaults(**tomllib.loads(text))
    requested = {
        field.name: value
        for field in dataclasses.fields(GruDefaults)
        if (value := getattr(request, field.name)) is not None
    }
    return dataclasses.replace(defaults, **requested)


def _form(config: GruConfig) -> str:
    """The form that is used, and the reason if it is not the requested one."""
    return config.form if config.fallback is None else f"{config.form} ({config.fallback})"


def _name(config: GruConfig, target: str) -> str:
    """The name of a bundle whose request names no folder."""
    name = f"gru-{config.inputs}-{config.hidden}"
    return name if target == "host" else f"{name}-{target}"
