"""All that a document says of an op, found out from its declaration: nothing is written twice."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl import fused, ops
from hearthd.models.dsl.gradient import gradients
from hearthd.models.dsl.graph import Apply, Graph, Input, Tensor, make_graph
from hearthd.models.dsl.mlir.stablehlo import module_text
from hearthd.models.dsl.ops import REGISTRY, NoGradient, Op, Sample
from hearthd.models.dsl.registry.op_signature import OpSignature, signature
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DslError, DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Sequence

# `%name = "dialect.operation"(...)`, in MLIR's generic form and in the pretty one.
_OPERATION = re.compile(r'%\w+(?::\d+)? = "?(\w+(?:\.\w+)+)')


@dataclass(frozen=True, kw_only=True)
class Facts:
    """One op, as documents have it.

    module     the file in `ops` or `fused` that declares it, as Python imports it
    exported   its name in that file
    gradient   the ops that its rule is written in, in the order of use; or why there is no rule
    lowering   the operations that it becomes in MLIR
    """

    op: Op
    module: str
    exported: str
    signature: OpSignature
    gradient: tuple[str, ...] | NoGradient
    lowering: tuple[str, ...]


def all_facts() -> list[Facts]:
    """The facts of every op, by file and name; raises DslError for one that is not exported."""
    declared: dict[int, tuple[str, str]] = {}
    for package in (ops, fused):
        for module_info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(module_info.name)
            declared |= {
                id(getattr(module, name)): (module_info.name, name) for name in module.__all__
            }
    for op in REGISTRY.values():
        if id(op) not in declared:
            raise DslError(f"{op.name} is missing in the __all__ of the file that declares it")
    return sorted(
        (_named_facts(op, *declared[id(op)]) for op in REGISTRY.values()),
        key=lambda facts: (facts.module, facts.op.name),
    )


@functools.cache  # an op does not change
def _named_facts(op: Op, module: str, exported: str) -> Facts:
    """Raises DslError, naming the op, when its declaration is wrong or leaves something open."""
    try:
        return _facts(op, module, exported)
    except DslError as error:
        raise DslError(f"{op.name}: {error}") from None


def _facts(op: Op, module: str, exported: str) -> Facts:
    samples = op.samples(np.random.default_rng(0))
    graphs = [_applied(op, sample) for sample in samples]
    return Facts(
        op=op,
        module=module,
        exported=exported,
        signature=signature(op, samples),
        gradient=op.vjp if isinstance(op.vjp, NoGradient) else _written_in(graphs),
        lowering=_once(_OPERATION.findall(module_text(op.name, graphs, op.name))),
    )


def _applied(op: Op, sample: Sample) -> Graph:
    types = {
        f"x{i}": TensorType(array.shape, DType.of(array.dtype))
        for i, array in enumerate(sample.inputs)
    }
    return trace(op.name, lambda *tensors: (op(*tensors, **sample.attrs),), types)


def _written_in(graphs: Sequence[Graph]) -> tuple[str, ...]:
    """The ops between the upstream gradient and the gradients of the float inputs."""
    names = []
    for graph in graphs:
        (output,) = graph.outputs
        upstream = Tensor(output.type, Input("upstream"))
        floats = tuple(tensor for tensor in graph.inputs if tensor.dtype.is_float)
        if not floats or not output.dtype.is_float:
            continue
        results = gradients(graph, (upstream,), floats)
        for node in make_graph(graph.name, (*graph.inputs, upstream), results, {}, {}).nodes:
            assert isinstance(node.origin, Apply)
            if node is not output:
                names.append(node.origin.op.name)
    return _once(names)


def _once(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
