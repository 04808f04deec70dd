"""The GRUs that PyTorch is asked about: every combination of options, small, with their weights.

`torch_answers` reads what torch.nn.GRU said, recorded by tests/golden/record_gru_torch.py.
"""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typing_extensions import override

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.functions import recurrent
from hearthd.models.dsl.graph import Input, Tensor, make_graph
from hearthd.models.dsl.nn import GRU
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType
from tests.models.graphs import type_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from hearthd.models.dsl.graph import Graph

    Array = NDArray[Any]

GOLDEN = Path(__file__).parents[3] / "golden" / "gru_torch.npz"
BATCH, HIDDEN = 2, 3


@dataclass(frozen=True, kw_only=True)
class Case:
    """A GRU of HIDDEN states, and a sequence for BATCH of them."""

    layers: int
    bidirectional: bool
    bias: bool
    batch_first: bool
    given_h0: bool
    steps: int
    inputs: int

    @override
    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        flags = ("bidirectional", "bias", "batch_first", "given_h0")
        said = [flag for flag in flags if getattr(self, flag)]
        return "_".join([f"l{self.layers}", f"s{self.steps}", f"d{self.inputs}", *said])

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def y_shape(self) -> tuple[int, ...]:
        leading = (BATCH, self.steps) if self.batch_first else (self.steps, BATCH)
        return (*leading, self.directions * HIDDEN)

    @property
    def h_shape(self) -> tuple[int, ...]:
        return (self.layers * self.directions, BATCH, HIDDEN)

    def module(self, dtype: DType, form: str) -> GRU:
        return GRU(
            self.inputs,
            HIDDEN,
            layers=self.layers,
            bidirectional=self.bidirectional,
            bias=self.bias,
            batch_first=self.batch_first,
            dtype=dtype,
            form=form,
        )

    def inputs_of(self, dtype: DType) -> dict[str, Array]:
        """x and, if given, h0."""
        rng = np.random.default_rng(7)
        x = rng.normal(size=(*self.y_shape[:2], self.inputs)).astype(dtype.numpy)
        h0 = rng.normal(size=self.h_shape).astype(dtype.numpy)
        return {"x": x, "h0": h0} if self.given_h0 else {"x": x}

    def weights(self, dtype: DType) -> dict[str, Array]:
        """By the names of the module's parameters, and of torch's."""
        rng = np.random.default_rng(8)
        return {
            name: rng.uniform(-0.9, 0.9, size=weight.shape).astype(dtype.numpy)
            for name, weight in self.module(dtype, "unrolled").parameters().items()
        }

    def graph(self, dtype: DType, form: str, name: str = "gru") -> Graph:
        """(x, h0 if given, the weights) -> (y, h_n)."""
        module, inputs = self.module(dtype, form), self.inputs_of(dtype)

        def function(*tensors: Tensor) -> tuple[Tensor, ...]:
            weights = tensors[len(inputs) :]
            for key, tensor in zip(module.parameters(), weights, strict=True):
                setattr(module, key, tensor)
            return module(*tensors[: len(inputs)])

        return trace(name, function, _types({**inputs, **self.weights(dtype)}))


CASES = [
    Case(
        layers=layers,
        bidirectional=bidirectional,
        bias=bias,
        batch_first=batch_first,
        given_h0=given_h0,
        steps=steps,
        inputs=inputs,
    )
    for layers, bidirectional, bias, batch_first, given_h0, steps, inputs in itertools.product(
        (1, 2), (False, True), (True, False), (False, True), (True, False), (5, 1), (4, HIDDEN)
    )
]


CASE = Case(
    layers=2, bidirectional=True, bias=True, batch_first=True, given_h0=True, steps=5, inputs=4
)
ONE_LAYER = dataclasses.replace(CASE, layers=1, bidirectional=False, batch_first=False)
# "blocks" is the fused form of a long sequence: here with two blocks of two steps, and one more.
FORMS = (*f.GRU_FORMS, "blocks")
# Every eighth case in every run.
each_case = pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.nightly if index % 8 else ())
        for index, case in enumerate(CASES)
    ],
    ids=str,
)
each_form = pytest.mark.parametrize("form", FORMS)


def graph_of(case: Case, form: str, *, dtype: DType = DType.F64, name: str = "gru") -> Graph:
    """(x, h0 if given, the weights) -> (y, h_n)."""
    with pytest.MonkeyPatch.context() as patch:
        if form == "blocks":
            patch.setattr(recurrent, "UNROLLED_STEPS", 2)
            patch.setattr(recurrent, "BLOCK_STEPS", 2)
        return case.graph(dtype, "fused" if form == "blocks" else form, name)


def arrays_of(case: Case, dtype: DType = DType.F64) -> list[Array]:
    """What `graph_of` takes."""
    return [*case.inputs_of(dtype).values(), *case.weights(dtype).values()]


def joined(graph: Graph, name: str = "joined") -> Graph:
    """The graph with y and h_n as one result."""
    flat = [ops.reshape(output, shape=(output.type.size,)) for output in graph.outputs]
    return make_graph(name, graph.inputs, (ops.concatenate(*flat, axis=0),), {}, {})


def torch_answers() -> dict[str, tuple[Array, Array]]:
    """By the name of a case, torch's y and h_n in float64."""
    with np.load(GOLDEN) as file:
        values = file["values"]
    answers, start = {}, 0
    for case in CASES:
        parts = []
        for shape in (case.y_shape, case.h_shape):
            stop = start + int(np.prod(shape))
            parts.append(values[start:stop].reshape(shape))
            start = stop
        answers[case.name] = (parts[0], parts[1])
    assert start == values.size
    return answers


def _types(arrays: Mapping[str, Array]) -> dict[str, TensorType]:
    return {name: type_of(array) for name, array in arrays.items()}


def step_graph(case: Case, dtype: DType, name: str = "step") -> Graph:
    """(x (B, D), h (layers, B, H), weights) -> (y (B, H), h)."""
    module = case.module(dtype, "unrolled")
    x = Tensor(TensorType((BATCH, case.inputs), dtype), Input("x"))
    h = Tensor(TensorType(case.h_shape, dtype), Input("h"))
    weights = {key: Tensor(old.type, Input(key)) for key, old in module.parameters().items()}
    for key, tensor in weights.items():
        setattr(module, key, tensor)
    return make_graph(name, (x, h, *weights.values()), module.step(x, h), {}, {})
