"""Measure a compiled GRU or torch.nn.GRU in a process of its own, with the same inputs."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hearthd.runtime.device import Device, result

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Array = NDArray[np.float32]

EXPECTED = "y.npy"  # in the folder of a model: y by NumPy
MAX_ERROR = 1e-5  # of a state, which is between -1 and 1
WARM_CALLS = 5
SECONDS = 0.25  # of calls per model; the median counts


@dataclass(frozen=True, kw_only=True)
class GruModel:
    """A GRU of one layer with as many inputs as states, which reads one sequence."""

    form: str
    hidden: int
    steps: int

    @property
    def name(self) -> str:
        """The name of its folder and of its figure."""
        return f"{self.form}_{self.hidden}_{self.steps}"

    def x(self) -> Array:
        """The input f32 (S, 1, H), the same for every form."""
        shape = (self.steps, 1, self.hidden)
        return np.random.default_rng(0).normal(size=shape).astype(np.float32)

    def weights(self) -> dict[str, Array]:
        """Weights by the names of torch, initialized like in torch; the same for every form."""
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


def measure_in_process(
    side: str, models: Sequence[GruModel], top: Path, threads: int
) -> dict[str, float]:
    """`measure` in a new process, since the number of threads is fixed per process."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=spawn) as pool:
        return pool.submit(measure, side, models, top, threads).result()


def measure(side: str, models: Sequence[GruModel], top: Path, threads: int) -> dict[str, float]:
    """Median milliseconds per call, by the name of the model."""
    milliseconds = {}
    for model in models:
        call = _SIDES[side](model, top, threads)
        error = float(np.abs(call() - np.load(top / model.name / EXPECTED)).max())
        assert error < MAX_ERROR, f"{side}, {model.name}: the error is {error}"
        milliseconds[model.name] = _milliseconds(call)
    return milliseconds


def _hearth(model: GruModel, top: Path, threads: int) -> Callable[[], Array]:
    device, x = Device(top / model.name, threads=threads), model.x()
    run, h_shape = device.function("run"), (1, 1, model.hidden)

    def call() -> Array:
        arguments = (device.upload(x, "f32"), device.zeros(h_shape, "f32"))
        return result(device.call(run, arguments, results=2), 0, x.shape)

    return call


def _torch(model: GruModel, _: Path, threads: int) -> Callable[[], Array]:
    import torch  # an optional dependency

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
