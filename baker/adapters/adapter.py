"""A trained LoRA adapter, and the folder that PEFT keeps one in.

The folder has adapter_config.json and adapter_model.safetensors, as PEFT's `save_pretrained` writes
them. In shape comments `R` is the rank of a pair, `K` the width of its input and `N` its outputs.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import save

from baker.atomic_file import write_atomically
from baker.weights.safetensors import SafetensorsFile, read_json
from baker.weights.source import BadFile, NoWeights

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from models.config import ModelConfig
    from models.decoder.architecture import Architecture

    Matrix = NDArray[np.float32]

CONFIG = "adapter_config.json"
TENSORS = "adapter_model.safetensors"
_PREFIX = "base_model.model."
_WEIGHT = ".weight"
# Options of PEFT that change what an adapter computes, and the values that are supported.
_SUPPORTED: Mapping[str, tuple[object, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    "use_dora": (False, None),
    "fan_in_fan_out": (False, None),
    "lora_bias": (False, None),
    "modules_to_save": (None, []),
    "rank_pattern": (None, {}),
    "alpha_pattern": (None, {}),
    "alora_invocation_tokens": (None,),
    "target_parameters": (None, []),
    "layer_replication": (None,),
    "use_qalora": (False, None),
    "use_bdlora": (None, False),
    "arrow_config": (None,),
}


@dataclass(frozen=True, kw_only=True)
class LowRank:
    """The term scale * B A of a matrix (N, K), with A (R, K) and B (N, R)."""

    a: Matrix
    b: Matrix
    scale: float


@dataclass(frozen=True, kw_only=True)
class AdapterSettings:
    """The settings of an adapter, as adapter_config.json has them.

    scale        of B A: alpha / rank, or with `rslora` alpha / sqrt(rank)
    projections  the matrices, by the last part of their modules' names
    base         where the weights of the model came from; it is only recorded
    """

    rank: int
    alpha: float
    projections: tuple[str, ...]
    dropout: float = 0.0
    rslora: bool = False
    base: str = ""

    @property
    def scale(self) -> float:
        """The factor of B A."""
        return self.alpha / (math.sqrt(self.rank) if self.rslora else self.rank)

    def to_json(self) -> str:
        """The text of adapter_config.json."""
        fields = {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": self.base,
            "r": self.rank,
            "lora_alpha": self.alpha,
            "lora_dropout": self.dropout,
            "target_modules": list(self.projections),
            "bias": "none",
            "fan_in_fan_out": False,
            "use_rslora": self.rslora,
            "inference_mode": True,
        }
        return json.dumps(fields, indent=2) + "\n"


def write_adapter(
    folder: Path,
    settings: AdapterSettings,
    matrices: Mapping[str, Matrix],
    architecture: Architecture[Any],
    config: ModelConfig,
) -> None:
    """Write an adapter as PEFT does; each of the two files is complete or not there.

    matrices  A and B by name, `layers.0.self_attn.q_proj.lora_A.weight`
    """
    tensors = {}
    for name, matrix in matrices.items():
        module, factor = name.removesuffix(_WEIGHT).rsplit(".", 1)
        stored = architecture.tensors.find(config, module + _WEIGHT, (), gguf=False).name
        tensors[f"{_PREFIX}{stored.removesuffix(_WEIGHT)}.{factor}{_WEIGHT}"] = matrix
    data = save(tensors, metadata={"format": "pt"})
    write_atomically(folder, {TENSORS: data, CONFIG: settings.to_json()})


def read_adapter(
    folder: Path, architecture: Architecture[Any], config: ModelConfig
) -> dict[str, LowRank]:
    """The terms of an adapter by the parameters that they are added to.

    Raises NoWeights if the folder has no adapter, and BadFile if the adapter does not fit the model
    or uses an option of PEFT that is not supported.
    """
    if not (folder / CONFIG).is_file():
        raise NoWeights(f"{folder} has no {CONFIG}; specify a folder that PEFT or Hearth wrote")
    settings = _read_settings(folder / CONFIG)
    source = SafetensorsFile(folder / TENSORS)
    names = {
        f"{_PREFIX}{stored.removesuffix(_WEIGHT)}": parameter
        for parameter in architecture.model(config).parameters()
        for stored in (architecture.tensors.find(config, parameter, (), gguf=False).name,)
    }
    shapes = {
        name: tensor.shape for name, tensor in architecture.model(config).parameters().items()
    }
    modules: dict[str, set[str]] = {}
    for name in source.names():
        module, _, factor = name.removesuffix(_WEIGHT).rpartition(".")
        if module not in names or factor not in ("lora_A", "lora_B"):
            raise BadFile(
                f"{source.files()[0]}: tensor {name} does not fit any matrix of this model"
            )
        modules.setdefault(module, set()).add(factor)
    terms = {}
    for module in modules:
        parameter = names[module]
        rows, columns = shapes[parameter]
        a = _matrix(source, f"{module}.lora_A{_WEIGHT}", (settings.rank, columns))
        b = _matrix(source, f"{module}.lora_B{_WEIGHT}", (rows, settings.rank))
        terms[parameter] = LowRank(a=a, b=b, scale=settings.scale)
    if not terms:
        raise BadFile(f"{folder / TENSORS} has no tensors")
    return terms


def adapter_files(folder: Path) -> tuple[Path, ...]:
    """The files of an adapter."""
    return (folder / CONFIG, folder / TENSORS)


def _read_settings(path: Path) -> AdapterSettings:
    data = read_json(path)
    for key, supported in _SUPPORTED.items():
        if data.get(key, supported[0]) not in supported:
            raise BadFile(f"{path}: {key}: got {data[key]!r:.80}, expected {supported[0]!r}")
    rank, alpha = data.get("r"), data.get("lora_alpha")
    if type(rank) is not int or rank < 1:
        raise BadFile(f"{path}: r: got {rank!r:.80}, expected a rank of at least 1")
    if not isinstance(alpha, int | float) or isinstance(alpha, bool):
        raise BadFile(f"{path}: lora_alpha: got {alpha!r:.80}, expected a number")
    return AdapterSettings(
        rank=rank, alpha=float(alpha), projections=(), rslora=data.get("use_rslora") is True
    )


def _matrix(source: SafetensorsFile, name: str, shape: tuple[int, int]) -> Matrix:
    if name not in source.names():
        raise BadFile(f"{source.files()[0]}: tensor {name} is missing")
    if source.shape(name) != shape:
        raise BadFile(
            f"{source.files()[0]}: tensor {name} has shape {source.shape(name)}, expected {shape}"
        )
    matrix = source.read(name)
    if not np.isfinite(matrix).all():
        raise BadFile(f"{source.files()[0]}: tensor {name} has values that are not finite")
    return matrix
