"""Whisper in CTranslate2's form: the tensors of the same model in safetensors."""

from __future__ import annotations

import contextlib
import json
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.baker.weights.ctranslate2 import MODEL, CTranslate2Source
from hearthd.baker.weights.open_weights import open_weights
from hearthd.baker.weights.safetensors import SafetensorsSource
from hearthd.baker.weights.source import BadFile, UnsupportedType, WeightsError
from hearthd.models.catalog import SPEECH
from hearthd.models.config import ConfigError
from tests.baker.small_whisper import config, small_whisper

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hearthd.baker.weights.source import WeightSource

# Layers as CTranslate2's specs/transformer_spec.py has them: each joins rows of these.
LINEAR = {
    "self_attention/linear_0": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention/linear_1": ("self_attn.out_proj",),
    "attention/linear_0": ("encoder_attn.q_proj",),
    "attention/linear_1": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "attention/linear_2": ("encoder_attn.out_proj",),
    "ffn/linear_0": ("fc1",),
    "ffn/linear_1": ("fc2",),
}
NORMS = {
    "self_attention/layer_norm": "self_attn_layer_norm",
    "attention/layer_norm": "encoder_attn_layer_norm",
    "ffn/layer_norm": "final_layer_norm",
}
TYPES = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4}


def array(source: WeightSource, name: str) -> Any:
    return np.concatenate(list(source.blocks(name))) if name in source.names() else None


def variables(source: WeightSource) -> dict[str, Any]:
    """The variables that its converter writes."""
    result: dict[str, Any] = {}
    for side in ("encoder", "decoder"):
        prefix = f"model.{side}."
        result[f"{side}/num_heads"] = np.array(config()[f"{side}_attention_heads"], np.int8)
        result[f"{side}/position_encodings/encodings"] = array(
            source, f"{prefix}embed_positions.weight"
        )
        result[f"{side}/layer_norm/gamma"] = array(source, f"{prefix}layer_norm.weight")
        result[f"{side}/layer_norm/beta"] = array(source, f"{prefix}layer_norm.bias")
        for layer in range(config()[f"{side}_layers"]):
            of_layer = f"{prefix}layers.{layer}."
            for name, norm in NORMS.items():
                if (gamma := array(source, f"{of_layer}{norm}.weight")) is not None:
                    result[f"{side}/layer_{layer}/{name}/gamma"] = gamma
                    result[f"{side}/layer_{layer}/{name}/beta"] = array(
                        source, f"{of_layer}{norm}.bias"
                    )
            for name, parts in LINEAR.items():
                weights = [array(source, f"{of_layer}{part}.weight") for part in parts]
                if weights[0] is None:
                    continue
                biases = [array(source, f"{of_layer}{part}.bias") for part in parts]
                zeros = [np.zeros(len(weight), np.float32) for weight in weights]
                joined = [
                    zero if bias is None else bias for zero, bias in zip(zeros, biases, strict=True)
                ]
                result[f"{side}/layer_{layer}/{name}/weight"] = np.concatenate(weights)
                result[f"{side}/layer_{layer}/{name}/bias"] = np.concatenate(joined)
    for name in ("conv1", "conv2"):
        for suffix in ("weight", "bias"):
            result[f"encoder/{name}/{suffix}"] = array(source, f"model.encoder.{name}.{suffix}")
    result["decoder/embeddings/weight"] = array(source, "model.decoder.embed_tokens.weight")
    return result


def int8(values: dict[str, Any]) -> dict[str, Any]:
    """Matrices as integers, with a scale for each row."""
    result = {}
    for name, value in values.items():
        result[name] = value
        if name.endswith("/weight") and value.ndim == 2:
            scale = (127 / np.abs(value).max(axis=1)).astype(np.float32)
            result[name] = np.rint(value * scale[:, np.newaxis]).astype(np.int8)
            result[f"{name}_scale"] = scale
    return result


def half(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.astype(np.float16) if value.dtype == np.float32 else value
        for name, value in values.items()
    }


