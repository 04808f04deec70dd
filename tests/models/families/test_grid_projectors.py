"""Pairs of GGUF files of models that read images of any size: see test_projectors.py."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.baker.pipeline.weights_config import identify
from hearthd.baker.weights.gguf import GgufSource
from hearthd.baker.weights.open_weights import open_weights
from hearthd.baker.weights.projected_gguf import ProjectedGguf
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.config import ConfigError
from hearthd.models.dsl.evaluate import evaluate
from hearthd.runtime.pixels import patches_of
from tests.models.families import ours
from tests.models.families.cases import CASES
from tests.models.families.converted_files import PROJECTOR, converted, digest
from tests.models.families.family_recording import recorded as recorded_case
from tests.models.families.family_recording import write_folder
from tests.models.families.gguf_files import write_gguf
from tests.models.families.gguf_projector import write_projector
from tests.models.families.grid_images import GRID_NAMES, GRIDS, pixels, recorded
from tests.models.families.test_families import about, close

if TYPE_CHECKING:
    from pathlib import Path

    from hearthd.models.decoder.architecture import Architecture


def fields_of_tower(family: Architecture[Any]) -> set[str]:
    """The fields of a configuration that its text model lacks."""
    text = ARCHITECTURES[family.name_in_gguf].config
    return {field.name for field in fields(family.config)} - {field.name for field in fields(text)}


# Towers for sound are read from folders only.
IN_GGUF = tuple(
    name for name in GRID_NAMES if ARCHITECTURES[CASES[name].architecture].sound is None
)


def pair_of(name: str, folder: Path) -> ProjectedGguf:
    """The files of a case whose folder was written."""
    architecture = CASES[name].architecture
    config: Any = ours.config_of(open_weights(folder), architecture)
    text = open_weights(write_gguf(folder, architecture, config))
    return ProjectedGguf(
        text, write_projector(folder, folder / "mmproj.gguf", architecture, config)
    )


@pytest.mark.parametrize("name", IN_GGUF)
def test_a_pair_of_gguf_files_holds_the_tower_of_the_folder(name: str, tmp_path: Path) -> None:
    family = ARCHITECTURES[CASES[name].architecture]
    write_folder(recorded_case(name), tmp_path)
    config, pair = ours.config_of(open_weights(tmp_path), family.name), pair_of(name, tmp_path)
    assert identify(pair, None).architecture == family.name
    same = ours.config_of(pair, family.name)
    for field in fields_of_tower(family):
        assert getattr(same, field) == about(getattr(config, field)), field
    kept = tmp_path / "pair"
    kept.mkdir()
    options = replace(ours.OPTIONS, image_rows=(GRIDS[0][0] * GRIDS[0][1],))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ours, "OPTIONS", options)
        program, parameters = ours.parameters_of(pair, family.name, same, kept)
    settings: Any = family.image_input(same, pair.metadata())
    (graph,) = (graph for point, graph in program.entry_points if point.kind == "image")
    (rows,) = evaluate(graph, [*patches_of(pixels(name)[0], settings)], parameters)
    close(rows, recorded(name).rows[: len(rows)], 1e-4)


@pytest.mark.parametrize("name", IN_GGUF)
def test_what_llamacpps_converter_writes_of_a_tower_is_read(name: str, tmp_path: Path) -> None:
    """It has the keys and the tensors of the file that the tests write."""
    family = ARCHITECTURES[CASES[name].architecture]
    write_folder(recorded_case(name), tmp_path)
    config, pair = ours.config_of(open_weights(tmp_path), family.name), pair_of(name, tmp_path)
    file, recording = GgufSource(pair.projector), converted(name + PROJECTOR)
    assert {*file.names()} == recording.tensors.keys()
    for tensor, (shape, values) in recording.tensors.items():
        assert (tensor, file.shape(tensor)) == (tensor, shape)
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
        with pytest.raises(ConfigError, match="is_deepstack_layers: got true, supported is false"):
            family.from_gguf(metadata, shapes, pair.read)


def test_a_tower_for_sound_in_the_same_file_is_left_out(tmp_path: Path) -> None:
    """As in the projectors of Gemma 4 E2B and E4B."""
    name = "gemma4-images-clips"
    write_folder(recorded_case(name), tmp_path)
    pair, architecture = pair_of(name, tmp_path), CASES[name].architecture
    config: Any = ours.config_of(pair, architecture)
    path = tmp_path / "mmproj-sound.gguf"
    write_projector(tmp_path, path, architecture, config, has_sound=True)
    with_sound = ProjectedGguf(open_weights(pair.files()[0]), path)
    assert with_sound.names() == pair.names()
    assert ours.config_of(with_sound, architecture) == config


def test_the_frames_of_a_convolution_are_joined(tmp_path: Path) -> None:
    write_folder(recorded_case(GRID_NAMES[0]), tmp_path)
    folder, pair = open_weights(tmp_path), pair_of(GRID_NAMES[0], tmp_path)
    expected = folder.read("model.visual.patch_embed.proj.weight")
    assert np.array_equal(pair.read("v.patch_embd.weight"), expected)
    assert "v.patch_embd.weight.1" not in pair.names()
