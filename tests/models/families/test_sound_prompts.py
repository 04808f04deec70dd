"""Models that read sound against transformers, on random weights; sounds.py records them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hearthd.baker.weights.open_weights import open_weights
from hearthd.models.config import ConfigError
from hearthd.models.decoder.config.config_json import FEATURE_EXTRACTOR
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.families.gemma4_sound import ARCHITECTURE
from hearthd.runtime.interface import NO_TOKEN
from hearthd.server.engine.prompt import ImageRows, Prompt
from tests.baker.small_gemma4_sound import CONFIG, small_gemma4_sound
from tests.baker.small_gemma4_sound import FEATURE_EXTRACTOR as FEATURES
from tests.models.families import sounds
from tests.models.families.family_recording import recorded, write_folder
from tests.models.families.sounds import COUNTS, NAMES, PROMPT, SOUND, frames_of
from tests.models.families.test_families import HAS_TRANSFORMERS, close
from tests.models.families.test_grid_images import OPTIONS, TOLERANCE, answered, opened

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

SIZE = 17  # rows of the entry point, more than any sound has


@pytest.mark.parametrize("name", NAMES)
def test_sounds_are_read_as_transformers_reads_them(name: str, tmp_path: Path) -> None:
    expected = sounds.recorded(name)
    if HAS_TRANSFORMERS:
        from tests.models.families import oracle
        from tests.models.families.cases import CASES

        oracle.save_pretrained(CASES[name], tmp_path)
        for ours, theirs in zip(expected, sounds.computed(name, tmp_path), strict=True):
            close(ours, theirs, 1e-5)
    else:
        write_folder(recorded(name), tmp_path)
    options = replace(OPTIONS, image_rows=(), sound_rows=(SIZE,))
    program, parameters, _ = opened(name, tmp_path, options)
    (graph,) = [graph for point, graph in program.entry_points if point.kind == "sound"]
    rows: dict[bytes, NDArray[np.float32]] = {}
    segments: list[ImageRows] = []
    length = graph.inputs[0].shape[0]
    for frames, count in zip(frames_of(name), COUNTS, strict=True):
        digest = bytes([len(rows)])
        padded = np.pad(frames, ((0, length - len(frames)), (0, 0)))
        inside = np.array([len(frames)], np.int32)
        rows[digest] = evaluate(graph, [padded, inside], parameters)[0][:count]
        segments.append(ImageRows(media=frames, digest=digest, count=count))
    close(np.concatenate([*rows.values()]), expected.rows, TOLERANCE)
    ids = tuple(NO_TOKEN if id_ == SOUND else id_ for id_ in PROMPT[:-1])
    prompt = Prompt.of_ids(ids, segments)
    logits, answer = answered(program, parameters, prompt, rows, last=PROMPT[-1], has_axes=False)
    close(logits, expected.logits, TOLERANCE)
    assert answer == expected.answer.tolist()


def test_sound_that_is_read_otherwise_is_refused(tmp_path: Path) -> None:
    metadata = dict(open_weights(small_gemma4_sound(tmp_path / "weights")).metadata())
    settings = ARCHITECTURE.sound_input(CONFIG, metadata)
    assert settings is not None
    assert settings.width == FEATURES["feature_size"]
    for name, value in (("fft_overdrive", True), ("hop_length", 161), ("emphasis", 0.5)):
        changed = {**metadata, FEATURE_EXTRACTOR: {**FEATURES, name: value}}
        with pytest.raises(ConfigError, match=f"feature_extractor: .*{name}"):
            ARCHITECTURE.sound_input(CONFIG, changed)
