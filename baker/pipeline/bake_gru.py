"""`bake gru`: what the command line and configs/arrays/gru.toml say, as a program to bake."""

from __future__ import annotations

import dataclasses
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from baker.compiler.targets import find_target
from baker.pipeline.bake_arrays import ArraysModel, bake_arrays
from baker.pipeline.shared_stages import RecordedRequest
from baker.weights.safetensors import SafetensorsFile
from models.gru import config_from_shapes, program

if TYPE_CHECKING:
    from baker.progress import Progress
    from models.bundle import Target
    from models.gru import GruConfig


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
    """Bake the GRU of a safetensors file, named as torch.nn.GRU's state_dict; the folder.

    Raises ConfigError naming the tensor that is missing, unknown or of another shape, and what
    bake_arrays raises.
    """
    with progress.stage("open the weights"):
        source = SafetensorsFile(request.weights)
        chosen = _chosen(request)
        config = config_from_shapes(
            {name: source.shape(name) for name in source.names()},
            steps=chosen.steps,
            batch=chosen.batch,
            form=chosen.form,
            batch_first=request.batch_first,
        )
        target = find_target(request.target)
    with progress.stage(f"trace the model, {_form(config)}"):
        options = {**dataclasses.asdict(chosen), "batch_first": request.batch_first}
        model = ArraysModel(
            recorded=RecordedRequest(
                model="gru", options={**options, "target": target.name}, package=None
            ),
            architecture="gru",
            config=dataclasses.asdict(config),
            program=program(config),
            source=source,
        )
    out = request.out or Path(_name(config, target))
    bake_arrays(model, target, out, progress)
    return out


def _chosen(request: GruBakeRequest) -> GruDefaults:
    text = (files("configs") / "arrays" / "gru.toml").read_text("utf-8")
    defaults = GruDefaults(**tomllib.loads(text))
    said = {
        field.name: value
        for field in dataclasses.fields(GruDefaults)
        if (value := getattr(request, field.name)) is not None
    }
    return dataclasses.replace(defaults, **said)


def _form(config: GruConfig) -> str:
    """The form that it has, and if another was asked for, why not that one."""
    return config.form if config.fallback is None else f"{config.form} ({config.fallback})"


def _name(config: GruConfig, target: Target) -> str:
    """The name of a bundle whose request names no folder."""
    name = f"gru-{config.inputs}-{config.hidden}"
    return name if target.name == "host" else f"{name}-{target.name}"
