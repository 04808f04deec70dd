"""The output of a run: its size before it starts, its progress, and a plot of the loss."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from hearthd.baker.atomic_file import write_atomically
from hearthd.baker.presentation.plots import can_draw, svg
from hearthd.bundle import megabytes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from rich.console import Console

    from hearthd.baker.tuning.batches import Bucket
    from hearthd.baker.tuning.checkpoint import History
    from hearthd.baker.tuning.training_program import TrainingProgram

LOSS_PLOT = "loss.svg"
# Without a terminal, a line is printed at most this often, in seconds.
_INTERVAL = 10.0
_MIN_LOSS = 1e-6


class TuningReport:
    """Prints to a console; on a terminal, with a bar."""

    def __init__(self, console: Console, out: Path) -> None:
        self._console, self._out = console, out
        self._steps = 0
        self._start = self._printed = time.perf_counter()
        self._before = (0, 0)  # steps and tokens before this process
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("tune", total=None)

    def begin(
        self,
        steps: int,
        learned: int,
        held_out: int,
        shapes: Sequence[Bucket],
        program: TrainingProgram,
    ) -> None:
        """Print what will be done and the memory that it takes."""
        self._steps = steps
        again = ", with values that gradients compute again" if program.recomputes else ""
        lengths = ", ".join(str(shape.length) for shape in shapes)
        self._print(
            f"{learned} examples to learn, {held_out} held out; {steps} steps; batches of "
            f"{shapes[0].sequences} x {lengths} tokens; about {megabytes(program.memory)} MB of "
            f"memory{again}"
        )

    def resumed(self, history: History) -> None:
        """Print that the run goes on from a checkpoint."""
        self._before = (history.step, history.tokens)
        self._print(f"continue after step {history.step} of {self._steps}")

    def started(self) -> None:
        """Start the clock: the first step begins."""
        self._start = self._printed = time.perf_counter()
        self._bar.start()

    def stepped(self, history: History) -> None:
        """Show a step: its loss, tokens per second and the time that is left."""
        now = time.perf_counter()
        done = history.step - self._before[0]
        rate = (history.tokens - self._before[1]) / (now - self._start)
        remaining = (now - self._start) / done * (self._steps - history.step)
        text = f"step {history.step}/{self._steps}  loss {history.losses[-1]:.4f}"
        text += f"  {rate:.0f} tokens/s"
        self._bar.update(self._task, description=text, total=self._steps, completed=history.step)
        if self._bar.disable and (now - self._printed > _INTERVAL or history.step == self._steps):
            self._printed = now
            self._print(f"{text}  {remaining / 60:.1f} min left")

    def validated(self, step: int, loss: float) -> None:
        """Print a validation."""
        self._print(f"step {step}/{self._steps}  validation loss {loss:.4f}")

    def finished(self, history: History) -> None:
        """Stop the bar."""
        self._bar.stop()
        if history.step < self._steps:
            self._print(f"stopped early after step {history.step}, as the validation loss rose")

    def draw(self, history: History) -> None:
        """Write the losses as an SVG picture, if matplotlib is installed.

        With fewer than two steps there is nothing to see.
        """
        if history.step < 2 or not can_draw():
            return

        def plot(axes: Axes) -> None:
            axes.set(xlabel="step", ylabel="nats", yscale="log")
            axes.plot(np.maximum(history.losses, _MIN_LOSS), label="training")
            if history.validation:
                steps, losses = zip(*history.validation, strict=True)
                axes.plot(steps, np.maximum(losses, _MIN_LOSS), "o-", label="validation")

        write_atomically(self._out, {LOSS_PLOT: svg("Loss per learned token", plot)})

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False)
