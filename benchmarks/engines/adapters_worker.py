"""Measure decode steps of llama.cpp with LoRA adapters, in an environment with llama-cpp-python.

Like llama-server, it computes the sequences of one adapter in a batch, and one adapter after the
other. It reads an `AdapterTask` as JSON on the standard input and prints the median seconds of each
case.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hearthd.baker.compare.sides.llama_cpp import FASTEST, LlamaCpp, LlamaError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TOKEN, WARM_STEPS = 7, 2


@dataclass(frozen=True, kw_only=True)
class AdapterTask:
    """The measurement of one worker.

    model     a GGUF file
    adapters  GGUF files; place 1 is the first one
    cases     the place of each sequence, 0 for no adapter, by the name of the case
    steps     of each case
    """

    model: str
    adapters: Sequence[str]
    cases: Mapping[str, Sequence[int]]
    steps: int
    threads: int


class Sequences(LlamaCpp):
    """llama.cpp with several sequences in one context."""

    def decode_sequences(self, sequences: Sequence[int], token: int, position: int) -> None:
        """Read a token in each sequence, all in one call, and compute its logits."""
        count = len(sequences)
        batch = self._api.llama_batch_init(count, 0, 1)
        batch.n_tokens = count
        for row, sequence in enumerate(sequences):
            batch.token[row], batch.pos[row] = token, position
            batch.n_seq_id[row], batch.seq_id[row][0] = 1, sequence
            batch.logits[row] = True
        failed = self._api.llama_decode(self._context, batch)
        self._api.llama_batch_free(batch)
        if failed:
            raise LlamaError(
                f"llama.cpp cannot read {count} tokens at {position}: {self._last_message()}"
            )


class AdapterSteps:
    """Decode steps of some sequences, each with an adapter or none; raises LlamaError."""

    def __init__(self, task: AdapterTask) -> None:
        sequences = max(map(len, task.cases.values()))
        positions = len(task.cases) * (task.steps + WARM_STEPS)
        self._llama = Sequences(
            Path(task.model), context=sequences * positions, threads=task.threads,
            profile=FASTEST, sequences=sequences,
        )  # fmt: skip
        self._adapters = [self._llama.load_adapter(Path(path)) for path in task.adapters]
        self._position = 0

    def step(self, places: Sequence[int]) -> None:
        """One token of each sequence."""
        for place in dict.fromkeys(places):
            self._llama.use_adapter(self._adapters[place - 1] if place else None)
            rows = [row for row, chosen in enumerate(places) if chosen == place]
            self._llama.decode_sequences(rows, TOKEN, self._position)
        self._position += 1


def measure(task: AdapterTask) -> dict[str, float]:
    """The median seconds of a step of each case."""
    steps = AdapterSteps(task)
    seconds: dict[str, list[float]] = {name: [] for name in task.cases}
    for number in range(WARM_STEPS + task.steps):
        for name, places in task.cases.items():
            began = time.perf_counter()
            steps.step(places)
            if number >= WARM_STEPS:
                seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(times) for name, times in seconds.items()}


if __name__ == "__main__":
    try:
        sys.stdout.write(json.dumps(measure(AdapterTask(**json.load(sys.stdin)))))
    except LlamaError as error:
        sys.exit(str(error))
