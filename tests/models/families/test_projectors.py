"""Pairs of GGUF files, of a text model and of its projector of images."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest

from hearthd.baker.pipeline.weights_config import identify
from hearthd.baker.weights.gguf import GgufSource
from hearthd.baker.weights.open_weights import open_weights
from hearthd.baker.weights.projected_gguf import ProjectedGguf
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.dsl.evaluate import evaluate
from tests.models.families import ours
from tests.models.families.cases import CASES
from tests.models.families.converted_files import OF_OLDER_SCRIPT, PROJECTOR, converted, digest
from tests.models.families.family_recording import recorded as recorded_case
from tests.models.families.family_recording import write_folder
from tests.models.families.gguf_files import write_gguf
from tests.models.families.gguf_projector import write_projector
from tests.models.families.images import NAMES, order_of, pixels, recorded
from tests.models.families.test_families import close

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", NAMES)
def test_a_pair_of_gguf_files_holds_the_model_of_the_folder(name: str, tmp_path: Path) -> None:
    architecture = CASES[name].architecture
    write_folder(recorded_case(name), tmp_path)
    folder = open_weights(tmp_path)
    config: Any = ours.config_of(folder, architecture)
    text = open_weights(write_gguf(tmp_path, architecture, config))
    projector = write_projector(tmp_path, tmp_path / "mmproj.gguf", architecture, config)
    pair = ProjectedGguf(text, projector)
    assert identify(text, None).architecture == text.metadata()["general.architecture"]
    assert identify(pair, None).architecture == architecture
    assert pair.files() == (*text.files(), projector)

    same: Any = ours.config_of(pair, architecture)
    stored = asdict(config) | {"tower_layers": getattr(config, "layers_read", config.tower_layers)}
    for key, value in stored.items():
        expected_value = pytest.approx(value) if isinstance(value, float) else value
        assert getattr(same, key) == expected_value, key
    kept = tmp_path / "pair"
    kept.mkdir()
    program, parameters = ours.parameters_of(pair, architecture, same, kept)
    _, expected = ours.parameters_of(folder, architecture, config, tmp_path)
    for parameter, values in expected.items():
        if "input_projection" in parameter:  # f16 in files
            values = values.astype(np.float16)
        assert (parameters[parameter] == values).all(), parameter
    graph = next(graph for point, graph in program.entry_points if point.name == "image")
    (rows,) = evaluate(graph, [pixels(name)[0]], parameters)
    close(rows[[*order_of(name)]], recorded(name).rows[0], 2e-3)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OF_OLDER_SCRIPT])
def test_a_tower_as_llamacpps_converter_writes_it_is_read(name: str, tmp_path: Path) -> None:
    """It has the keys and the tensors of the file that the tests write."""
    architecture = CASES[name].architecture
    write_folder(recorded_case(name), tmp_path)
    config: Any = ours.config_of(open_weights(tmp_path), architecture)
    text = open_weights(write_gguf(tmp_path, architecture, config))
    path = write_projector(tmp_path, tmp_path / "mmproj.gguf", architecture, config)
    pair, file, recording = ProjectedGguf(text, path), GgufSource(path), converted(name + PROJECTOR)
    assert {*file.names()} == recording.tensors.keys()
    for tensor, (shape, values) in recording.tensors.items():
        assert (tensor, file.shape(tensor)) == (tensor, shape)
        assert (tensor, digest(file.read(tensor))) == (tensor, values)
    ours_ = {key: value for key, value in file.metadata().items() if key.startswith("clip.")}
    assert ours_.keys() == {key for key in recording.metadata if key.startswith("clip.")}
    shapes = {tensor: pair.shape(tensor) for tensor in pair.names()}
    metadata = {**text.metadata(), **recording.metadata}
    metadata["general.architecture"] = text.metadata()["general.architecture"]
    same: Any = ARCHITECTURES[architecture].from_gguf(metadata, shapes, pair.read)
    for key, value in asdict(config).items():
        expected = pytest.approx(value) if isinstance(value, float) else value
        assert getattr(same, key) == expected, key


def test_layouts_of_tiles_are_widths_and_heights(tmp_path: Path) -> None:
    write_folder(recorded_case("llava-next-mistral"), tmp_path)
    config: Any = ours.config_of(open_weights(tmp_path), "llava-next")
    text = open_weights(write_gguf(tmp_path, "llava-next", config))
    projector = write_projector(tmp_path, tmp_path / "mmproj.gguf", "llava-next", config)
    pair = ProjectedGguf(text, projector)
    settings: Any = ARCHITECTURES["llava-next"].image_input(config, pair.metadata())
    assert settings.padded.layouts == ((2, 1), (1, 3))


def test_older_files_call_the_first_matrix_of_an_mlp_down(tmp_path: Path) -> None:
    """As clip.cpp, which tells it by the shape."""
    write_folder(recorded_case(NAMES[0]), tmp_path)
    config: Any = ours.config_of(open_weights(tmp_path), "smolvlm")
    text = open_weights(write_gguf(tmp_path, "smolvlm", config))
    usual = write_projector(tmp_path, tmp_path / "mmproj.gguf", "smolvlm", config)
    older, swaps = tmp_path / "mmproj-older.gguf", {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}
    with pytest.MonkeyPatch.context() as patch:
        add = gguf.GGUFWriter.add_tensor

        def add_swapped(writer: Any, name: str, values: Any) -> None:
            part = name.split(".")[-2]
            add(writer, name.replace(part, swaps.get(part, part)), values)

        patch.setattr(gguf.GGUFWriter, "add_tensor", add_swapped)
        write_projector(tmp_path, older, "smolvlm", config)
    expected, swapped = ProjectedGguf(text, usual), ProjectedGguf(text, older)
    assert {*expected.names()} == {*swapped.names()}
    for name in filter(lambda name: ".ffn_" in name, expected.names()):
        assert np.array_equal(expected.read(name), swapped.read(name)), name
