"""Programs with places for adapters: what is computed while no request has one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.dsl.graph import Apply
from hearthd.models.dsl.mlir.stablehlo import module_text
from hearthd.models.program import ProgramOptions
from tests.by_day import first_by_day
from tests.models.families.gemma3.gemma3_cases import GROUPED

if TYPE_CHECKING:
    from hearthd.models.program import Program


def program(precision: str, adapters: int) -> Program:
    options = ProgramOptions(
        context=64, precision=precision, prefill_tokens=(16,), decode_batches=(1, 2),
        verify_tokens=(4,), adapters=adapters, adapter_rank=6,
    )  # fmt: skip
    return ARCHITECTURES["gemma3"].program(GROUPED, options)


@pytest.mark.parametrize("precision", first_by_day(["int8-g32", "f32"]))
def test_entry_points_without_adapters_are_those_of_a_program_without_places(
    precision: str,
) -> None:
    plain, places = program(precision, 0), program(precision, 3)
    texts = {
        point: module_text("module", [graph], "model")
        for point, graph in places.entry_points
        if not point.adapters
    }
    assert texts == {
        point: module_text("module", [graph], "model") for point, graph in plain.entry_points
    }
    assert len(places.entry_points) == 2 * len(texts)


@pytest.mark.parametrize(
    ("precision", "rank", "expected", "dtype"),
    [("int8-g32", 6, 8, "i8"), ("int8-g32", 65, 65, "f16"), ("f32", 6, 6, "f32")],
)
def test_small_factors_have_ranks_in_fours_up_to_64(
    precision: str, rank: int, expected: int, dtype: str
) -> None:
    options = ProgramOptions(
        context=64, precision=precision, prefill_tokens=(16,), decode_batches=(1,),
        adapters=2, adapter_rank=rank,
    )  # fmt: skip
    made = ARCHITECTURES["gemma3"].program(GROUPED, options).adapters
    assert made.rank == expected
    assert {array.dtype for array in made.arrays} - {"f16" if dtype == "i8" else dtype} <= {dtype}


def test_products_of_few_rows_add_the_terms_and_fetch_the_next_factors() -> None:
    for point, graph in program("int8-g32", 3).entry_points:
        nodes = [
            (node.origin.op.name, node.inputs)
            for node in graph.nodes
            if isinstance(node.origin, Apply)
        ]
        downs = [inputs for name, inputs in nodes if name == "lora_down"]
        ups = [inputs for name, inputs in nodes if name == "linear_adapted"]
        if point.adapters and point.batch * point.tokens <= 8:
            assert "lora_up" not in dict(nodes)
            # Queries, keys and values; what attention gives; gate and up; down.
            order = [name for name, _ in nodes if name in ("lora_down", "linear_adapted")]
            layer = ["lora_down", "linear_adapted"] * 2
            layer += [
                "lora_down",
                "linear_adapted",
                "linear_adapted",
                "lora_down",
                "linear_adapted",
            ]
            assert order == layer * GROUPED.layers
            factors = [inputs[2] for inputs in downs[1:]] + [downs[0][2]]
            fetched = [inputs[6] for inputs in ups]
            del fetched[2::5]  # gate fetches a part of what up fetches
            assert all(one is other for one, other in zip(fetched, factors, strict=True))
        else:
            assert not ups
