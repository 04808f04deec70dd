"""Models that read images against transformers, on random weights that transformers saved.

The recording of tests/models/families/images.py stands in where transformers is not installed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hearthd.baker.parameters.parameter_writer import locate
from hearthd.baker.weights.open_weights import open_weights
from hearthd.baker.weights.source import BadFile
from hearthd.models.cache_buffers import empty_caches
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.config import ImageShape
from hearthd.models.dsl.evaluate import evaluate
from hearthd.runtime.interface import NO_TOKEN
from hearthd.server.engine.prompt import ImageRows, Prompt
from tests.models.families import ours
from tests.models.families.cases import CASES
from tests.models.families.family_recording import recorded as recorded_case
from tests.models.families.family_recording import write_folder
from tests.models.families.images import (
    IMAGE,
    IMAGES,
    NAMES,
    ROWS,
    order_of,
    pixels,
    prompt_of,
    recorded,
)
from tests.models.families.media_recording import ANSWER
from tests.models.families.test_families import HAS_TRANSFORMERS, close

if TYPE_CHECKING:
    from pathlib import Path

TOLERANCE = 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_images_are_read_as_transformers_reads_them(name: str, tmp_path: Path) -> None:
    if HAS_TRANSFORMERS:
        from tests.models.families import images, oracle

        oracle.save_pretrained(CASES[name], tmp_path)
        for ours_, theirs in zip(recorded(name), images.computed(name, tmp_path), strict=True):
            close(ours_, theirs, 1e-5)
    else:
        write_folder(recorded_case(name), tmp_path)
    expected, source = recorded(name), open_weights(tmp_path)
    config = ours.config_of(source, CASES[name].architecture).for_context(ours.CONTEXT)
    program, parameters = ours.parameters_of(source, CASES[name].architecture, config, tmp_path)
    graphs = {point.name: graph for point, graph in program.entry_points}
    order, prompt_ids = order_of(name), prompt_of(name)
    rows = np.stack(
        [evaluate(graphs["image"], [image], parameters)[0][[*order]] for image in pixels(name)]
    )
    close(rows, expected.rows, TOLERANCE)
    tokens = np.where(np.equal(prompt_ids, IMAGE), NO_TOKEN, prompt_ids).astype(np.int32)
    assert isinstance(config.image, ImageShape)
    squares = [
        ImageRows(
            media=np.zeros(0, np.uint8),
            digest=bytes([i]),
            count=len(order),
            both_ways=config.has_blocks,
        )
        for i in range(IMAGES)
    ]
    prompt = Prompt.of_ids(tuple(tokens[:-1].tolist()), squares)
    caches = empty_caches(program.caches)
    start = 0
    for chunk in prompt.chunks(ours.CHUNK):
        name_ = f"prefill_block_{ROWS}" if chunk.both_ways else f"prefill_rows_{ours.CHUNK}"
        padded = np.full(ROWS if chunk.both_ways else ours.CHUNK, -2, np.int32)
        padded[: len(chunk)] = chunk.tokens
        inputs = np.zeros((len(padded), config.hidden), np.float32)
        if chunk.images:
            inputs[padded == NO_TOKEN] = chunk.rows({bytes([i]): rows[i] for i in range(IMAGES)})
        arguments = [padded, np.array([start], np.int32), inputs, *caches]
        caches = evaluate(graphs[name_], arguments, parameters)
        start += len(chunk)
    answer, end = [prompt_ids[-1]], len(prompt_ids) - 1
    for position in range(end, end + ANSWER):
        numbers = [np.array([value], np.int32) for value in (answer[-1], position, 1)]
        logits, *caches = evaluate(graphs["decode_1"], [*numbers, *caches], parameters)
        if len(answer) == 1:
            close(logits[0], expected.logits, TOLERANCE)
        answer.append(int(logits[0].argmax()))
    assert answer[1:] == expected.answer.tolist()


def test_a_program_without_images_leaves_the_tower_out(tmp_path: Path) -> None:
    """As with `--precision auto` and `hearth tune`; an unknown tensor is refused."""
    recording = recorded_case(NAMES[0])
    write_folder(recording, tmp_path)
    source, architecture = open_weights(tmp_path), ARCHITECTURES["smolvlm"]
    config = ours.config_of(source, "smolvlm")
    program = architecture.program(config, ours.OPTIONS)
    locate(source, architecture, config, program)
    extra = {**recording.shapes, "model.vision_model.head.weight": (2, 2)}
    write_folder(replace(recording, shapes=extra), tmp_path)
    with pytest.raises(BadFile, match=r"does not use: \['model.vision_model.head.weight'\]"):
        locate(open_weights(tmp_path), architecture, config, program)


@pytest.mark.parametrize("name", NAMES)
def test_a_convolution_with_channels_last_is_refused(name: str, tmp_path: Path) -> None:
    """MLX's folders have it; the values would be read in another order."""
    recording = recorded_case(name)
    (patches,) = (
        key
        for key in recording.shapes
        if key.endswith(("patch_embedding.weight", "embeddings.projection.weight"))
    )
    outputs, channels, *pixels_ = recording.shapes[patches]
    changed = {**recording.shapes, patches: (outputs, *pixels_, channels)}
    write_folder(replace(recording, shapes=changed), tmp_path)
    source, architecture = open_weights(tmp_path), ARCHITECTURES[CASES[name].architecture]
    config = ours.config_of(source, architecture.name)
    program = architecture.program(config, replace(ours.OPTIONS, reads_rows=True))
    with pytest.raises(BadFile, match="channels last as in folders of MLX"):
        locate(source, architecture, config, program)
