"""The state of a run in one file, from which it goes on with the same bits.

checkpoint.safetensors has the adapter, the optimizer's state and the best adapter so far as
tensors, and in its metadata the options of the run and what has been measured.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from hearthd.baker.atomic_file import write_atomically
from hearthd.bundle.parsing.typed_json import typed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    Array = NDArray[Any]

CHECKPOINT = "checkpoint.safetensors"
_KEY = "hearth"


class CheckpointError(Exception):
    """A checkpoint is damaged, or belongs to a run with other options; the message names it."""


@dataclass(kw_only=True)
class History:
    """The measurements of a run so far.

    losses       the loss before each step, in nats per learned token
    validation   (steps, loss) of each validation, the first one before any step
    tokens       tokens that were read in all steps, without padding
    """

    losses: list[float] = field(default_factory=list)
    validation: list[tuple[int, float]] = field(default_factory=list)
    tokens: int = 0

    @property
    def step(self) -> int:
        """The number of steps that are done."""
        return len(self.losses)

    @property
    def best(self) -> float | None:
        """The lowest loss of a validation."""
        return min((loss for _, loss in self.validation), default=None)

    def validations_since_best(self) -> int:
        """The number of validations after the one with the lowest loss."""
        losses = [loss for _, loss in self.validation]
        return len(losses) - 1 - losses.index(min(losses)) if losses else 0


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The state of a run between two steps: adapter and best adapter by name, and the rest."""

    adapters: Mapping[str, Array]
    best: Mapping[str, Array]
    state: Mapping[str, Array]
    history: History


def write_checkpoint(folder: Path, checkpoint: Checkpoint, options: Mapping[str, Any]) -> None:
    """Replace the checkpoint of a folder; an interruption leaves the old or the new one."""
    tensors = {
        f"{group}/{name}": array
        for group in ("adapters", "best", "state")
        for name, array in getattr(checkpoint, group).items()
    }
    recorded = {"options": dict(options), "history": dataclasses.asdict(checkpoint.history)}
    data = save(tensors, metadata={_KEY: json.dumps(recorded)})
    write_atomically(folder, {CHECKPOINT: data})


def read_checkpoint(folder: Path, options: Mapping[str, Any]) -> Checkpoint | None:
    """The checkpoint of a folder, or None if it has none.

    Raises CheckpointError if it cannot be read, or if the run had other options.
    """
    path = folder / CHECKPOINT
    if not path.exists():
        return None
    groups: dict[str, dict[str, Array]] = {"adapters": {}, "best": {}, "state": {}}
    try:
        with safe_open(path, framework="numpy") as file:
            recorded = json.loads(file.metadata()[_KEY])
            for name in file.keys():  # noqa: SIM118  (not a dict)
                group, _, key = name.partition("/")
                groups[group][key] = file.get_tensor(name)
        checkpoint = Checkpoint(**groups, history=typed(History, recorded["history"], "history"))
        recorded_options = typed(dict[str, Any], recorded["options"], "options")
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path} cannot be read: {error}; remove it to start again"
        ) from error
    for name, value in options.items():
        then = recorded_options.get(name)
        if then != value:
            raise CheckpointError(
                f"{path} is of a run with another {name}: got {value!r}, expected {then!r}; "
                "choose another --out, or remove the folder"
            )
    return checkpoint


def require_tensors(
    folder: Path, checkpoint: Checkpoint, adapters: Collection[str], state: Collection[str]
) -> None:
    """Raise CheckpointError unless a checkpoint has these tensors: others would begin as zeros."""
    given = {*checkpoint.adapters}, {*checkpoint.state}
    for found, expected in zip(given, ({*adapters}, {*state}), strict=True):
        if other := sorted(found ^ expected):
            raise CheckpointError(
                f"{folder / CHECKPOINT}: {other[0]:.200} is missing, or is not of this run; "
                "remove it to start again"
            )
