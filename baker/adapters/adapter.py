"""Write a trained LoRA adapter as PEFT does, and read any for a merge: bundle/lora reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safetensors.numpy import save

from hearthd.baker.atomic_file import write_atomically
from hearthd.baker.weights.source import BadFile, NoWeights
from hearthd.bundle.lora import read_adapter as lora
from hearthd.bundle.lora.adapter_folder import PREFIX, TENSORS, WEIGHT
from hearthd.bundle.lora.adapter_settings import CONFIG, BadAdapter
from hearthd.bundle.parsing.head_rows import side_by_side

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from hearthd.bundle.lora.adapter_folder import LowRank
    from hearthd.bundle.lora.adapter_settings import AdapterSettings
    from hearthd.models.config import ModelConfig
    from hearthd.models.decoder.architecture import Architecture

    Matrix = NDArray[np.float32]


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
        module, factor = name.removesuffix(WEIGHT).rsplit(".", 1)
        stored = architecture.tensors.find(config, module + WEIGHT, (), gguf=False)
        if factor == "lora_B" and stored.interleaved:
            matrix = side_by_side(matrix, stored.interleaved)
        tensors[f"{PREFIX}{stored.name.removesuffix(WEIGHT)}.{factor}{WEIGHT}"] = matrix
    data = save(tensors, metadata={"format": "pt"})
    write_atomically(folder, {TENSORS: data, CONFIG: settings.to_json()})


def read_adapter(
    path: Path, architecture: Architecture[Any], config: ModelConfig
) -> dict[str, LowRank]:
    """The terms of an adapter by the parameters that they are added to.

    Raises NoWeights if a folder has no adapter, and BadFile if the adapter does not fit the model
    or computes something else.
    """
    if path.is_dir() and not (path / CONFIG).is_file():
        raise NoWeights(
            f"{path} has no {CONFIG}; specify a folder that PEFT or Hearth wrote, or a GGUF file"
        )
    names, matrices = {}, []
    for name, tensor in architecture.model(config).parameters().items():
        if name.endswith(WEIGHT) and tensor.type.rank == 2:
            matrix = architecture.matrix(config, name, (tensor.shape[0], tensor.shape[1]))
            matrices.append(matrix)
            names[matrix.module] = name
    try:
        adapter = lora.read_adapter(path, matrices, architecture.name)
    except BadAdapter as error:
        raise BadFile(str(error)) from error
    return {names[module]: term for module, term in adapter.terms.items()}
