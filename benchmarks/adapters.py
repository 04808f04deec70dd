"""Decode steps with 0, 1, 2, 4 and 8 LoRA adapters in one batch: speed, and whether bits are equal.

    hearth bake gemma3 --adapters 8 --rank 16 --out base
    hearth bake gemma3 --out plain
    python -m benchmarks.adapters base --plain plain --llama model.gguf

`--plain` is the same bundle without places: steps without an adapter are measured in both.
llama.cpp is given with `--llama`, and the interpreter of another environment with `--llama-python`.

The adapters are random numbers at every place: the time does not depend on the values. In each
round, every case has a turn, so that load of the machine hits all of them; the median counts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import gguf
import numpy as np

from benchmarks.engines import adapters_worker
from benchmarks.engines.adapters_worker import TOKEN, WARM_STEPS, AdapterTask
from benchmarks.inputs import existing_bundle, existing_path
from hearthd.baker.memory_bandwidth import physical_cores
from hearthd.runtime.open_bundle import open_bundle

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from hearthd.bundle import AdapterArray, LanguageManifest
    from hearthd.runtime.language_model import IreeRuntime

Cases: TypeAlias = "Mapping[str, Sequence[int]]"

_ROOT = Path(__file__).parent.parent
_SCALE = 0.01


@dataclass(frozen=True)
class EngineResult:
    """The seconds of a step and whether bits are equal, by case."""

    name: str
    seconds: Mapping[str, float]
    equal: Mapping[str, bool]


def cases(batch: int, places: int) -> dict[str, list[int]]:
    """The adapter place of each row of a batch, by the name of the case."""
    counts = [count for count in (1, 2, 4, 8) if count <= min(batch, places)]
    mixed = {
        f"{count} in the batch": list(islice(cycle(range(1, count + 1)), batch)) for count in counts
    }
    return {"none": [0] * batch, **mixed, "1 in one row": [1, *[0] * (batch - 1)]}


def fill(runtime: IreeRuntime) -> None:
    """Random factors at every place."""
    rng = np.random.default_rng(0)

    def random(array: AdapterArray) -> NDArray[Any]:
        shape = array.shape[1:]
        if array.dtype == "i8":
            return rng.integers(-3, 4, shape, dtype=np.int8)
        return (rng.normal(size=shape) / 16).astype("f2" if array.dtype == "f16" else "f4")

    for place in range(1, runtime.adapters.count + 1):
        runtime.write_adapter(place, [random(array) for array in runtime.adapters.arrays])


def decode(runtime: IreeRuntime, places: Sequence[int], position: int) -> NDArray[np.float32]:
    """The logits after one token in each slot."""
    slots = range(len(places))
    for slot, place in enumerate(places):
        runtime.set_adapter(slot, place, _SCALE)
    return runtime.decode(slots, [TOKEN] * len(places), [position] * len(places))


def has_same_bits(runtime: IreeRuntime, places: Sequence[int]) -> bool:
    """Whether each row of a batch has the bits that it has alone."""
    together = decode(runtime, places, 0)
    for slot, place in enumerate(places):
        runtime.set_adapter(slot, place, _SCALE)
        if not np.array_equal(runtime.decode([slot], [TOKEN], [0])[0], together[slot]):
            return False
    return True


def hearth(arguments: argparse.Namespace, runtime: IreeRuntime, tested: Cases) -> EngineResult:
    """The median seconds of a step of each case, and whether its bits are equal."""
    equal = {name: has_same_bits(runtime, places) for name, places in tested.items()}
    seconds: dict[str, list[float]] = {name: [] for name in tested}
    for position in range(1, WARM_STEPS + arguments.rounds):
        for name, places in tested.items():
            began = time.perf_counter()
            decode(runtime, places, position)
            if position >= WARM_STEPS:
                seconds[name].append(time.perf_counter() - began)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    return EngineResult("Hearth", medians, equal)


def places_unused(
    arguments: argparse.Namespace, runtime: IreeRuntime, plain: IreeRuntime
) -> Iterator[str]:
    """The rows of a table: steps without an adapter, of a bundle with places and of one without.

    A step of one is between two of the other, so that load of the machine hits both.
    """
    yield "| Rows | Plain bundle, ms | With unused places, median of the ratios |"
    yield "|---|---|---|"
    for rows in (1, min(runtime.batch, plain.batch)):
        seconds, ratios = list[float](), list[float]()
        for position in range(WARM_STEPS + 4 * arguments.rounds):
            times = []
            for measured in (plain, runtime, plain):
                began = time.perf_counter()
                decode(measured, [0] * rows, position % runtime.context)
                times.append(time.perf_counter() - began)
            if position >= WARM_STEPS:
                seconds.append((times[0] + times[2]) / 2)
                ratios.append(times[1] / seconds[-1])
        median = 1000 * statistics.median(seconds)
        yield f"| {rows} | {median:.2f} | {statistics.median(ratios):.3f} |"


def llama_cpp(
    arguments: argparse.Namespace, manifest: LanguageManifest, tested: Cases
) -> EngineResult:
    """The same of llama.cpp, in another process, with random adapters of the same shapes."""
    with tempfile.TemporaryDirectory() as folder:
        adapters = [Path(folder) / f"{place}.gguf" for place in range(manifest.adapters.count)]
        for path in adapters:
            write_adapter(path, manifest)
        task = AdapterTask(
            model=str(arguments.llama), adapters=list(map(str, adapters)), cases=tested,
            steps=arguments.rounds, threads=arguments.threads or physical_cores(),
        )  # fmt: skip
        result = subprocess.run(
            [arguments.llama_python, "-m", adapters_worker.__name__],
            input=json.dumps(asdict(task)), env={**os.environ, "PYTHONPATH": str(_ROOT)},
            stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
    return EngineResult("llama.cpp", json.loads(result.stdout), {})


def write_adapter(path: Path, manifest: LanguageManifest) -> None:
    """A random adapter for all matrices of a bundle with places, as llama.cpp reads it."""
    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, manifest.architecture)
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, float(manifest.adapters.rank))
    architecture = gguf.MODEL_ARCH[manifest.architecture.upper()]
    names = gguf.get_tensor_name_map(architecture, len(manifest.caches))
    for matrix in manifest.adapters.matrices:
        name = names.get_name(matrix.module)
        shapes = {"a": (manifest.adapters.rank, matrix.columns)}
        shapes["b"] = (matrix.rows, manifest.adapters.rank)
        for factor, shape in shapes.items():
            values = (rng.normal(size=shape) * _SCALE / 16).astype(np.float16)
            writer.add_tensor(f"{name}.weight.lora_{factor}", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def table(engines: Sequence[EngineResult], batch: int) -> Iterator[str]:
    """The rows of a table in Markdown."""
    yield f"| Engine | Adapters in a batch of {batch} | Tokens/s | Time, none = 1 | Bits as alone |"
    yield "|---|---|---|---|---|"
    for engine in engines:
        none = engine.seconds["none"]
        for name, seconds in engine.seconds.items():
            equal = {True: "equal", False: "different", None: ""}[engine.equal.get(name)]
            rate, cost = batch / seconds, seconds / none
            yield f"| {engine.name} | {name} | {rate:.0f} | {cost:.2f} | {equal} |"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("bundle", type=existing_bundle)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--plain", type=existing_bundle, help="the same bundle without places")
    parser.add_argument(
        "--llama", type=existing_path, help="a GGUF file of the model, for llama.cpp"
    )
    parser.add_argument("--llama-python", default=sys.executable, help="that has llama-cpp-python")
    arguments = parser.parse_args()
    manifest, runtime = open_bundle(arguments.bundle, threads=arguments.threads)
    if not manifest.adapters.count:
        parser.error("the bundle has no places; bake it with --adapters")
    fill(runtime)
    batch = min(runtime.batch, runtime.slots)
    tested = cases(batch, manifest.adapters.count)
    engines = [hearth(arguments, runtime, tested)]
    if arguments.plain:
        _, plain = open_bundle(arguments.plain, threads=arguments.threads)
        sys.stdout.writelines(f"{row}\n" for row in places_unused(arguments, runtime, plain))
    if arguments.llama:
        engines.append(llama_cpp(arguments, manifest, tested))
    sys.stdout.writelines(f"{row}\n" for row in table(engines, batch))


if __name__ == "__main__":
    main()
