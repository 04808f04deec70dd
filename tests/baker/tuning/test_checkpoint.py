"""Checkpoints that are damaged, or that another run wrote, are one sentence."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import save

from hearthd.baker.tuning.checkpoint import (
    CHECKPOINT,
    Checkpoint,
    CheckpointError,
    History,
    read_checkpoint,
    require_tensors,
    write_checkpoint,
)

if TYPE_CHECKING:
    from pathlib import Path

OPTIONS = {"seed": 10**30, "targets": ["q_proj"]}
HISTORY = History(losses=[1.5, 1.25], validation=[(0, 1.5), (2, 1.0)], tokens=7)
TENSOR = {"a": np.ones(2, np.float32)}


def test_a_checkpoint_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = Checkpoint(adapters=TENSOR, best={}, state=TENSOR, history=HISTORY)
    write_checkpoint(tmp_path, written, OPTIONS)
    read = read_checkpoint(tmp_path, OPTIONS)
    assert read is not None
    assert (read.history, *read.adapters, *read.state, *read.best) == (HISTORY, "a", "a")


@pytest.mark.parametrize(
    "recorded",
    [
        [],
        {"history": {"losses": [], "validation": [], "tokens": 0}},
        {"options": [], "history": {"losses": [], "validation": [], "tokens": 0}},
        {"options": {}, "history": {"losses": 3, "validation": [], "tokens": 0}},
        {"options": {}, "history": {"losses": ["1"], "validation": [], "tokens": 0}},
        {"options": {}, "history": {"losses": [], "validation": [[1]], "tokens": 0}},
        {"options": {}, "history": {"losses": [], "validation": [[1, None]], "tokens": 0}},
    ],
)
def test_a_damaged_record_is_refused(tmp_path: Path, recorded: Any) -> None:
    data = save({"adapters/a": TENSOR["a"]}, metadata={"hearth": json.dumps(recorded)})
    (tmp_path / CHECKPOINT).write_bytes(data)
    with pytest.raises(CheckpointError, match=r"cannot be read: .*; remove it to start again"):
        read_checkpoint(tmp_path, {})


def test_a_tensor_that_is_missing_does_not_begin_as_zeros(tmp_path: Path) -> None:
    checkpoint = Checkpoint(adapters=TENSOR, best={}, state={}, history=HISTORY)
    require_tensors(tmp_path, checkpoint, TENSOR, ())
    for adapters, state in ((("a", "b"), ()), ((), ()), (("a",), ("a",))):
        with pytest.raises(
            CheckpointError, match=r"[ab] is missing, or is not of this run; remove"
        ):
            require_tensors(tmp_path, checkpoint, adapters, state)
