"""What a run of `hearth tune` is asked for, checked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# Options that must be larger than zero.
_ABOVE_ZERO = ("learning_rate", "max_norm")


class TuneError(Exception):
    """An option is invalid, or a run cannot start; the message says why."""


@dataclass(frozen=True, kw_only=True)
class TuneRequest:
    """A run: what decides its result, and after `max_memory` what does not.

    drafter        whether a drafter is tuned in place of an adapter
    weights        GGUF file, Hugging Face folder or bundle; None: the model's package
    dropout        share of the inputs of A that are replaced by 0 in each batch
    steps          None: the steps of `epochs` epochs
    warmup         steps of rising learning rate; None: a tenth of all steps
    batch          examples that are read at once
    accumulate     batches per step
    validation     share of the examples that are not learned
    patience       validations without a lower loss that end the run; None: no early stop
    validate_every steps between validations; None: an epoch
    save_every     steps between checkpoints
    max_memory     bytes; None: no limit. Gradients compute values again if they need more otherwise
    """

    model: str
    data: Path
    out: Path
    drafter: bool = False
    weights: Path | None = None
    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.0
    targets: tuple[str, ...]
    epochs: int = 3
    steps: int | None = None
    batch: int = 4
    accumulate: int = 2
    learning_rate: float = 5e-4
    warmup: int | None = None
    decay: float = 0.0
    max_norm: float = 1.0
    max_length: int = 512
    truncate: bool = False
    validation: float = 0.0
    validate_every: int | None = None
    patience: int | None = None
    seed: int = 0
    save_every: int = 20
    max_memory: int | None = None

    def __post_init__(self) -> None:
        """Raise TuneError for a number that no run can count with."""
        for name in ("learning_rate", "max_norm", "decay", "alpha"):
            value = getattr(self, name)
            low = 0.0 if name in _ABOVE_ZERO else -math.inf
            if not math.isfinite(value) or value <= low:
                bound = " above 0" if name in _ABOVE_ZERO else ""
                option = f"--{name.replace('_', '-')}"
                raise TuneError(f"{option}: got {value}, expected a finite number{bound}")