def text(value: str) -> bytes:
    return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"


def model(values: dict[str, Any], *, version: int = 6, spec: str = "WhisperSpec") -> bytes:
    """model.bin, as `Model.save` of CTranslate2's model_spec.py writes it."""
    data = struct.pack("<I", version) + text(spec) + struct.pack("<II", 3, len(values))
    for name, value in values.items():
        shape = struct.pack(f"<B{value.ndim}I", value.ndim, *value.shape)
        kind = struct.pack("<BI", TYPES[value.dtype.name], value.nbytes)
        data += text(name) + shape + kind + value.tobytes()
    return data + struct.pack("<I", 0)  # aliases


def folder_of(path: Path, data: bytes) -> Path:
    path.mkdir()
    (path / MODEL).write_bytes(data)
    ids = {"suppress_ids": [1, 2], "suppress_ids_begin": [32], "lang_ids": [258]}
    (path / "config.json").write_text(json.dumps(ids))
    return path


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> SafetensorsSource:
    return SafetensorsSource(small_whisper(tmp_path_factory.mktemp("whisper") / "weights"))


@pytest.mark.parametrize(
    ("stored", "tolerance"),
    [(dict, 0.0), (half, 1e-3), (int8, 1 / 254)],
    ids=("f32", "f16", "int8"),
)
def test_tensors_are_those_of_the_folder(
    stored: Callable[[dict[str, Any]], dict[str, Any]],
    tolerance: float,
    source: SafetensorsSource,
    tmp_path: Path,
) -> None:
    opened = open_weights(folder_of(tmp_path / "m", model(stored(variables(source)))))
    assert isinstance(opened, CTranslate2Source)
    assert set(opened.names()) == set(source.names())
    for name in source.names():
        expected, found = array(source, name), array(opened, name)
        assert found.shape == opened.shape(name) == expected.shape
        assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max() + 1e-12, name


def test_the_shape_and_the_suppressed_tokens_are_found(
    source: SafetensorsSource, tmp_path: Path
) -> None:
    opened = open_weights(folder_of(tmp_path / "m", model(variables(source))))
    whisper = SPEECH["whisper"]
    expected = whisper.from_hugging_face(source.metadata())
    assert whisper.from_hugging_face(opened.metadata()) == expected
    assert opened.metadata()["suppress_tokens"] == [1, 2]


def test_other_files_are_refused(source: SafetensorsSource, tmp_path: Path) -> None:
    good = variables(source)
    no_scales = int8(good)
    del no_scales["encoder/layer_0/ffn/linear_0/weight_scale"]
    cases = (
        (model(good, version=5), BadFile, "convert the model again"),
        (model(good, spec="TransformerSpec"), BadFile, "expected WhisperSpec"),
        (model({**good, "decoder/num_heads": np.array(1.0, np.float32)}), BadFile, "num_heads"),
    )
    for number, (data, error, message) in enumerate(cases):
        with pytest.raises(error, match=message):
            open_weights(folder_of(tmp_path / str(number), data))
    opened = open_weights(folder_of(tmp_path / "scales", model(no_scales)))
    with pytest.raises(UnsupportedType, match="without scales"):
        array(opened, "model.encoder.layers.0.fc1.weight")


def test_damage_is_one_sentence(source: SafetensorsSource, tmp_path: Path) -> None:
    """Files that are cut off anywhere, and headers with other bytes."""
    data = model(variables(source))
    rng = np.random.default_rng(0)
    damaged = [data[:length] for length in rng.integers(0, len(data) - 8, 40)]
    for _ in range(100):
        changed = bytearray(data)
        changed[rng.integers(0, 200)] = rng.integers(256)
        damaged.append(bytes(changed))
    folder = folder_of(tmp_path / "m", data)
    for each in damaged:
        (folder / MODEL).write_bytes(each)
        with contextlib.suppress(WeightsError, ConfigError):
            opened = open_weights(folder)
            SPEECH["whisper"].from_hugging_face(opened.metadata())
