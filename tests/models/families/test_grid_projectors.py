"""Pairs of GGUF files of models that read images of any size: see test_projectors.py."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import pytest

from hearthd.baker.pipeline.weights_config import identify
from hearthd.baker.weights.gguf import GgufSource
from hearthd.baker.weights.open_weights import open_weights
from hearthd.baker.weights.projected_gguf import ProjectedGguf
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.config import ConfigError
from hearthd.models.dsl.evaluate import evaluate
from hearthd.runtime.media.pixels import patches_of
from tests.by_day import first_by_day
from tests.models.families import ours, sounds
from tests.models.families.cases import CASES, TOKENS
from tests.models.families.converted_files import OF_OLDER_SCRIPT, PROJECTOR, converted, digest
from tests.models.families.family_recording import ROWS, write_folder
from tests.models.families.family_recording import recorded as recorded_case
from tests.models.families.gguf_files import write_gguf
from tests.models.families.gguf_projector import PADDLE_PIXELS, write_projector
from tests.models.families.gguf_whisper import COMPUTED
from tests.models.families.grid_images import GRID_NAMES, pixels, recorded, rows_of
from tests.models.families.test_families import about, close

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.models.decoder.architecture import Architecture


def fields_of_tower(family: Architecture[Any]) -> set[str]:
    """The fields of a configuration that its text model lacks."""
    llama = ARCHITECTURES["llama"]  # PaddleOCR-VL's text model is no family of its own
    text = ARCHITECTURES.get(family.name_in_gguf, llama).config
    return {field.name for field in fields(family.config)} - {field.name for field in fields(text)}


def pair_of(name: str, folder: Path) -> ProjectedGguf:
    """The files of a case whose folder was written."""
    architecture = CASES[name].architecture
    config: Any = ours.config_of(open_weights(folder), architecture)
    text = open_weights(write_gguf(folder, architecture, config))
    return ProjectedGguf(
        text, write_projector(folder, folder / "mmproj.gguf", architecture, config)
    )


@pytest.mark.parametrize("name", first_by_day(GRID_NAMES, 3))
def test_a_pair_of_gguf_files_holds_the_tower_of_the_folder(name: str, tmp_path: Path) -> None:
    family = ARCHITECTURES[CASES[name].architecture]
    write_folder(recorded_case(name), tmp_path)
    config, pair = ours.config_of(open_weights(tmp_path), family.name), pair_of(name, tmp_path)
    assert identify(pair, None).architecture == family.name
    same = ours.config_of(pair, family.name)
    for field in fields_of_tower(family):
        assert getattr(same, field) == about(getattr(config, field)), field
    rows = rows_of_first_image(pair, family, tmp_path, name)
    close(rows, recorded(name).rows[: len(rows)], 1e-4)


def rows_of_first_image(
    pair: ProjectedGguf, family: Architecture[Any], folder: Path, name: str
) -> NDArray[np.float32]:
    """The rows of the first image of a case."""
    config = ours.config_of(pair, family.name)
    kept = folder / "pair"
    kept.mkdir()
    options = replace(ours.OPTIONS, image_rows=(rows_of(name)[0],))
    with patch.object(ours, "OPTIONS", options):
        program, parameters = ours.parameters_of(pair, family.name, config, kept)
    settings: Any = family.image_input(config, pair.metadata())
    (graph,) = (graph for point, graph in program.entry_points if point.kind == "image")
    patches = patches_of(pixels(name)[0], settings).padded(settings.patches_of(rows_of(name)[0]))
    (rows,) = evaluate(graph, [*patches], parameters)
    return np.asarray(rows)


CONVERTED_NAMES = [name for name in GRID_NAMES if name not in OF_OLDER_SCRIPT]


@pytest.mark.parametrize("name", first_by_day(CONVERTED_NAMES, 3))
def test_a_tower_as_llamacpps_converter_writes_it_is_read(name: str, tmp_path: Path) -> None:
    """It has the keys and the tensors of the file that the tests write."""
    family = ARCHITECTURES[CASES[name].architecture]
    write_folder(recorded_case(name), tmp_path)
    config, pair = ours.config_of(open_weights(tmp_path), family.name), pair_of(name, tmp_path)
    file, recording = GgufSource(pair.projector), converted(name + PROJECTOR)
    assert {*file.names()} == recording.tensors.keys()
    for tensor, (shape, values) in recording.tensors.items():
        assert (tensor, file.shape(tensor)) == (tensor, shape)
        if not tensor.endswith(COMPUTED):
            assert (tensor, digest(file.read(tensor))) == (tensor, values)
    written = {key for key in file.metadata() if key.startswith("clip.")}
    assert written == {key for key in recording.metadata if key.startswith("clip.")}
    metadata = {**recording.metadata, **pair.metadata(), **{
        key: value for key, value in recording.metadata.items() if key.startswith("clip.")
    }}  # fmt: skip
    shapes = {tensor: pair.shape(tensor) for tensor in pair.names()}
    same = family.from_gguf(metadata, shapes, pair.read)
    for field in fields_of_tower(family):
        assert getattr(same, field) == about(getattr(config, field)), field
    if "clip.vision.is_deepstack_layers" in metadata:
        metadata["clip.vision.is_deepstack_layers"] = [False, True]
        reason = "is_deepstack_layers: got true|n_deepstack_layers: got 2, expected 1"
        with pytest.raises(ConfigError, match=reason):
            family.from_gguf(metadata, shapes, pair.read)


@pytest.mark.parametrize("name", sounds.NAMES)
def test_a_pair_of_gguf_files_holds_the_tower_for_sound(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folder(recorded_case(name), tmp_path)
    folder, pair, family = open_weights(tmp_path), pair_of(name, tmp_path), CASES[name].architecture
    options = replace(ours.OPTIONS, image_rows=(1,), sound_rows=(sounds.COUNTS[0],))
    monkeypatch.setattr(ours, "OPTIONS", options)
    read = []
    for source in (folder, pair):
        config = ours.config_of(source, family)
        program, parameters = ours.parameters_of(source, family, config, tmp_path)
        read.append(parameters)
    assert read[0].keys() == read[1].keys()
    for parameter, values in read[0].items():
        assert np.array_equal(values, read[1][parameter]), parameter
    (graph,) = (graph for point, graph in program.entry_points if point.kind == "sound")
    frames, length = sounds.frames_of(name)[0], graph.inputs[0].shape[0]
    padded = np.pad(frames, ((0, length - len(frames)), (0, 0)))
    (rows,) = evaluate(graph, [padded, np.array([len(frames)], np.int32)], read[1])
    close(rows, sounds.recorded(name).rows[: len(rows)], 1e-4)


def test_glm_without_its_projector_is_read_as_a_text_model(tmp_path: Path) -> None:
    """The rows of queries and keys that turn are half after half in its file."""
    recording = recorded_case("glm4v-text")
    write_folder(recording, tmp_path)
    config: Any = ours.config_of(open_weights(tmp_path), "glm4v")
    file = open_weights(write_gguf(tmp_path, "glm4v", config))
    assert identify(file, None).name == "glm4.1v"
    logits = ours.logits(file, "glm4v", tmp_path, TOKENS)
    close(logits[ROWS], recording.logits, 1e-4)
    longer = {"glm4.block_count": config.layers + 1, "glm4.nextn_predict_layers": 1}
    metadata = {**file.metadata(), **longer}
    shapes = {tensor: file.shape(tensor) for tensor in file.names()}
    assert ARCHITECTURES["glm4v"].from_gguf(metadata, shapes, file.read).layers == config.layers


def test_the_limits_of_images_are_read_from_a_projector(tmp_path: Path) -> None:
    name = "paddleocr-vl-mrope"
    write_folder(recorded_case(name), tmp_path)
    pair, family = pair_of(name, tmp_path), ARCHITECTURES["paddleocr-vl"]
    config: Any = identify(pair, None).config
    settings: Any = family.image_input(config, pair.metadata())
    assert (settings.min_pixels, settings.max_pixels) == PADDLE_PIXELS


def test_prompts_of_older_versions_of_minicpmv_are_refused(tmp_path: Path) -> None:
    """Of 2.5, parts of an image have other tokens around them."""
    name = "minicpmv-qwen2"
    write_folder(recorded_case(name), tmp_path)
    pair = pair_of(name, tmp_path)
    metadata = {**pair.metadata(), "clip.minicpmv_version": 2}
    with (
        patch.object(pair, "metadata", lambda: metadata),
        pytest.raises(ConfigError, match=r"minicpmv_version: got 2, supported: 3, 4, 5, 6, 100045"),
    ):
        identify(pair, None)


def test_a_family_without_sound_leaves_the_tower_for_it_out(tmp_path: Path) -> None:
    write_folder(recorded_case(sounds.TOWER), tmp_path)
    pair, family = pair_of(sounds.TOWER, tmp_path), ARCHITECTURES["gemma4-images"]
    config: Any = identify(pair, "gemma4-images").config
    names = pair.names()
    of_sound = {name for name in names if name.startswith(("a.", "mm.a."))}
    assert len(of_sound) > 1
    for name in of_sound:
        assert family.tensors.is_other_part(name, names), name
    read = {
        tensor.name
        for parameter in family.model(config).parameters()
        for tensor in family.tensors.parts(config, parameter, names, gguf=True)
    }
    assert not read & of_sound


@pytest.mark.parametrize("architecture", ["mistral3-images", "pixtral"])
def test_the_row_of_the_token_after_a_line_is_not_read(architecture: str) -> None:
    """Files that are converted from Mistral's own format have it."""
    tensors = ARCHITECTURES[architecture].tensors
    assert tensors.is_other_part("v.token_embd.img_break")
    assert not tensors.is_other_part("v.pre_ln.weight")


