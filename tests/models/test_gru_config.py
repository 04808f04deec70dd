"""The GRU: its configuration out of the shapes of a state_dict, and its entry points."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from hearthd.models.config import ConfigError
from hearthd.models.dsl.types import DType, TensorType
from hearthd.models.families.gru import GruConfig, config_from_shapes, program

CONFIG = GruConfig(
    inputs=3, hidden=4, layers=2, bidirectional=False, bias=True, steps=5, batch=2,
    batch_first=False, form="unrolled",
)  # fmt: skip
SHAPES = {
    "weight_ih_l0": (12, 3), "weight_hh_l0": (12, 4), "bias_ih_l0": (12,), "bias_hh_l0": (12,),
    "weight_ih_l1": (12, 4), "weight_hh_l1": (12, 4), "bias_ih_l1": (12,), "bias_hh_l1": (12,),
}  # fmt: skip


def reverse(shapes: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """With the other direction, whose states the layer above reads too."""
    both = {**shapes, "weight_ih_l1": (12, 8)}
    return both | {f"{name}_reverse": shape for name, shape in both.items()}


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        (SHAPES, CONFIG),
        (
            {name: shape for name, shape in SHAPES.items() if "bias" not in name},
            dataclasses.replace(CONFIG, bias=False),
        ),
        (
            {name: shape for name, shape in SHAPES.items() if "l0" in name},
            dataclasses.replace(CONFIG, layers=1),
        ),
        (reverse(SHAPES), dataclasses.replace(CONFIG, bidirectional=True)),
    ],
)
def test_a_state_dict_tells_the_configuration(
    shapes: dict[str, tuple[int, ...]], expected: GruConfig
) -> None:
    assert config_from_shapes(shapes, steps=5, batch=2, form="unrolled") == expected
    parameters = program(expected).parameters
    assert {name: weight.shape for name, weight in parameters.items()} == shapes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weight_hh_l0": None}, "weight_hh_l0: expected a matrix, got no such tensor"),
        ({"weight_hh_l0": (12,)}, "weight_hh_l0: expected a matrix"),
        (
            {"gru.weight_ih_l0": (12, 3)},
            r"gru.weight_ih_l0: expected weight_ih_l0; the names have the prefix 'gru.': save the",
        ),
        ({"weight_ih_l0": (16, 3)}, r"weight_ih_l0: expected \(12, 3\), got \(16, 3\)"),
        ({"bias_hh_l1": None}, r"bias_hh_l1: expected \(12,\), got no such tensor"),
        ({"weight_ih_l1": None}, "bias_hh_l1: expected no such tensor"),
        ({"weight_hr_l0": (2, 4)}, "weight_hr_l0: expected no such tensor"),
        ({"weight_ih_l0_reverse": (12, 3)}, "bias_hh_l0_reverse: expected"),
    ],
)
def test_tensors_that_are_no_gru(changes: dict[str, tuple[int, ...] | None], message: str) -> None:
    changed = {**SHAPES, **changes}
    shapes = {name: shape for name, shape in changed.items() if shape is not None}
    with pytest.raises(ConfigError, match=message):
        config_from_shapes(shapes, steps=5, batch=2, form="unrolled")


@pytest.mark.parametrize("key", ["inputs", "hidden", "layers", "steps", "batch", "form"])
def test_values_that_no_gru_has(key: str) -> None:
    wrong: dict[str, Any] = {key: "fast" if key == "form" else 0}
    with pytest.raises(ConfigError, match=f"{key}: expected"):
        dataclasses.replace(CONFIG, **wrong)


def test_a_form_that_does_not_take_the_configuration_is_replaced_and_says_why() -> None:
    config = config_from_shapes(SHAPES, steps=5, batch=2, form="fused")
    assert (config.form, config.fallback) == ("fused", None)
    config = config_from_shapes(SHAPES, steps=1, batch=2, form="fused")
    assert config.form == "unrolled"
    assert config.fallback == "fused: one step has no other to share a matmul with"
    config = config_from_shapes(SHAPES, steps=1_000_000, batch=2, form="fused")
    assert config.form == "loop"
    assert config.fallback == "fused: 96000000 bytes of gates, at most 67108864 are kept"
    with pytest.raises(ConfigError, match="form: expected unrolled, got fused: one step"):
        dataclasses.replace(CONFIG, steps=1, form="fused")


def test_entry_points() -> None:
    both = program(CONFIG)
    run, step = both.graphs
    assert [tensor.type for tensor in run.inputs] == [f32(5, 2, 3), f32(2, 2, 4)]
    assert [tensor.type for tensor in run.outputs] == [f32(5, 2, 4), f32(2, 2, 4)]
    assert [tensor.type for tensor in step.inputs] == [f32(2, 3), f32(2, 2, 4)]
    assert [tensor.type for tensor in step.outputs] == [f32(2, 4), f32(2, 2, 4)]
    assert step.in_place == {1: 1}
    assert both.outputs == {"run": ("y", "h_n"), "step": ("y", "h")}
    assert both.zeros == {"h0", "h"}


def test_a_gru_that_reads_backwards_has_no_step() -> None:
    config = dataclasses.replace(CONFIG, bidirectional=True, batch_first=True)
    (run,) = program(config).graphs
    assert [tensor.type for tensor in run.inputs] == [f32(2, 5, 3), f32(4, 2, 4)]
    assert [tensor.type for tensor in run.outputs] == [f32(2, 5, 8), f32(4, 2, 4)]


def f32(*shape: int) -> TensorType:
    return TensorType(shape, DType.F32)
