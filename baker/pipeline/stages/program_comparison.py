"""Compare a compiled program with golden values, also where the weights exceed the memory.

A prefill reads most experts of a mixture. Weights that do not fit into the memory are read from the
file again by each call, so only the first golden prompt is compared then, and a note says how long
that takes. Pages of weights that were read are released early: otherwise all would count as memory
of this process.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

from hearthd.bundle import PARAMETERS, megabytes
from hearthd.runtime.checks.self_test import GoldenValues, self_test_language
from hearthd.runtime.language_model import IreeRuntime
from hearthd.runtime.system.available_memory import available_memory
from hearthd.runtime.system.disk_speed import disk_speed

if TYPE_CHECKING:
    from pathlib import Path

    from hearthd.baker.progress import Progress
    from hearthd.bundle import LanguageManifest, ProgramFile
    from hearthd.runtime.checks.self_test import Verdict

# What a process needs beside the weights: NumPy's arrays, the tokenizer, the caches of its slots.
_PROCESS = 1 << 30
_MAX_MAPPED = 1 << 30  # bytes of mapped pages that stay in this process, about


def compare_program(
    bundle: Path, manifest: LanguageManifest, program_file: ProgramFile, progress: Progress
) -> Verdict:
    """The verdict of the self-test on a program that runs here. Raises CannotLoad."""
    weights, memory = (bundle / PARAMETERS).stat().st_size, available_memory()
    fits = weights + _PROCESS <= memory
    if not fits:
        manifest = replace(manifest, golden=manifest.golden[:1])
        progress.note(_note(bundle, manifest, program_file, weights, memory))
    with progress.stage(f"compare {program_file.file} with golden values"):
        runtime = IreeRuntime(bundle, manifest, threads=None, program=program_file, huge_pages=fits)
        with runtime.device.few_mapped_pages(_MAX_MAPPED):
            return self_test_language(runtime, GoldenValues.of(manifest))


def _note(
    bundle: Path, manifest: LanguageManifest, program_file: ProgramFile, weights: int, memory: int
) -> str:
    """What is compared with too little memory, and how long it takes at most."""
    read = weights * _calls(manifest)
    speed = disk_speed(bundle / PARAMETERS)
    time = speed and f", at {megabytes(int(speed))} MB/s in {read / speed / 60:.1f} minutes"
    return (
        f"{megabytes(weights)} MB of weights do not fit into {megabytes(memory)} MB of memory: "
        f"{program_file.file} is compared for the first golden prompt alone, and reads up to "
        f"{read / 1e9:.0f} GB of the file{time or ''}"
    )


def _calls(manifest: LanguageManifest) -> int:
    """The calls in which the self-test reads the golden prompts of a manifest, if each is a chunk.

    Each variant of a runtime reads the prompts in the slots of a batch, as often as it takes to
    read all, and decodes their steps. An embed with a decode, and calls that verify, follow for
    each prompt. A call that verifies two sequences needs their prompts to be read again. A long
    prefill is compared with its chunks.
    """
    points = [point for point in manifest.entry_points if not point.adapters]
    batches = [point.batch for point in points if point.kind == "decode"]
    chunk = next(point.tokens for point in points if point.kind == "embed")
    reading = [point for point in points if point.kind in ("prefill", "prefill_rows")]
    prefills = sum(point.tokens <= chunk for point in reading)
    longest = max(point.tokens for point in reading)
    long_prefill = longest // chunk + 3 if longest > chunk else 0
    count = max(prefills, len(batches))
    prompts, steps = len(manifest.golden), len(manifest.golden[0].steps)
    adapted = 1 + (manifest.adapters.count > 0)
    read = sum(
        -(-prompts // batch) * (2 * batch + steps - 1)
        for batch in itertools.islice(itertools.cycle(batches), count)
    )
    verified = sum(
        -(-prompts // point.batch) * ((point.batch > 1) * point.batch + -(-steps // point.tokens))
        for point in points
        if point.kind == "verify"
    )
    return long_prefill + adapted * read + 2 * prompts + verified
