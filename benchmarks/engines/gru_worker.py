"""One side of benchmarks/gru.py in a process of its own: a compiled GRU, or torch's.

It knows how a call of each side is made, from an array of ours to an array of ours, and how calls
are timed. `Model` says what is measured and which numbers go in, the same for both sides.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from runtime.device import Device, result

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Array = NDArray[np.float32]

ANSWER = "y.npy"  # in a model's folder: y by NumPy
LARGEST_ERROR = 1e-5  # of a state, which lies between -1 and 1
WARM_CALLS = 5
SECONDS = 0.25  # of calls, of which the median counts


@dataclass(frozen=True, kw_only=True)
class Model:
    """A GRU of one layer, as many inputs as states, that reads one sequence."""

    form: str
    hidden: int
    steps: int

    @property
    def name(self) -> str:
        """The name of its folder, and of its figure."""
        return f"{self.form}_{self.hidden}_{self.steps}"

    def x(self) -> Array:
        """(S, 1, H), the same for every form."""
        shape = (self.steps, 1, self.hidden)
        return np.random.default_rng(0).normal(size=shape).astype(np.float32)

    def weights(self) -> dict[str, Array]:
        """By torch's names and drawn as torch initialises them; the same for every form."""
        rng, hidden = np.random.default_rng(1), self.hidden
        drawn = {}
        for name, shape in (
            ("weight_ih_l0", (3 * hidden, hidden)),
            ("weight_hh_l0", (3 * hidden, hidden)),
            ("bias_ih_l0", (3 * hidden,)),
            ("bias_hh_l0", (3 * hidden,)),
        ):
            values = rng.uniform(-(hidden**-0.5), hidden**-0.5, size=shape)
            drawn[name] = values.astype(np.float32)
        return drawn


def measure_apart(side: str, models: Sequence[Model], top: Path, threads: int) -> dict[str, float]:
    """`measure` in a process of its own, since threads are chosen once in a process."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=spawn) as pool:
        return pool.submit(measure, side, models, top, threads).result()


def measure(side: str, models: Sequence[Model], top: Path, threads: int) -> dict[str, float]:
    """Median milliseconds of a call of each model, by the model's name."""
    found = {}
    for model in models:
        call = _SIDES[side](model, top, threads)
        error = float(np.abs(call() - np.load(top / model.name / ANSWER)).max())
        assert error < LARGEST_ERROR, f"{side}, {model.name}: {error} off"
        found[model.name] = _milliseconds(call)
    return found


def _hearth(model: Model, top: Path, threads: int) -> Callable[[], Array]:
    device, x = Device(top / model.name, threads=threads), model.x()
    run, h_shape = device.function("run"), (1, 1, model.hidden)

    def call() -> Array:
        given = (device.upload(x, "f32"), device.zeros(h_shape, "f32"))
        return result(device.call(run, given, results=2), 0, x.shape)

    return call


def _torch(model: Model, _: Path, threads: int) -> Callable[[], Array]:
    import torch  # where there is none, this side is not measured

    torch.set_num_threads(threads)
    x, module = model.x(), torch.nn.GRU(model.hidden, model.hidden).eval()
    module.load_state_dict({name: torch.from_numpy(w) for name, w in model.weights().items()})

    def call() -> Array:
        with torch.inference_mode():
            y: Array = module(torch.from_numpy(x))[0].numpy()
        return y

    return call


_SIDES = {"hearth": _hearth, "torch": _torch}


def _milliseconds(call: Callable[[], Array]) -> float:
    for _ in range(WARM_CALLS):
        call()
    times, end = [], time.perf_counter() + SECONDS
    while (began := time.perf_counter()) < end:
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e3
