"""Train a GRU to predict a signal that this script generates.

The signal is a sum of two sines of random frequencies with noise. The first element of the state of
the GRU predicts the next sample, so that the model has only the tensors of torch.nn.GRU.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from safetensors.numpy import save_file

from examples.training import Array, Task, Trained, draw_losses, train
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.nn import GRU
from hearthd.models.dsl.optimizers import Adam
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hearthd.models.dsl.graph import Tensor

STEPS, BATCH, HIDDEN = 48, 16, 32
NOISE = 0.02


def signals(rng: np.random.Generator, samples: int, count: int) -> Array:
    """A batch of signals between -1 and 1: f32 (samples, count)."""
    time = np.arange(samples)[:, None]
    waves = (
        0.4 * np.sin(rng.uniform(low, high, count) * time + rng.uniform(0, 2 * np.pi, count))
        for low, high in ((0.1, 0.3), (0.4, 0.8))
    )
    return (sum(waves) + rng.normal(size=(samples, count)) * NOISE).astype(np.float32)


def batches(seed: int) -> Callable[[int], tuple[Array, Array]]:
    """The samples of a step, (STEPS, BATCH, 1), and their next samples, (STEPS, BATCH)."""

    def batch_of(step: int) -> tuple[Array, Array]:
        samples = signals(np.random.default_rng([seed, step]), STEPS + 1, BATCH)
        return samples[:-1, :, None], samples[1:]

    return batch_of


def loss_of(gru: GRU) -> Callable[[Tensor, Tensor], Tensor]:
    """The mean squared error of the predictions of the GRU."""

    def loss(x: Tensor, following: Tensor) -> Tensor:
        y, _ = gru(x)  # (STEPS, BATCH, HIDDEN)
        predicted = ops.reshape(f.narrow(y, 2, 0, 1), shape=following.shape)
        return f.mean_squared_error(predicted, following)

    return loss


def initial(parameters: Mapping[str, Tensor], seed: int) -> dict[str, Array]:
    """Uniform between -1 / sqrt(HIDDEN) and 1 / sqrt(HIDDEN), as in PyTorch."""
    rng = np.random.default_rng(seed)
    bound = HIDDEN**-0.5
    return {
        name: rng.uniform(-bound, bound, weight.shape).astype(np.float32)
        for name, weight in parameters.items()
    }


def fit(steps: int, seed: int, say: Callable[[str], None]) -> Trained:
    """Train for `steps` steps; `say` prints the progress."""
    gru = GRU(
        1, HIDDEN, layers=1, bidirectional=False, bias=True, batch_first=False,
        form="loop", dtype=DType.F32,
    )  # fmt: skip
    task = Task(
        weights=gru.parameters(),
        batch={
            "x": TensorType((STEPS, BATCH, 1), DType.F32),
            "following": TensorType((STEPS, BATCH), DType.F32),
        },
        loss=loss_of(gru),
        optimizer=Adam(rate=1e-2),
    )
    return train(task, initial(gru.parameters(), seed), batches(seed), steps=steps, say=say)


def main(
    steps: Annotated[int, typer.Option(min=1, help="Steps of training.")] = 500,
    out: Annotated[Path, typer.Option(help="Folder for the weights and loss.svg.")] = Path(
        "signal-gru"
    ),
    seed: Annotated[int, typer.Option(help="Seed of the initial weights and the signals.")] = 0,
) -> None:
    """Train a GRU to predict the next sample of a noisy sum of sines, in about a minute.

    Writes gru.safetensors, with the names of torch.nn.GRU, and a plot of the loss. Then:
    hearth bake gru --weights signal-gru/gru.safetensors --out gru-bundle && hearth serve gru-bundle
    """
    trained = fit(steps, seed, typer.echo)
    out.mkdir(parents=True, exist_ok=True)
    save_file(trained.weights, out / "gru.safetensors")
    draw_losses(trained, out / "loss.svg", "A GRU learns to predict a signal")
    typer.echo(
        f"{out}: next: hearth bake gru --weights {out / 'gru.safetensors'} --out {out}-bundle"
    )


if __name__ == "__main__":
    typer.run(main)
