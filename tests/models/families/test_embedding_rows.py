"""The row of a token's embedding gives the keys and values that the token gives, in NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.models.dsl.evaluate import evaluate
from hearthd.runtime.interface import NO_TOKEN
from tests.by_day import each_architecture
from tests.models.embedding_graph import embeddings
from tests.models.numpy_device import Device
from tests.models.test_optimized import OPTIONS, program_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

# Rows are read in place of token 0, whose embedding for each layer a row has.
TOKENS = (5, 0, 0, 2, 60, 0, 41, 8)
READS_ROW = np.isin(np.arange(len(TOKENS)), (1, 5))


def read(device: Device, name: str, tokens: Array, *rows: Array) -> list[Array]:
    """The caches of a slot after a prefill at position 0."""
    ((_, graph),) = [pair for pair in device.program.entry_points if pair[0].name == name]
    numbers = [tokens.astype(np.int32), np.zeros(1, np.int32)]
    if len(graph.inputs) > len(numbers) + len(rows) + len(device.slot()):
        rotary = np.tile(np.arange(len(tokens), dtype=np.int32), (3, 1))
        numbers.append(rotary if rows else np.zeros(1, np.int32))
    return evaluate(graph, [*numbers, *rows, *device.slot()], device.weights)


@pytest.mark.parametrize("precision", [pytest.param("f32", marks=pytest.mark.nightly), "int8-g32"])
@pytest.mark.parametrize("architecture", each_architecture())
def test_the_row_of_a_token_gives_the_bits_of_the_token(architecture: str, precision: str) -> None:
    options = replace(OPTIONS, precision=precision, reads_rows=True)
    device = Device(program_of(architecture, options))
    rows = embeddings(device.program, TOKENS, device.weights)
    tokens = np.where(READS_ROW, NO_TOKEN, TOKENS)
    expected = read(device, "prefill_8", np.array(TOKENS))
    unread = np.where(READS_ROW[:, None], rows, np.float32(np.nan))
    actual = read(device, "prefill_rows_8", tokens, unread)
    assert all(map(np.array_equal, actual, expected))
    other = read(device, "prefill_rows_8", tokens, unread[:, ::-1])
    assert not all(map(np.array_equal, other, expected))


@pytest.mark.parametrize("adapters", [0, 2])
def test_a_program_reads_rows_only_if_it_is_asked_to(adapters: int) -> None:
    options = replace(OPTIONS, adapters=adapters)
    names = [point.name for point in options.entry_points()]
    with_rows = [point.name for point in replace(options, reads_rows=True).entry_points()]
    added = ["prefill_rows_8"]
    if adapters:
        added += [f"{name}_adapted" for name in added]
    assert sorted(with_rows) == sorted([*names, *added])