def test_mistral_small_with_the_architecture_of_llama_is_read(tmp_path: Path) -> None:
    """The tower is the same as in the folder, with a projector that joins squares."""
    name = "mistral3-images-mistral"
    write_folder(recorded_case(name), tmp_path)
    config: Any = ours.config_of(open_weights(tmp_path), "mistral3-images")
    family = ARCHITECTURES["pixtral"]
    as_llama = {field.name: getattr(config, field.name) for field in fields(family.config)}
    text = open_weights(write_gguf(tmp_path, "pixtral", family.config(**as_llama)))
    path = write_projector(tmp_path, tmp_path / "mmproj.gguf", "mistral3-images", config)
    pair = ProjectedGguf(text, path)
    assert identify(pair, None).architecture == "pixtral"
    rows = rows_of_first_image(pair, family, tmp_path, name)
    close(rows, recorded(name).rows[: len(rows)], 1e-4)


def test_a_projector_of_no_family_of_the_text_model_is_refused(tmp_path: Path) -> None:
    """Without its towers the text model would be another family."""
    write_folder(recorded_case("pixtral-pixtral"), tmp_path)
    pair = pair_of("pixtral-pixtral", tmp_path)
    metadata = {**pair.metadata(), "clip.projector_type": "ldp"}
    with (
        patch.object(pair, "metadata", lambda: metadata),
        pytest.raises(ConfigError, match=r"as smolvlm: clip\.projector_type: got 'ldp', expected"),
    ):
        identify(pair, None)


def test_the_frames_of_a_convolution_are_joined(tmp_path: Path) -> None:
    name = "qwen35-images-mrope"
    write_folder(recorded_case(name), tmp_path)
    folder, pair = open_weights(tmp_path), pair_of(name, tmp_path)
    expected = folder.read("model.visual.patch_embed.proj.weight")
    assert np.array_equal(pair.read("v.patch_embd.weight"), expected)
    assert "v.patch_embd.weight.1" not in pair.names()
