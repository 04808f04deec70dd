"""ModelOpt (NVIDIA Model Optimizer): NVFP4, and FP8 with a scale of each matrix or row.

Source: the package nvidia-modelopt, `torch/export` and `torch/quantization/qtensor`. Each matrix
says by the type of its tensor how it is stored: a folder can hold both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearthd.baker.weights.quantized_folder.fp4 import nvfp4
from hearthd.baker.weights.quantized_folder.fp8 import float8
from hearthd.baker.weights.quantized_folder.quantized_matrix import Method, QuantizedMatrix
from hearthd.baker.weights.source import UnsupportedType

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hearthd.baker.weights.quantized_folder.quantized_matrix import StoredParts
    from hearthd.models.decoder.config.config_json import ConfigJson

_WEIGHT, _SCALE, _FACTOR = "weight", "weight_scale", "weight_scale_2"
_ALGORITHMS = ("NVFP4", "FP8", "FP8_PER_CHANNEL_PER_TOKEN", "MIXED_PRECISION")


def _matrix(parts: StoredParts, config: ConfigJson) -> QuantizedMatrix:
    algorithm = config.text("quant_algo", default="")
    if algorithm not in _ALGORITHMS:
        raise UnsupportedType(
            f"{parts.source.folder}: quant_algo of ModelOpt: got {algorithm!r:.80}, expected one "
            f"of {', '.join(_ALGORITHMS)}; use the unquantized folder or a GGUF file"
        )
    if parts.type(_WEIGHT) != "U8":
        return float8(parts, _SCALE, None, f"{parts.method} FP8")
    if parts.shape(_FACTOR, "f32") not in ((), (1,)):
        parts.require(_FACTOR, (1,), "f32")

    def half_of_scale() -> NDArray[np.float32]:
        factor = parts.read(_FACTOR).reshape(())
        return np.asarray(parts.read(_SCALE).astype(np.float32) * (factor / np.float32(2)))

    return nvfp4(parts, _WEIGHT, half_of_scale)


MODELOPT = Method(
    marks=(_SCALE,),
    parts=(_WEIGHT, _SCALE, _FACTOR, "input_scale", "output_scale"),
    matrix=_matrix,
    unused=(".k_scale", ".v_scale"),
)
