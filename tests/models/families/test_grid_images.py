"""Models that read images of any size against transformers, on random weights.

The recording of tests/models/families/grid_images.py stands in where transformers is not installed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.baker.parameters.parameter_writer import locate, write_parameters
from hearthd.baker.reference.numpy_runtime import stored_parameters
from hearthd.baker.weights.open_weights import open_weights
from hearthd.models.cache_buffers import empty_caches
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.dsl.evaluate import evaluate
from hearthd.runtime.interface import NO_TOKEN
from hearthd.runtime.media.pixels import patches_of
from hearthd.runtime.rotary_positions import RotaryPositions
from hearthd.server.engine.prompt import ImageRows, Prompt
from tests.by_day import first_by_day
from tests.models.families import ours
from tests.models.families.cases import CASES
from tests.models.families.family_recording import recorded as recorded_case
from tests.models.families.family_recording import write_folder
from tests.models.families.grid_images import (
    GRID_NAMES,
    GRIDS,
    IMAGE,
    pixels,
    prompt_of,
    recorded,
    rows_of,
)
from tests.models.families.media_recording import ANSWER
from tests.models.families.test_families import HAS_TRANSFORMERS, close

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.models.program import Program, ProgramOptions

    Array = NDArray[Any]

TOLERANCE = 1e-4
SIZE, CHUNK = 17, 9  # rows of an entry point, more than any image has; tokens of a prefill
OPTIONS = replace(ours.OPTIONS, prefill_tokens=(CHUNK,), reads_rows=True, image_rows=(SIZE,))


def opened(
    name: str, folder: Path, options: ProgramOptions = OPTIONS
) -> tuple[Program, Mapping[str, Array], Any]:
    """The program of a folder, its parameters, and how it reads images."""
    source, family = open_weights(folder), ARCHITECTURES[CASES[name].architecture]
    config = ours.config_of(source, family.name).for_context(ours.CONTEXT)
    settings: Any = family.image_input(config, source.metadata())
    if settings is not None and settings.slices is not None:
        options = replace(options, image_rows=(settings.slices.rows,))
    program = family.program(config, options)
    archive = folder / "params.irpa"
    write_parameters(source, locate(source, family, config, program), archive, lambda _: None)
    return program, stored_parameters(program.parameters, archive), settings


@pytest.mark.parametrize("name", first_by_day(GRID_NAMES, 4))
def test_images_of_any_size_are_read_as_transformers_reads_them(name: str, tmp_path: Path) -> None:
    if HAS_TRANSFORMERS:
        from tests.models.families import grid_images, oracle

        oracle.save_pretrained(CASES[name], tmp_path)
        for ours_, theirs in zip(recorded(name), grid_images.computed(name, tmp_path), strict=True):
            close(ours_, theirs, 1e-5)
    else:
        write_folder(recorded_case(name), tmp_path)
    expected, (program, parameters, settings) = recorded(name), opened(name, tmp_path)
    rows, prompt_ids = [], prompt_of(name)
    (graph,) = (graph for point, graph in program.entry_points if point.kind == "image")
    size = graph.outputs[0].shape[0]
    for image, count in zip(pixels(name), rows_of(name), strict=True):
        patches = patches_of(image, settings).padded(settings.patches_of(size))
        rows.append(evaluate(graph, [*patches], parameters)[0][:count])
    close(np.concatenate(rows), expected.rows, TOLERANCE)

    ids = tuple(NO_TOKEN if id_ == IMAGE else id_ for id_ in prompt_ids[:-1])
    images = [
        ImageRows(
            media=image, digest=bytes([i]), count=len(rows[i]),
            grid=grid if settings.axes > 1 else None, both_ways=settings.both_ways,
        )
        for i, (image, grid) in enumerate(zip(pixels(name), GRIDS, strict=True))
    ]  # fmt: skip
    prompt = Prompt.of_ids(ids, images)
    logits, answer = answered(
        program, parameters, prompt, {bytes([i]): rows[i] for i in range(len(rows))},
        last=prompt_ids[-1], has_axes=settings.axes > 1,
    )  # fmt: skip
    close(logits, expected.logits, TOLERANCE)
    assert answer == expected.answer.tolist()


def answered(
    program: Program,
    parameters: Mapping[str, Array],
    prompt: Prompt,
    rows: Mapping[bytes, Array],
    *,
    last: int,
    has_axes: bool,
) -> tuple[Array, list[int]]:
    """The logits after a prompt and a `last` token, and the greedy answer.

    `rows` has the rows of images and sounds by their digest.
    """
    graphs = {point.name: graph for point, graph in program.entry_points}
    rotary = RotaryPositions(has_axes=has_axes)
    rotary.set(0, prompt.rotary_positions)
    caches = empty_caches(program.caches)
    start = 0
    inputs: list[Array]
    for chunk in prompt.chunks(CHUNK):
        size = SIZE if chunk.both_ways else CHUNK
        padded = np.full(size, -2, np.int32)
        padded[: len(chunk)] = chunk.tokens
        at = np.array([start], np.int32)
        embedded = chunk.rows(rows)
        if embedded is None:
            inputs = [padded, at, *rotary.shifts([0], [start], tokens=len(chunk))]
            caches = evaluate(graphs[f"prefill_{CHUNK}"], [*inputs, *caches], parameters)
        else:
            given = np.zeros((size, program.row_width), np.float32)
            given[padded == NO_TOKEN] = embedded
            inputs = [padded, at, *rotary.of_rows(0, start, size), given]
            entry = f"prefill_block_{size}" if chunk.both_ways else f"prefill_rows_{size}"
            caches = evaluate(graphs[entry], [*inputs, *caches], parameters)
        start += len(chunk)
    answer, first = [last], None
    for position in range(len(prompt), len(prompt) + ANSWER):
        numbers = [np.array([value], np.int32) for value in (answer[-1], position, 1)]
        shifts = rotary.shifts([0], [position])
        logits, *caches = evaluate(graphs["decode_1"], [*numbers, *shifts, *caches], parameters)
        first = logits[0] if first is None else first
        answer.append(int(logits[0].argmax()))
    assert first is not None, "an answer has a token"
    return first, answer[1:]


def test_each_of_two_sequences_rotates_by_its_own_shift(tmp_path: Path) -> None:
    """A verify of both has the rows of decodes after the same tokens, with these shifts."""
    write_folder(recorded_case("qwen35-images-mrope"), tmp_path)
    options = replace(OPTIONS, decode_batches=(1,), verify_tokens=(2,), pair_tokens=2)
    program, parameters, _ = opened("qwen35-images-mrope", tmp_path, options)
    graphs = {point.name: graph for point, graph in program.entry_points}
    count, tokens, shifts = len(program.caches), [5, 7], [3, 0]
    padded, start = np.arange(CHUNK, dtype=np.int32), np.zeros(1, np.int32)
    caches = empty_caches(program.caches)
    caches = evaluate(graphs[f"prefill_{CHUNK}"], [padded, start, start, *caches], parameters)
    expected = []
    for shift in shifts:
        after = caches
        for position, token in enumerate(tokens, CHUNK):
            numbers = [np.array([value], np.int32) for value in (token, position, 1, shift)]
            (logits,), *after = evaluate(graphs["decode_1"], [*numbers, *after], parameters)
            expected.append(logits)
    numbers = [np.array(values, np.int32) for values in (tokens * 2, [CHUNK] * 2, [1, 1], shifts)]
    rows, *after = evaluate(graphs["verify_2x2"], [*numbers, *caches, *caches], parameters)
    close(rows, np.stack(expected), 1e-5)
    assert len(after) == 2 * count
    assert np.abs(expected[1] - expected[3]).max() > 1e-3
