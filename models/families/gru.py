"""The GRU as PyTorch's torch.nn.GRU computes it, with the names of its state_dict.

It knows the shape of such a model and its two entry points, and not how a recurrence is lowered:
that is models/dsl.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.models.config import ConfigError
from hearthd.models.dsl import functions as f
from hearthd.models.dsl.nn import GRU
from hearthd.models.dsl.rewrites.stored_weights import plain_weights
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType, TypeRuleError
from hearthd.models.program import ArraysProgram

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from hearthd.models.dsl.graph import Graph

FORMS = f.GRU_FORMS


@dataclass(frozen=True, kw_only=True)
class GruConfig:
    """The shape of a GRU, and the options that are fixed while baking.

    inputs         D, the width of an input
    hidden         H, the width of a state
    layers         how many, each reading the states of the one below
    bidirectional  whether each layer reads in both directions
    bias           whether the gates have biases
    steps          S of `run`
    batch          B of both entry points
    batch_first    whether `run` takes and gives (B, S, ...) and not (S, B, ...)
    form           how the recurrence of `run` is lowered: one of FORMS
    fallback       why it is not lowered in the form that was asked for; None where it is
    """

    inputs: int
    hidden: int
    layers: int
    bidirectional: bool
    bias: bool
    steps: int
    batch: int
    batch_first: bool
    form: str
    fallback: str | None = None

    def __post_init__(self) -> None:
        """Raises ConfigError, naming the key."""
        for key in ("inputs", "hidden", "layers", "steps", "batch"):
            if getattr(self, key) < 1:
                raise ConfigError(f"{key}: expected at least 1, got {getattr(self, key)}")
        chosen = _choose(self, self.form)
        if chosen.name != self.form:
            raise ConfigError(f"form: expected {chosen.name}, got {chosen.fallback}")

    @property
    def directions(self) -> int:
        """In how many directions a layer reads."""
        return 2 if self.bidirectional else 1


def config_from_shapes(
    shapes: Mapping[str, tuple[int, ...]],
    *,
    steps: int,
    batch: int,
    form: str,
    batch_first: bool = False,
) -> GruConfig:
    """The configuration that a state_dict of torch.nn.GRU was made with.

    Where the form "fused" does not take it, the configuration has another, and `fallback` says why.
    Raises ConfigError, naming the tensor that is missing, unknown or of another shape.
    """
    _refuse_prefix(shapes)
    for name in ("weight_ih_l0", "weight_hh_l0"):
        if len(shapes.get(name, ())) != 2:
            raise ConfigError(
                f"{name}: expected a matrix, got {shapes.get(name, 'no such tensor')}"
            )
    layers = 1
    while f"weight_ih_l{layers}" in shapes:
        layers += 1
    config = GruConfig(
        inputs=shapes["weight_ih_l0"][1],
        hidden=shapes["weight_hh_l0"][1],
        layers=layers,
        bidirectional="weight_ih_l0_reverse" in shapes,
        bias="bias_ih_l0" in shapes,
        steps=steps,
        batch=batch,
        batch_first=batch_first,
        form="loop",
    )
    chosen = _choose(config, form)
    config = dataclasses.replace(config, form=chosen.name, fallback=chosen.fallback)
    expected = {name: weight.shape for name, weight in _module(config).parameters().items()}
    for name in sorted({*shapes, *expected}):
        if shapes.get(name) != expected.get(name):
            raise ConfigError(
                f"{name}: expected {expected.get(name, 'no such tensor')}, "
                f"got {shapes.get(name, 'no such tensor')}"
            )
    return config


def _refuse_prefix(names: Collection[str]) -> None:
    """Raise ConfigError for the names of a GRU that is a part of a larger module."""
    for name in sorted(names):
        prefix, dot, tensor = name.rpartition(".")
        if dot and tensor == "weight_ih_l0":
            raise ConfigError(
                f"{name}: expected {tensor}; the names have the prefix {prefix + dot!r}: save the "
                "state_dict() of the GRU alone"
            )


def program(config: GruConfig) -> ArraysProgram:
    """The entry points.

    run   x (S, B, D), or (B, S, D) with batch_first, and h0 (layers * directions, B, H) -> y, of
          x's form with directions * H for D, and h_n like h0
    step  where there is one direction: x (B, D) and h (layers, B, H) -> y (B, H) and the next h,
          which takes the place of the given one
    """
    gru = _module(config)
    graphs, outputs = [_run(config, gru)], {"run": ("y", "h_n")}
    if not config.bidirectional:
        graphs.append(_step(config, gru))
        outputs["step"] = ("y", "h")
    return ArraysProgram(
        graphs=tuple(graphs),
        outputs=outputs,
        weights=plain_weights(gru.parameters()),
        zeros=frozenset({"h0", "h"}),
    )


def _choose(config: GruConfig, asked: str) -> f.GruForm:
    """The form of `run`; raises ConfigError."""
    state = TensorType((config.batch, config.hidden), DType.F32)
    try:
        return f.choose_gru_form(asked, config.steps, state)
    except TypeRuleError as error:
        raise ConfigError(str(error)) from None


def _module(config: GruConfig) -> GRU:
    return GRU(
        config.inputs,
        config.hidden,
        layers=config.layers,
        bidirectional=config.bidirectional,
        bias=config.bias,
        batch_first=config.batch_first,
        dtype=DType.F32,
        form=config.form,
    )


def _run(config: GruConfig, gru: GRU) -> Graph:
    leading = (config.steps, config.batch)
    x = TensorType(
        (*(reversed(leading) if config.batch_first else leading), config.inputs), DType.F32
    )
    h0 = TensorType((config.layers * config.directions, config.batch, config.hidden), DType.F32)
    return trace("run", gru, {"x": x, "h0": h0}, parameters=gru.parameters())


def _step(config: GruConfig, gru: GRU) -> Graph:
    x = TensorType((config.batch, config.inputs), DType.F32)
    h = TensorType((config.layers, config.batch, config.hidden), DType.F32)
    return trace("step", gru.step, {"x": x, "h": h}, parameters=gru.parameters(), in_place={1: 1})
