"""Hugging Face folders, written by the `safetensors` package."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from hearthd.baker.weights import source as weights_source
from hearthd.baker.weights.safetensors import SafetensorsSource
from hearthd.baker.weights.source import BadFile, NoSuchTensor, NoWeights, UnsupportedType
from tests.baker.weights.streaming import require_streamed

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = {"model_type": "gemma3_text", "hidden_size": 6}
RANDOM = np.random.default_rng(3)
TENSORS: dict[str, np.ndarray[Any, Any]] = {
    "embed": RANDOM.normal(size=(9, 6)).astype(ml_dtypes.bfloat16),
    "half": RANDOM.normal(size=(4, 2, 3)).astype(np.float16),
    "norm": RANDOM.normal(size=6).astype(np.float32),
    "scalar": np.array(2.5, np.float32),
    "ids": np.arange(6).reshape(2, 3),
}
STORED = {"embed": "bf16", "half": "f16", "norm": "f32", "scalar": "f32", "ids": "I64"}
SHARDS = {"a.safetensors": ["embed", "norm"], "b.safetensors": ["half", "ids", "scalar"]}


def write_index(folder: Path, weight_map: Any) -> None:
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


@pytest.fixture(params=["single", "sharded"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    if request.param == "single":
        save_file(TENSORS, tmp_path / "model.safetensors")
        return tmp_path
    return write_shards(tmp_path)


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    return write_shards(tmp_path)


def write_shards(folder: Path) -> Path:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    for shard, names in SHARDS.items():
        save_file({name: TENSORS[name] for name in names}, folder / shard)
    write_index(folder, {name: shard for shard, names in SHARDS.items() for name in names})
    return folder


@pytest.mark.parametrize("block_bytes", [1, 50, 1 << 20])
def test_values_equal_the_saved_ones(
    folder: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr(weights_source, "BLOCK_BYTES", block_bytes)
    source = SafetensorsSource(folder)
    assert source.names() == tuple(sorted(TENSORS))
    for name, expected in TENSORS.items():
        assert source.shape(name) == expected.shape
        assert source.dtype(name) == STORED[name]
        if name == "ids":
            continue
        np.testing.assert_array_equal(source.read(name), expected.astype(np.float32), strict=True)
        blocks = list(source.blocks(name))
        assert sum(block.size for block in blocks) == expected.size
        for block in blocks:
            assert block.dtype == np.float32
            assert len(blocks) == 1 or block.nbytes <= block_bytes or len(block) == 1


def test_a_folder_has_a_config_and_files(folder: Path) -> None:
    source = SafetensorsSource(folder)
    assert source.metadata() == CONFIG
    assert source.format == "safetensors"
    assert {path.name for path in source.files()} == {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("written", "pooling"),
    [
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode_lasttoken": True, "include_prompt": True}, "last"),
        ({"pooling_mode": "lasttoken"}, "last"),
        ({"pooling_mode_cls_token": True}, "cls"),
        (
            {"pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": True},
            "max_tokens+mean_tokens",
        ),
    ],
    ids=str,
)
def test_the_pooling_of_sentence_transformers_is_part_of_the_config(
    folder: Path, written: dict[str, Any], pooling: str
) -> None:
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(written))
    source = SafetensorsSource(folder)
    assert source.metadata() == {**CONFIG, "1_Pooling/config.json": pooling}
    assert folder / "1_Pooling" / "config.json" in source.files()


@pytest.mark.parametrize(
    ("all_processors", "expected"),
    [(None, 3), ({}, 3), ({"image_processor": {"resample": 2}, "processor_class": "A"}, 2)],
)
def test_the_settings_for_images_are_those_that_transformers_prefers(
    folder: Path, all_processors: dict[str, Any] | None, expected: int
) -> None:
    (folder / "preprocessor_config.json").write_text('{"resample": 3}')
    if all_processors is not None:
        (folder / "processor_config.json").write_text(json.dumps(all_processors))
    source = SafetensorsSource(folder)
    assert source.metadata()["preprocessor_config.json"] == {"resample": expected}
    assert (folder / "preprocessor_config.json") in source.files()


def test_a_large_tensor_is_streamed(tmp_path: Path) -> None:
    rows, columns = 262153, 640
    size = rows * columns * 2
    header = json.dumps(
        {"table": {"dtype": "BF16", "shape": [rows, columns], "data_offsets": [0, size]}}
    ).encode()
    path = tmp_path / "model.safetensors"
    # The values are a hole in the file.
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + size)
    (tmp_path / "config.json").write_text("{}")
    require_streamed(SafetensorsSource(tmp_path), "table", rows)
    path.unlink()


def test_a_type_that_cannot_be_converted_is_rejected(folder: Path) -> None:
    with pytest.raises(UnsupportedType, match="tensor ids is I64, expected one of F32, F16, BF16"):
        SafetensorsSource(folder).read("ids")


def test_an_absent_tensor_is_an_error_by_name(folder: Path) -> None:
    source = SafetensorsSource(folder)
    for method in (source.shape, source.dtype, source.read):
        with pytest.raises(NoSuchTensor, match="has no tensor 'lm_head'"):
            method("lm_head")


@pytest.mark.parametrize("size", [0, 5, 100, -1])
def test_a_truncated_file_is_rejected(folder: Path, size: int) -> None:
    for path in folder.glob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(BadFile, match=r"\.safetensors is not a complete safetensors file"):
        SafetensorsSource(folder)


def test_a_folder_without_weights_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(NoWeights, match=r"neither model\.safetensors nor"):
        SafetensorsSource(tmp_path)


@pytest.mark.parametrize("text", ["", "[1]", "{", "\ud800"])
def test_a_config_that_is_not_an_object_is_rejected(folder: Path, text: str) -> None:
    (folder / "config.json").write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(BadFile, match=r"config\.json"):
        SafetensorsSource(folder)


def test_a_missing_shard_is_an_error(sharded: Path) -> None:
    (sharded / "b.safetensors").unlink()
    with pytest.raises(BadFile, match=r"names 'b\.safetensors', which .* does not contain"):
        SafetensorsSource(sharded)


def test_a_shard_outside_the_folder_is_rejected(sharded: Path) -> None:
    inner = sharded / "inner"
    inner.mkdir()
    (inner / "config.json").write_text("{}")
    write_index(inner, {"embed": "../a.safetensors"})
    with pytest.raises(BadFile, match=r"names '\.\./a\.safetensors', which .* does not contain"):
        SafetensorsSource(inner)


@pytest.mark.parametrize("name", ["half", "lm_head"])
def test_a_tensor_that_is_not_in_its_shard_is_an_error(sharded: Path, name: str) -> None:
    write_index(sharded, {"embed": "a.safetensors", "ids": "b.safetensors", name: "a.safetensors"})
    with pytest.raises(BadFile, match=f"locates tensor {name} in a.safetensors, which does not"):
        SafetensorsSource(sharded)


def test_a_tensor_in_two_shards_is_an_error(sharded: Path) -> None:
    save_file(TENSORS, sharded / "b.safetensors")
    with pytest.raises(
        BadFile, match=r"tensor \w+ is in both .*a\.safetensors and .*b\.safetensors"
    ):
        SafetensorsSource(sharded)


@pytest.mark.parametrize("weight_map", [None, [], {"embed": 3}])
def test_an_index_without_a_weight_map_is_rejected(sharded: Path, weight_map: Any) -> None:
    write_index(sharded, weight_map)
    with pytest.raises(BadFile, match="weight_map"):
        SafetensorsSource(sharded)
