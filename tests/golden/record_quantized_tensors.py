"""Record how compressed-tensors and bitsandbytes store a matrix, in tests/golden/quantized/.

    python -m tests.golden.record_quantized_tensors

Recorded with torch 2.13.0, compressed-tensors 0.20.0 and bitsandbytes 0.50.2, which the tests do
not need. A file has the tensors of the module `layer`, and `expected`: f32, the values that the
library computes from them. Its metadata has `settings`, the quantization_config.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import bitsandbytes
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.torch import save_file

FOLDER = Path(__file__).parent / "quantized"
ROWS, COLUMNS, GROUP = 16, 64, 32


def scales(weight: torch.Tensor, group: int, largest: float) -> torch.Tensor:
    """bf16 (N, K / group)."""
    by_group = weight.reshape(len(weight), -1, group).abs().amax(2) / largest
    return by_group.to(torch.bfloat16).float()


def compressed(form: str, weight: torch.Tensor, scheme: Any, **parts: torch.Tensor) -> None:
    """Compress the matrix with a format, and decompress it."""
    compressor = BaseCompressor.get_value_from_registry(form)
    quantization = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**scheme))
    stored = compressor.compress({"weight": weight, **parts}, quantization)
    expected = compressor.decompress(dict(stored), quantization)["weight"]
    name = f"{form}-{scheme['num_bits']}" + "-asymmetric" * (not scheme.get("symmetric", True))
    groups = {"group_0": {"targets": ["Linear"], "weights": scheme}}
    settings = {"quant_method": "compressed-tensors", "format": form, "config_groups": groups}
    save(name, {f"layer.{part}": tensor for part, tensor in stored.items()}, expected, settings)


def four_bits(weight: torch.Tensor, kind: str, double: bool) -> None:
    """Quantize the matrix with bitsandbytes, and dequantize it."""
    functional = bitsandbytes.functional
    packed, state = functional.quantize_4bit(
        weight, blocksize=64, compress_statistics=double, quant_type=kind
    )
    tensors = {f"layer.weight.{part}": x for part, x in state.as_dict(packed=True).items()}
    expected = functional.dequantize_4bit(packed, state)
    settings = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    save(f"{kind}{'-double' * double}", tensors | {"layer.weight": packed}, expected, settings)


def save(
    name: str, tensors: dict[str, torch.Tensor], expected: torch.Tensor, settings: Any
) -> None:
    data = tensors | {"expected": expected.float()}
    contiguous = {key: tensor.contiguous() for key, tensor in data.items()}
    save_file(contiguous, FOLDER / f"{name}.safetensors", {"settings": json.dumps(settings)})


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    torch.manual_seed(0)
    weight = torch.randn(ROWS, COLUMNS) / 8
    by_group = {"type": "int", "strategy": "group", "group_size": GROUP}
    for bits in (4, 8):
        half = 1 << bits - 1
        scale = scales(weight, GROUP, half - 1)
        compressed("pack-quantized", weight, by_group | {"num_bits": bits}, weight_scale=scale)
        zero = torch.randint(-half, half, scale.shape).to(torch.int8)
        compressed(
            "pack-quantized",
            weight,
            by_group | {"num_bits": bits, "symmetric": False},
            weight_scale=scale,
            weight_zero_point=zero,
        )
    rows = {"num_bits": 8, "strategy": "channel"}
    compressed(
        "int-quantized", weight, rows | {"type": "int"}, weight_scale=scales(weight, COLUMNS, 127)
    )
    compressed(
        "float-quantized",
        weight,
        rows | {"type": "float"},
        weight_scale=scales(weight, COLUMNS, 448),
    )
    nv = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
    factor = 448 * 6 / weight.abs().max()
    scale = (scales(weight, 16, 6) * factor).to(torch.float8_e4m3fn).float()
    compressed(
        "nvfp4-pack-quantized",
        weight,
        nv,
        weight_scale=scale,
        weight_global_scale=factor.reshape(1),
    )
    mx = {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32}
    powers = 2.0 ** torch.ceil(torch.log2(scales(weight, 32, 6)))
    compressed("mxfp4-pack-quantized", weight, mx, weight_scale=powers)
    for kind in ("nf4", "fp4"):
        for double in (False, True):
            four_bits(weight, kind, double)


if __name__ == "__main__":
    main()
