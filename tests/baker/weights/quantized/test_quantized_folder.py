"""Quantized Hugging Face folders: each method's values, integers, and the logits of a model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from typing_extensions import override

from hearthd.baker.parameters import native
from hearthd.baker.parameters.parameter_writer import locate
from hearthd.baker.parameters.quantization import encoded_integers
from hearthd.baker.pipeline.read_as import ReadAs
from hearthd.baker.pipeline.shared_stages import Workspace, write_weights
from hearthd.baker.weights import source as weights_source
from hearthd.baker.weights.open_weights import open_weights
from hearthd.baker.weights.source import BadFile, UnsupportedType
from hearthd.models.dsl.matrix_format import FORMATS
from hearthd.models.dsl.storage import STORAGES
from hearthd.models.program import ProgramOptions
from tests.baker.weights.quantized.folders import LLAMA, change_tensors, config, write_folders
from tests.baker.weights.quantized.packing_cases import CASES
from tests.conftest import Silent
from tests.models.unpacked import real_weights

if TYPE_CHECKING:
    from pathlib import Path

    from hearthd.baker.parameters.parameter_writer import Located
    from hearthd.baker.weights.source import WeightSource
    from tests.baker.weights.quantized.folders import Folders
    from tests.baker.weights.quantized.packing_cases import Case


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture
def folders(case: Case, tmp_path: Path) -> Folders:
    return write_folders(case, tmp_path)


@pytest.fixture
def source(folders: Folders) -> WeightSource:
    return open_weights(folders.quantized)


@pytest.mark.parametrize("block_bytes", [1, 1 << 24])
def test_tensors_are_those_of_the_unquantized_folder(
    case: Case,
    folders: Folders,
    source: WeightSource,
    monkeypatch: pytest.MonkeyPatch,
    block_bytes: int,
) -> None:
    monkeypatch.setattr(weights_source, "BLOCK_BYTES", block_bytes)
    assert source.names() == tuple(sorted(folders.values))
    for name, expected in folders.values.items():
        assert source.shape(name) == expected.shape
        assert source.dtype(name) == (case.type if "_proj" in name else "f32")
        np.testing.assert_array_equal(source.read(name), expected, strict=True)


def test_weights_read_as_another_architecture_keep_their_integers(source: WeightSource) -> None:
    renamed = ReadAs(source, LLAMA)
    for name in source.names():
        assert renamed.integer_storage(name) == source.integer_storage(name)


def test_integers_are_stored_exactly(case: Case, folders: Folders, source: WeightSource) -> None:
    for name, expected in folders.values.items():
        storage = case.storage if "_proj" in name else None
        assert source.integer_storage(name) == storage
        if storage is None:
            with pytest.raises(UnsupportedType, match=f"{name} is .*, which has no integers"):
                next(iter(source.integer_blocks(name)))
            continue
        (block,) = source.integer_blocks(name)
        arrays = encoded_integers(STORAGES[storage], block)
        types = STORAGES[storage].arrays(*expected.shape).values()
        assert [array.shape for array in arrays] == [type_.shape for type_ in types]
        np.testing.assert_array_equal(real_weights(arrays, FORMATS[storage]), expected)


def test_the_default_precision_keeps_the_integers(case: Case, source: WeightSource) -> None:
    precision = native.default_precision("native", source, LLAMA, config())
    kept = case.storage not in (None, "int8-g32")
    assert precision == ("native" if kept else "int8-g32")
    storages = native.storages(precision, source, LLAMA, config())
    assert set(storages.values()) == ({case.storage} if kept else set())
    assert len(storages) == (14 if kept else 0)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("awq", None),
        (
            "gptq_4_desc_act",
            "no matrix format holds these weights exactly: 14 tensors in GPTQ int4 desc_act; they "
            "are dequantized, and quantized again as int8-g32",
        ),
    ],
)
def test_one_note_says_what_is_quantized_again(
    name: str, expected: str | None, tmp_path: Path
) -> None:
    source = open_weights(write_folders(CASES[name], tmp_path).quantized)
    progress = Notes()
    workspace = Workspace(folder=tmp_path, targets=(), programs=None, progress=progress)
    write_weights(workspace, source, located(source))
    assert progress.notes == ([] if expected is None else [expected])


class Notes(Silent):
    """Keeps the notes of a bake."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    @override
    def note(self, text: str) -> None:
        self.notes.append(text)


def located(source: WeightSource) -> tuple[Located, ...]:
    storages = native.storages("native", source, LLAMA, config())
    options = ProgramOptions(
        context=64,
        precision="native",
        prefill_tokens=(16,),
        decode_batches=(1,),
        storages=storages,
    )
    return locate(source, LLAMA, config(), LLAMA.program(config(), options))


def test_modelopt_has_its_settings_in_a_file_of_its_own(tmp_path: Path) -> None:
    folders = write_folders(CASES["modelopt"], tmp_path)
    path = folders.quantized / "config.json"
    written = json.loads(path.read_text())
    settings = written.pop("quantization_config")
    path.write_text(json.dumps(written))
    older = {"producer": {"name": "modelopt"}, "quantization": {**settings, "group_size": 16}}
    own_file = folders.quantized / "hf_quant_config.json"
    own_file.write_text(json.dumps(older))
    source = open_weights(folders.quantized)
    assert own_file in source.files()
    for name, values in folders.values.items():
        np.testing.assert_array_equal(source.read(name), values)
    own_file.write_text("{}")
    with pytest.raises(BadFile, match="has no object `quantization`; download the folder again"):
        open_weights(folders.quantized)


def test_a_bias_of_zeros_is_left_out(tmp_path: Path) -> None:
    folders = write_folders(CASES["gptq_4"], tmp_path)
    name = "model.layers.0.mlp.up_proj.bias"
    for value in (0.0, 0.5):
        change_tensors(folders, {name: np.full(128, value, np.float16)})
        if value:
            with pytest.raises(BadFile, match=f"does not use: .*{name}"):
                located(open_weights(folders.quantized))
        else:
            located(open_weights(folders.quantized))
