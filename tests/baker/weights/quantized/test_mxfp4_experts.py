"""A folder of gpt-oss whose experts are in MXFP4: as in the GGUF file with the same weights."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from hearthd.baker.parameters import native
from hearthd.baker.parameters.parameter_writer import locate, write_parameters
from hearthd.baker.weights.open_weights import open_weights
from hearthd.baker.weights.source import BadFile
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.program import ProgramOptions
from tests.models.families import gguf_files, ours
from tests.models.families.cases import random_tensors
from tests.models.families.family_recording import recorded
from tests.models.families.gguf_gpt_oss import gpt_oss

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Array = NDArray[Any]

FAMILY = ARCHITECTURES["gpt-oss"]
# Whole groups and blocks of a format.
HIDDEN, WIDTH, HEAD, VOCABULARY = 64, 96, 16, 112
FIRST = "model.layers.0.mlp.experts"


def shapes() -> dict[str, tuple[int, ...]]:
    """The shapes of the recorded model's tensors, with other widths."""
    recording = recorded("gpt-oss-yarn")
    widths = {48: HIDDEN, 56: WIDTH, 112: 2 * WIDTH, 24: 2 * HEAD, 97: VOCABULARY}
    return {
        name: tuple(widths.get(extent, extent) for extent in shape)
        for name, shape in recording.shapes.items()
    }


@pytest.fixture(scope="module")
def numbers() -> dict[str, tuple[Array, Array]]:
    """The numbers of E2M1 (X, N, K) and the exponents (X, N, K / 32) of each tensor of experts."""
    rng = np.random.default_rng(5)
    result = {}
    for name, shape in shapes().items():
        if name.endswith(("gate_up_proj", "down_proj")):
            experts, columns, rows = shape
            # 8 is -0, which becomes 0 in a folder, and stays in a file.
            choices = np.delete(np.arange(16, dtype=np.uint8), 8)
            stored = rng.choice(choices, (experts, rows, columns))
            exponents = rng.integers(118, 124, (experts, rows, columns // 32), dtype=np.uint8)
            result[name] = (stored, exponents)
    return result


@pytest.fixture(scope="module")
def folder(
    numbers: dict[str, tuple[Array, Array]], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    path = tmp_path_factory.mktemp("mxfp4")
    config = {
        **recorded("gpt-oss-yarn").config,
        "hidden_size": HIDDEN,
        "intermediate_size": WIDTH,
        "head_dim": HEAD,
        "vocab_size": VOCABULARY,
        "quantization_config": {"quant_method": "mxfp4"},
    }
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    tensors = random_tensors({name: one for name, one in shapes().items() if name not in numbers})
    for name, (stored, exponents) in numbers.items():
        groups = stored.reshape(*exponents.shape, 16, 2)
        tensors[f"{name}_blocks"] = groups[..., 0] | groups[..., 1] << 4
        tensors[f"{name}_scales"] = exponents
    save_file(tensors, path / "model.safetensors")
    return path


def blocks_of_file(stored: Array, exponents: Array) -> Array:
    """The numbers and exponents as GGUF files store them: the second half in the high bits."""
    groups = stored.reshape(*exponents.shape, 2, 16)
    blocks = np.concatenate(
        [exponents[..., np.newaxis], groups[..., 0, :] | groups[..., 1, :] << 4], axis=-1
    )
    return blocks.reshape(*stored.shape[:2], -1)


@pytest.fixture(scope="module")
def file(folder: Path, numbers: dict[str, tuple[Array, Array]]) -> Path:
    """The file as llama.cpp's converter makes it of the folder."""
    config: Any = ours.config_of(open_weights(folder), "gpt-oss")
    writer = gguf.GGUFWriter(folder / "model.gguf", "gpt-oss")
    gguf_files.add_config(writer, "gpt-oss", config)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GPT_OSS, config.layers)

    def add(name: str, values: Array, **raw: Any) -> None:
        stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert stored is not None, name
        writer.add_tensor(stored, values, **raw)

    for name, values in load_file(folder / "model.safetensors").items():
        if not name.endswith(("_blocks", "_scales")):
            for parameter, array in gpt_oss(name, values):
                add(parameter, array)
    for name, (stored, exponents) in numbers.items():
        module = name.rpartition(".")[0]
        parts = {"down_proj": slice(None)}
        if name.endswith("gate_up_proj"):
            parts = {"gate_proj": slice(0, None, 2), "up_proj": slice(1, None, 2)}
        for part, rows in parts.items():
            blocks = blocks_of_file(stored[:, rows], exponents[:, rows])
            kind = gguf.GGMLQuantizationType.MXFP4
            add(f"{module}.{part}.weight", blocks, raw_dtype=kind)
    return gguf_files.written(writer, folder / "model.gguf")


def test_values_are_those_of_the_gguf_package(
    folder: Path, numbers: dict[str, tuple[Array, Array]]
) -> None:
    source = open_weights(folder)
    for name, (stored, exponents) in numbers.items():
        expected = gguf.quants.dequantize(
            blocks_of_file(stored, exponents), gguf.GGMLQuantizationType.MXFP4
        )
        assert source.dtype(f"{name}.weight") == "mxfp4 MXFP4"
        assert np.array_equal(source.read(f"{name}.weight"), expected)


def archive(path: Path, folder: Path) -> bytes:
    """The parameters that a bake writes of weights, with integers as stored."""
    source = open_weights(path)
    config = ours.config_of(source, "gpt-oss")
    options = ProgramOptions(
        context=32,
        precision="native",
        prefill_tokens=(16,),
        decode_batches=(1,),
        storages=native.storages("native", source, FAMILY, config),
    )
    assert {*options.storages.values()} == {"mxfp4-g32"}
    assert len(options.storages) == 3 * config.layers
    program = FAMILY.program(config, options)
    written = folder / "params.irpa"
    write_parameters(source, locate(source, FAMILY, config, program), written, lambda _: None)
    return written.read_bytes()


def test_a_bake_stores_the_bytes_of_the_gguf_file(folder: Path, file: Path, tmp_path: Path) -> None:
    assert archive(folder, tmp_path) == archive(file, tmp_path)


@pytest.mark.parametrize("part", ["blocks", "scales"])
def test_a_missing_or_short_tensor_is_refused(folder: Path, tmp_path: Path, part: str) -> None:
    tensors = load_file(folder / "model.safetensors")
    name = f"{FIRST}.down_proj_{part}"
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    for damaged, message in (
        (None, f"there is no tensor {name}"),
        (tensors[name][:, :-1].copy(), "has shape"),
    ):
        rest = {key: values for key, values in tensors.items() if key != name}
        save_file(
            rest if damaged is None else {**rest, name: damaged}, tmp_path / "model.safetensors"
        )
        with pytest.raises(BadFile, match=message):
            open_weights(tmp_path)
