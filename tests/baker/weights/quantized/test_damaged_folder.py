"""A quantized folder that is damaged, or of an unknown method, is refused in one sentence."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from hearthd.baker.weights.open_weights import open_weights
from hearthd.baker.weights.source import BadFile, UnsupportedType, WeightsError
from hearthd.models.config import ConfigError
from tests.baker.weights.quantized.folders import change_settings, change_tensors, write_folders
from tests.baker.weights.quantized.packing_cases import CASES

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Array = NDArray[Any]

STATE = "weight.quant_state.bitsandbytes__nf4"
MODULE = "model.layers.1.mlp.down_proj"  # (64, 128)


def _text(text: str) -> Array:
    return np.frombuffer(text.encode(), np.uint8)


@pytest.mark.parametrize("settings", [{"quant_method": "hqq"}, {"quant_method": None}])
def test_an_unknown_method_is_refused(settings: dict[str, Any], tmp_path: Path) -> None:
    folder = write_folders(CASES["awq"], tmp_path).quantized
    change_settings(folder, settings)
    method = str(settings["quant_method"])
    message = (
        f"{folder}/config.json: quantization_config: quant_method: got '{method}', expected one of "
        "awq, gptq, .*; use the unquantized folder or a GGUF file"
    )
    with pytest.raises(UnsupportedType, match=message):
        open_weights(folder)


@pytest.mark.parametrize("name", ["awq", "bitnet", "nf4"])
def test_a_folder_without_quantized_tensors_is_refused(name: str, tmp_path: Path) -> None:
    """As the master weights of BitNet, which are to be rounded when they are read."""
    folders = write_folders(CASES[name], tmp_path)
    change_tensors(folders, {tensor: None for tensor in folders.stored if "_proj." in tensor})
    with pytest.raises(BadFile, match="says that it is quantized with"):
        open_weights(folders.quantized)


def test_an_unknown_layer_of_bitnet_is_refused(tmp_path: Path) -> None:
    folder = write_folders(CASES["bitnet"], tmp_path).quantized
    change_settings(folder, {"linear_class": "newlinear"})
    with pytest.raises(ConfigError, match="linear_class: got 'newlinear', expected one of bitl"):
        open_weights(folder)


@pytest.mark.parametrize("packing", ["auto_round:fake", []])
def test_an_unknown_packing_is_refused(tmp_path: Path, packing: object) -> None:
    folder = write_folders(CASES["awq"], tmp_path).quantized
    change_settings(folder, {"quant_method": "auto-round", "packing_format": packing})
    message = f"packing_format: got {packing!r}, expected one of auto_round:auto_gptq, auto"
    with pytest.raises(UnsupportedType, match=re.escape(message)):
        open_weights(folder)


def test_another_algorithm_of_modelopt_is_refused(tmp_path: Path) -> None:
    folder = write_folders(CASES["modelopt"], tmp_path).quantized
    change_settings(folder, {"quant_algo": "W4A16_AWQ"})
    message = "quant_algo of ModelOpt: got 'W4A16_AWQ', expected one of NVFP4, .*; use the unquant"
    with pytest.raises(UnsupportedType, match=message):
        open_weights(folder)


@pytest.mark.parametrize(
    ("case", "settings", "message"),
    [
        ("awq", {"version": "gemv"}, "version: got 'gemv' of AWQ, expected 'gemm'; use"),
        ("awq", {"bits": 8}, "bits: got 8 of AWQ, expected 4; use the unquantized folder"),
        ("gptq_4", {"checkpoint_format": "marlin"}, "checkpoint_format: got 'marlin' of GPTQ"),
        (
            "fp8_blocks",
            {"weight_block_size": [16, 0]},
            r"weight_block_size: got \[16, 0\], e",
        ),
        ("fp8_blocks", {"weight_block_size": [16]}, r"weight_block_size: got \[16\], expected the"),
        ("gptq_4", {"desc_act": 1}, "desc_act: expected a value of type bool, got 1"),
    ],
)
def test_other_settings_are_refused(
    case: str, settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = write_folders(CASES[case], tmp_path).quantized
    change_settings(folder, settings)
    with pytest.raises(ConfigError, match=f"config.json: quantization_config: {message}"):
        open_weights(folder)


@pytest.mark.parametrize(
    ("case", "part", "array", "message"),
    [
        ("awq", "scales", None, f"{MODULE} is quantized with awq, but .* no tensor {MODULE}.scal"),
        (
            "awq",
            "qzeros",
            np.zeros((4, 7), np.int32),
            r"of awq has shape \(4, 7\), expected \(4, 8",
        ),
        (
            "modelopt",
            "weight_scale_2",
            None,
            f"with modelopt, but there is no tensor {MODULE}.weight_scale_2; download",
        ),
        (
            "modelopt",
            "weight_scale",
            np.zeros((64, 4), ml_dtypes.float8_e4m3fn),
            r"weight_scale of modelopt has shape \(64, 4\), expected \(64, 8\)",
        ),
        ("awq", "qweight", np.zeros(8, np.int32), r"of awq is I32 \(8,\), expected 2 axes of I32"),
        ("awq", "scales", np.zeros((3, 64), np.float16), "has shape|has 3 scales of a row"),
        (
            "gptq_4",
            "scales",
            np.zeros((4, 64), np.int32),
            r"is I32 \(4, 64\), expected 2 axes of f",
        ),
        ("gptq_4", "g_idx", np.zeros(100, np.int32), "g_idx of gptq has shape"),
        ("packed_4", "weight_shape", None, f"no tensor {MODULE}.weight_shape; download the folder"),
        (
            "packed_4",
            "weight_shape",
            np.array([64, 99]),
            "has 16 words of a row, 99 columns of .4.",
        ),
        ("packed_4", "weight_scale", None, f"no tensor {MODULE}.weight_scale; download the folder"),
        ("packed_4", "weight_zero_point", np.zeros((8, 3), np.int32), r"expected \(8, 4\)"),
        ("int_rows", "weight", np.zeros((64, 128), np.float32), "is f32 .*, expected 2 axes of I8"),
        (
            "nvfp4",
            "weight_scale",
            np.zeros((64, 8), np.uint8),
            "is U8 .* expected 2 axes of F8_E4M3",
        ),
        (
            "nvfp4",
            "weight_global_scale",
            np.zeros(2, np.float32),
            r"expected \(1,\)",
        ),
        ("mxfp4", "weight_scale", np.zeros((64, 8), np.uint8), r"has shape .*, expected \(64, 4\)"),
        ("fp8_blocks", "weight_scale_inv", np.ones((4, 3), np.float32), r"expected \(4, 4\)"),
        (
            "fp8_blocks",
            "weight",
            np.ones((64, 128), np.int8),
            "is I8 .*, expected 2 axes of F8",
        ),
        ("nf4", "weight.quant_map", None, f"no tensor {MODULE}.weight.quant_map; download"),
        ("nf4", STATE, _text("{"), "bitsandbytes does not describe a matrix; download it again"),
        (
            "nf4",
            STATE,
            _text('{"shape": [64, 128], "blocksize": 0}'),
            "sizes that are not int",
        ),
        ("nf4", STATE, _text('{"shape": [64, 64], "blocksize": 64}'), r"expected \(2048, 1\)"),
        (
            "nf4_double",
            "weight.absmax",
            np.ones(128, np.float32),
            "expected 1 axis of U8",
        ),
        ("llm_int8", "SCB", np.ones(63, np.float32), r"has shape \(63,\), expected \(64,\)"),
        ("gptq_4_desc_act", "g_idx", None, f"no tensor {MODULE}.g_idx; download the folder again"),
    ],
)
def test_a_damaged_tensor_is_refused(
    case: str, part: str, array: Array | None, message: str, tmp_path: Path
) -> None:
    folders = write_folders(CASES[case], tmp_path)
    change_tensors(folders, {f"{MODULE}.{part}": array})
    with pytest.raises(BadFile, match=f"^{folders.quantized}.*{message}"):
        open_weights(folders.quantized)


@pytest.mark.parametrize(
    ("case", "changes", "message"),
    [
        ("gptq_4", {"sym": True}, "has integers from -1. to 1., quantization_config says -8 to 7"),
        (
            "gptq_4_desc_act",
            {"desc_act": False},
            "g_idx of gptq has scattered groups, but desc_act",
        ),
    ],
)
def test_integers_that_are_not_as_the_settings_say_are_refused(
    case: str, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = write_folders(CASES[case], tmp_path).quantized
    change_settings(folder, changes)
    source = open_weights(folder)
    with pytest.raises(WeightsError, match=message):
        list(source.integer_blocks(f"{MODULE}.weight"))


def test_a_group_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    folders = write_folders(CASES["gptq_4_desc_act"], tmp_path)
    change_tensors(folders, {f"{MODULE}.g_idx": np.full(128, 4, np.int32)})
    with pytest.raises(BadFile, match="g_idx of gptq has groups that are not 0 to 3; download it"):
        list(open_weights(folders.quantized).blocks(f"{MODULE}.weight"))
