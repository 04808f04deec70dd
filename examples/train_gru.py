"""Train a GRU to foretell a signal that this script makes, then bake it.

The signal is a sum of two sines of random frequencies with some noise; the next sample is foretold
by the first number of the GRU's state, so that torch.nn.GRU's tensors are the whole model.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from safetensors.numpy import save_file

from examples.training import Array, Task, Trained, draw_losses, train
from models.dsl import functions as f
from models.dsl import ops
from models.dsl.nn import GRU
from models.dsl.optimizers import Adam
from models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from models.dsl.graph import Tensor

STEPS, BATCH, HIDDEN = 48, 16, 32
NOISE = 0.02


def signals(rng: np.random.Generator, samples: int, count: int) -> Array:
    """Signals beside each other, within -1 and 1: f32 (samples, count)."""
    time = np.arange(samples)[:, None]
    waves = (
        0.4 * np.sin(rng.uniform(low, high, count) * time + rng.uniform(0, 2 * np.pi, count))
        for low, high in ((0.1, 0.3), (0.4, 0.8))
    )
    return (sum(waves) + rng.normal(size=(samples, count)) * NOISE).astype(np.float32)


def batches(seed: int) -> Callable[[int], tuple[Array, Array]]:
    """The samples of a step, (STEPS, BATCH, 1), and those that follow them, (STEPS, BATCH)."""

    def batch_of(step: int) -> tuple[Array, Array]:
        made = signals(np.random.default_rng([seed, step]), STEPS + 1, BATCH)
        return made[:-1, :, None], made[1:]

    return batch_of


def loss_of(gru: GRU) -> Callable[[Tensor, Tensor], Tensor]:
    """The mean squared error of what the GRU foretells."""

    def loss(x: Tensor, following: Tensor) -> Tensor:
        y, _ = gru(x)  # (STEPS, BATCH, HIDDEN)
        foretold = ops.reshape(f.narrow(y, 2, 0, 1), shape=following.shape)
        return f.mean_squared_error(foretold, following)

    return loss


def initial(parameters: Mapping[str, Tensor], seed: int) -> dict[str, Array]:
    """Uniform up to 1 / sqrt(HIDDEN), as PyTorch begins."""
    rng = np.random.default_rng(seed)
    bound = HIDDEN**-0.5
    return {
        name: rng.uniform(-bound, bound, weight.shape).astype(np.float32)
        for name, weight in parameters.items()
    }


def fit(steps: int, seed: int, say: Callable[[str], None]) -> Trained:
    """Train so many steps, and say how it goes."""
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
    out: Annotated[Path, typer.Option(help="Where the weights and loss.svg go.")] = Path(
        "signal-gru"
    ),
    seed: Annotated[int, typer.Option(help="Of the weights at first and of the signals.")] = 0,
) -> None:
    """Train a GRU to foretell the next sample of a noisy sum of sines, in about a minute.

    Leaves gru.safetensors, with torch.nn.GRU's names, and a picture of the loss. Then:
    bake gru --weights signal-gru/gru.safetensors --out gru-bundle && serve gru-bundle
    """
    trained = fit(steps, seed, typer.echo)
    out.mkdir(parents=True, exist_ok=True)
    save_file(trained.weights, out / "gru.safetensors")
    draw_losses(trained, out / "loss.svg", "A GRU learns to foretell a signal")
    typer.echo(f"{out}: next, bake gru --weights {out / 'gru.safetensors'} --out {out}-bundle")


if __name__ == "__main__":
    typer.run(main)
