"""Random tensors of small models, by their names in Hugging Face folders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.models.families.cases import random_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from hearthd.models.decoder.architecture import Architecture


def small_tensors(
    architecture: Architecture[Any],
    config: Any,
    *,
    name: Callable[[str], str] = str,
    shape: Callable[[str, tuple[int, ...]], tuple[int, ...]] | None = None,
) -> dict[str, NDArray[np.float32]]:
    """A tensor for each parameter of a model.

    name   the name of a tensor in published files, where `TensorNames` has another name first
    shape  the shape of a parameter's tensor in files, where it is another than the parameter's
    """
    shapes = {}
    for parameter, tensor in architecture.model(config).parameters().items():
        stored = architecture.tensors.find(config, parameter, (), gguf=False).name
        shapes[name(stored)] = tensor.shape if shape is None else shape(parameter, tensor.shape)
    return random_tensors(shapes)
