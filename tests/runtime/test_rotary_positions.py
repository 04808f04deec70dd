"""Rotary positions of slots with images."""

from __future__ import annotations

import numpy as np
import pytest

from hearthd.runtime.rotary_positions import RotaryPositions
from hearthd.server.engine.prompt import ImageRows, Prompt

IMAGE = ImageRows(
    media=np.zeros((2, 3, 3), np.uint8), digest=bytes(32), count=6, grid=(2, 3)
)  # fmt: skip
PROMPT = Prompt((7, 8), IMAGE, (9,), IMAGE, (5, 6))


def rotary() -> RotaryPositions:
    positions = RotaryPositions(has_axes=True)
    positions.set(1, PROMPT.rotary_positions)
    return positions


def test_text_goes_on_after_the_longer_side_of_an_image() -> None:
    """By hand, from the rule of Qwen2-VL's paper (Wang et al., 2024), section 2.1."""
    positions = PROMPT.rotary_positions
    assert positions is not None
    time = [0, 1, *[2] * 6, 5, *[6] * 6, 9, 10]
    row = [0, 1, 2, 2, 2, 3, 3, 3, 5, 6, 6, 6, 7, 7, 7, 9, 10]
    column = [0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 7, 8, 6, 7, 8, 9, 10]
    assert positions.tolist() == [time, row, column]
    assert Prompt((7, 8)).rotary_positions is None


def test_later_positions_go_on_after_the_prompt() -> None:
    """Positions of an answer, of its drafts, and of padding."""
    (shifts,) = rotary().shifts([0, 1], [17, 17], unused=1)
    assert shifts.tolist() == [0, -6, 0]
    assert rotary().shifts([1], [17], tokens=4)[0].tolist() == [-6]
    assert rotary().shifts([1], [8])[0].tolist() == [-3]
    (rows,) = rotary().of_rows(1, 14, 5)
    assert rows.tolist() == [[6, 9, 10, 11, 12], [7, 9, 10, 11, 12], [8, 9, 10, 11, 12]]
    assert rows.flags.c_contiguous


def test_rows_are_not_read_as_tokens() -> None:
    with pytest.raises(AssertionError, match="not only tokens"):
        rotary().shifts([1], [1], tokens=3)


def test_a_slot_forgets_the_positions_of_its_last_prompt() -> None:
    positions = rotary()
    positions.set(1, None)
    assert positions.shifts([1], [17])[0].tolist() == [0]


def test_models_without_axes_have_no_arguments() -> None:
    positions = RotaryPositions(has_axes=False)
    assert positions.shifts([0], [3]) == positions.of_rows(0, 3, 2) == []
    with pytest.raises(AssertionError, match="without axes"):
        positions.set(0, PROMPT.rotary_positions)
