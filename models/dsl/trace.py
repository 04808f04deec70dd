"""Run a Python function on symbolic tensors, without data, and record the graph of its ops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.dsl.graph import Graph, Input, Tensor, make_graph

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hearthd.models.dsl.types import TensorType

_NO_PARAMETERS: Mapping[str, Tensor] = {}
_NOTHING_IN_PLACE: Mapping[int, int] = {}


def trace(
    name: str,
    function: Callable[..., tuple[Tensor, ...]],
    inputs: Mapping[str, TensorType],
    *,
    parameters: Mapping[str, Tensor] = _NO_PARAMETERS,
    in_place: Mapping[int, int] = _NOTHING_IN_PLACE,
) -> Graph:
    """Call `function` with one void tensor for each of `inputs`, in order.

    `parameters` are the named weights that the function may read (`Module.parameters()`);
    `in_place` maps an output to the input whose storage it takes. It reads no data.
    Raises DslError when the program is wrong.
    """
    arguments = tuple(Tensor(tensor_type, Input(key)) for key, tensor_type in inputs.items())
    outputs = function(*arguments)
    return make_graph(name, arguments, outputs, parameters, in_place)
