"""What a model hands to the baker is whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DslError, DType, TensorType
from hearthd.models.program import ArraysProgram, ProgramOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

X = TensorType((2,), DType.F32)
RUN = trace("run", lambda x, h: (x + h, x), {"x": X, "h": X})


def program(outputs: Mapping[str, tuple[str, ...]]) -> ArraysProgram:
    return ArraysProgram(graphs=(RUN,), outputs=outputs, weights=())


def test_an_unknown_precision_is_rejected() -> None:
    with pytest.raises(DslError, match=r"got 'int8', expected .*int8-g32"):
        ProgramOptions(context=64, precision="int8", prefill_tokens=(8,), decode_batches=(1,))


@pytest.mark.parametrize("tokens", [8, 12])
def test_a_long_prefill_reads_several_whole_chunks(tokens: int) -> None:
    with pytest.raises(DslError, match=f"expected several times 8, got {tokens}"):
        ProgramOptions(
            context=64, precision="f32", prefill_tokens=(4, 8), long_prefill=tokens,
            decode_batches=(1,),
        )  # fmt: skip


def test_every_result_has_a_name() -> None:
    assert program({"run": ("y", "x")}).zeros == frozenset()


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({}, "functions: expected results of"),
        ({"run": ("y", "x"), "step": ("y",)}, "functions: expected results of"),
        ({"run": ("y",)}, "run: expected 2 names of results"),
        ({"run": ("y", "y")}, "run: expected 2 names of results"),
        ({"run": ("y", "x", "z")}, "run: expected 2 names of results"),
    ],
)
def test_names_that_do_not_fit(outputs: dict[str, tuple[str, ...]], message: str) -> None:
    with pytest.raises(DslError, match=message):
        program(outputs)
