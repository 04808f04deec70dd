"""Decode steps with 0, 1, 2, 4 and 8 LoRA adapters in one batch: speed, and whether bits are equal.

    hearth bake gemma3 --adapters 8 --rank 16 --out base
    python -m benchmarks.adapters base

The adapters are random numbers at every place: the time does not depend on the values. In each
round, every case has a turn, so that load of the machine hits all of them; the median counts.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from runtime.open_bundle import open_bundle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from runtime.language_model import IreeRuntime

_TOKEN, _SCALE, _WARM_STEPS = 7, 0.01, 2


def cases(batch: int, places: int) -> dict[str, list[int]]:
    """The places of the rows of a batch, by what a case is called."""
    counts = [count for count in (1, 2, 4, 8) if count <= min(batch, places)]
    mixed = {
        f"{count} in the batch": list(islice(cycle(range(1, count + 1)), batch)) for count in counts
    }
    return {"none": [0] * batch, **mixed, "1 in one row": [1, *[0] * (batch - 1)]}


def fill(runtime: IreeRuntime) -> None:
    """Random factors at every place."""
    rng = np.random.default_rng(0)
    for place in range(1, runtime.adapters.count + 1):
        runtime.write_adapter(
            place,
            [
                rng.normal(size=array.shape[1:]).astype(np.float32) / 16
                for array in runtime.adapters.arrays
            ],
        )


def decode(runtime: IreeRuntime, places: Sequence[int], position: int) -> NDArray[np.float32]:
    """The logits after one token in each slot."""
    slots = range(len(places))
    for slot, place in enumerate(places):
        runtime.set_adapter(slot, place, _SCALE)
    return runtime.decode(slots, [_TOKEN] * len(places), [position] * len(places))


def has_same_bits(runtime: IreeRuntime, places: Sequence[int]) -> bool:
    """Whether each row of a batch has the bits that it has alone."""
    together = decode(runtime, places, 0)
    for slot, place in enumerate(places):
        runtime.set_adapter(slot, place, _SCALE)
        if not np.array_equal(runtime.decode([slot], [_TOKEN], [0])[0], together[slot]):
            return False
    return True


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    manifest, runtime = open_bundle(arguments.bundle, threads=arguments.threads)
    if not manifest.adapters.count:
        parser.error("the bundle has no places; bake it with --adapters")
    fill(runtime)
    batch = min(runtime.batch, runtime.slots)
    tested = cases(batch, manifest.adapters.count)
    equal = {name: has_same_bits(runtime, places) for name, places in tested.items()}
    seconds: dict[str, list[float]] = {name: [] for name in tested}
    for position in range(1, _WARM_STEPS + arguments.rounds):
        for name, places in tested.items():
            began = time.perf_counter()
            decode(runtime, places, position)
            if position >= _WARM_STEPS:
                seconds[name].append(time.perf_counter() - began)
    base = statistics.median(seconds["none"])
    rows = [
        f"| Adapters in a batch of {batch} | Tokens/s | Time, none = 1 | Bits as alone |",
        "|---|---|---|---|",
    ]
    for name, times in seconds.items():
        median = statistics.median(times)
        words = "equal" if equal[name] else "different"
        rows.append(f"| {name} | {batch / median:.0f} | {median / base:.2f} | {words} |")
    sys.stdout.write("\n".join([*rows, ""]))


if __name__ == "__main__":
    main()
