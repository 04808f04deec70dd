"""Models that hear with Whisper's encoder against their original code, on random weights.

whisper_sounds.py records them.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.baker.pipeline.bake_options import bake_options
from hearthd.baker.pipeline.image_projector import with_projector
from hearthd.baker.pipeline.not_a_model import ARCHITECTURE
from hearthd.baker.pipeline.weights_config import identify
from hearthd.baker.weights.gguf import GgufSource
from hearthd.baker.weights.open_weights import open_weights
from hearthd.baker.weights.projected_gguf import ProjectedGguf
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.config import ConfigError, OtherFamily
from hearthd.models.decoder.config.config_json import FEATURE_EXTRACTOR
from hearthd.models.dsl.evaluate import evaluate
from hearthd.runtime.interface import NO_TOKEN
from hearthd.runtime.media.sound_features import sound_windows
from hearthd.server.engine.prompt import ImageRows, Prompt
from tests.models.families import ours, whisper_sounds
from tests.models.families.cases import CASES
from tests.models.families.converted_files import PROJECTOR, converted, digest
from tests.models.families.family_recording import recorded, write_folder
from tests.models.families.gguf_files import write_gguf
from tests.models.families.gguf_sound_projector import write_sound_projector
from tests.models.families.gguf_whisper import COMPUTED
from tests.models.families.test_families import HAS_TRANSFORMERS, about, close
from tests.models.families.test_grid_images import OPTIONS, TOLERANCE, answered, opened
from tests.models.families.whisper_sounds import EXTRACTOR, OMNI_CASE, SAMPLES, SOUND

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.bundle import SoundInput

# The tower of Qwen2.5-Omni differs from Qwen2-Audio's in its positions and windows.
BY_DAY = [pytest.param(name, marks=[pytest.mark.nightly] * (name == OMNI_CASE)) for name in SAMPLES]


@pytest.mark.parametrize("name", BY_DAY)
def test_sounds_are_heard_as_the_original_code_hears_them(name: str, tmp_path: Path) -> None:
    """The spectrograms of windows, their rows, and what follows; from whole sounds."""
    expected = whisper_sounds.recorded(name)
    if HAS_TRANSFORMERS:
        from tests.models.families import oracle

        oracle.save_pretrained(CASES[name], tmp_path)
        for ours, theirs in zip(expected, whisper_sounds.computed(name, tmp_path), strict=True):
            close(ours, theirs, 1e-5)
    else:
        write_folder(recorded(name), tmp_path)
    settings = settings_of(name, tmp_path)
    options = replace(OPTIONS, image_rows=(), sound_rows=settings.sizes)
    program, parameters, _ = opened(name, tmp_path, options)
    graphs = {point.tokens: graph for point, graph in program.entry_points if point.kind == "sound"}
    assert tuple(graphs) == settings.sizes
    windows, segments, ids = [], [], [5]
    rows: dict[bytes, NDArray[np.float32]] = {}
    for number, sound in enumerate(whisper_sounds.sounds_of(name)):
        for frames in sound_windows(sound, settings):
            digest, count = bytes([len(rows)]), settings.rows(len(frames))
            size = next(size for size in graphs if size >= settings.reading_rows(len(frames)))
            padded = np.pad(frames, ((0, settings.length(size) - len(frames)), (0, 0)))
            arguments = [padded, np.array([len(frames)], np.int32)]
            rows[digest] = evaluate(graphs[size], arguments, parameters)[0][:count]
            segments.append(ImageRows(media=frames, digest=digest, count=count))
            windows.append(frames)
            ids += [NO_TOKEN] * count
        ids += [7] * (1 <= number < len(SAMPLES[name]) - 1)
    close(np.concatenate(windows), expected.features, 1e-4)
    close(np.concatenate([*rows.values()]), expected.rows, TOLERANCE)
    prompt = Prompt.of_ids((*ids, 33), segments)
    assert prompt.tokens.tolist() == [
        NO_TOKEN if token == SOUND else token
        for token in whisper_sounds.prompt(rows_of_sounds(name, settings))[:-1]
    ]
    has_axes = name == OMNI_CASE
    logits, answer = answered(program, parameters, prompt, rows, last=80, has_axes=has_axes)
    close(logits, expected.logits, TOLERANCE)
    assert answer[: whisper_sounds.ANSWER] == expected.answer.tolist()


def settings_of(name: str, folder: Path) -> SoundInput:
    """How the model of a case in a folder reads sound."""
    architecture = ARCHITECTURES[CASES[name].architecture]
    config: Any = ours.config_of(open_weights(folder), architecture.name)
    settings = architecture.sound_input(config, {FEATURE_EXTRACTOR: EXTRACTOR})
    assert settings is not None
    return settings


def rows_of_sounds(name: str, settings: SoundInput) -> list[int]:
    """The rows of each sound."""
    return [
        sum(settings.rows(len(frames)) for frames in sound_windows(sound, settings))
        for sound in whisper_sounds.sounds_of(name)
    ]


@pytest.mark.parametrize("name", SAMPLES)
def test_other_features_are_refused(name: str, tmp_path: Path) -> None:
    write_folder(recorded(name), tmp_path)
    settings = settings_of(name, tmp_path)
    assert settings.max_seconds == 2.0 * settings.windows
    architecture = ARCHITECTURES[CASES[name].architecture]
    config: Any = ours.config_of(open_weights(tmp_path), architecture.name)
    for key, value in (("hop_length", 161), ("dither", 0.5), ("feature_size", 80)):
        changed = {FEATURE_EXTRACTOR: {**EXTRACTOR, key: value}}
        with pytest.raises(ConfigError, match=f"feature_extractor: {key} = {value}"):
            architecture.sound_input(config, changed)


def test_a_sound_without_a_row_has_no_window(tmp_path: Path) -> None:
    """Qwen2-Audio pools four frames; the others pad a short sound."""
    for name, count in (("qwen2audio-qwen2", 320), ("voxtral-ministral", 0)):
        write_folder(recorded(name), tmp_path)
        settings = settings_of(name, tmp_path)
        assert sound_windows(np.zeros(count, np.float32), settings) == []
        assert len(sound_windows(np.zeros(count + 1, np.float32), settings)) == 1


@pytest.mark.parametrize("name", BY_DAY)
def test_a_projector_as_llamacpps_converter_writes_it_is_read(name: str, tmp_path: Path) -> None:
    """It has the keys and tensors of the file that the tests write, which holds the folder."""
    write_folder(recorded(name), tmp_path)
    folder, architecture = open_weights(tmp_path), CASES[name].architecture
    config: Any = ours.config_of(folder, architecture)
    text = open_weights(write_gguf(tmp_path, architecture, config))
    path = write_sound_projector(tmp_path, tmp_path / "mmproj.gguf", architecture, config)
    pair, file, recording = ProjectedGguf(text, path), GgufSource(path), converted(name + PROJECTOR)
    assert {*file.names()} == recording.tensors.keys()
    for tensor, (shape, values) in recording.tensors.items():
        assert (tensor, file.shape(tensor)) == (tensor, shape)
        if name != OMNI_CASE or not tensor.endswith(COMPUTED):
            assert (tensor, digest(file.read(tensor))) == (tensor, values)
    compared = (key for key in file.metadata() if key.startswith("clip.") and "image_" not in key)
    metadata = {key: file.metadata()[key] for key in compared}
    expected = {key: recording.metadata[key] for key in recording.metadata if key in metadata}
    assert metadata == {key: about(value) for key, value in expected.items()}
    assert identify(pair, None).architecture == architecture
    same: Any = ours.config_of(pair, architecture)
    for field in fields(config):
        assert getattr(same, field.name) == about(getattr(config, field.name)), field.name
    options = replace(ours.OPTIONS, sound_rows=(1,))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ours, "OPTIONS", options)
        _, theirs = ours.parameters_of(folder, architecture, config, tmp_path)
        _, own = ours.parameters_of(pair, architecture, same, tmp_path)
    assert theirs.keys() == own.keys()
    for parameter, array in theirs.items():
        stored = array.astype(np.float16) if "conv" in parameter and array.ndim > 1 else array
        assert np.array_equal(stored, own[parameter]), parameter
    for other in set(SAMPLES) - {name}:
        if ARCHITECTURES[CASES[other].architecture].name_in_gguf == text.metadata()[ARCHITECTURE]:
            with pytest.raises(OtherFamily, match=r"clip.projector_type: got \w+, supported is"):
                ours.config_of(pair, CASES[other].architecture)


@pytest.mark.parametrize("name", SAMPLES)
def test_weights_without_their_projector_are_refused(name: str, tmp_path: Path) -> None:
    write_folder(recorded(name), tmp_path)
    architecture = CASES[name].architecture
    config: Any = ours.config_of(open_weights(tmp_path), architecture)
    file = open_weights(write_gguf(tmp_path, architecture, config))
    with pytest.raises(ConfigError, match=r"no tower for (images|sound): specify its projector"):
        ours.config_of(file, architecture)


def test_a_folder_with_the_projector_alone_is_refused() -> None:
    """Published folders of Ultravox name the folders of the other parts."""
    published = {"model_type": "ultravox", "text_model_id": "meta-llama/Llama-3.2-1B-Instruct"}
    with pytest.raises(ConfigError, match=r"text_model_id: got .* the folder has no text model"):
        ARCHITECTURES["ultravox"].from_hugging_face(published)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_projector_beside_a_model_is_read(name: str, tmp_path: Path) -> None:
    """Of the model's own type: another projector is named, with the reason."""
    write_folder(recorded(name), tmp_path)
    architecture = CASES[name].architecture
    config: Any = ours.config_of(open_weights(tmp_path), architecture)
    file = write_gguf(tmp_path, architecture, config)
    write_sound_projector(tmp_path, tmp_path / "mmproj.gguf", architecture, config)
    notes: list[str] = []
    source, _ = with_projector(open_weights(file), bake_options({"model": None}), notes.append)
    assert identify(source, None).architecture == architecture
    read = "images and sound" if name == OMNI_CASE else "sound"
    assert notes == [f"reads {read} with mmproj.gguf; --mmproj none leaves it out"]
