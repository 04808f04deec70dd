"""Record how some libraries store a matrix, in tests/golden/quantized/.

    python -m tests.golden.record_quantized_tensors

Recorded with torch 2.13.0, compressed-tensors 0.20.0, bitsandbytes 0.50.2, auto-round 0.16.1,
nvidia-modelopt 0.47.0 and transformers 5.24.0, which the tests do not need. A file has the tensors
of the module `layer`, and `expected`: f32, the values that the library computes from them. Its
metadata has `settings`, the quantization_config.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import bitsandbytes
import torch
from auto_round.export.export_to_awq.utils import WQLinear_GEMM, dequantize_gemm
from auto_round_extension.torch.qlinear_torch import QuantLinear as AsItIs
from auto_round_extension.torch.qlinear_torch_zp import QuantLinear as WithOneLess
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from modelopt.torch.quantization.qtensor import FP8QTensor, NVFP4QTensor
from safetensors.torch import save_file
from transformers.integrations.bitnet import pack_weights, unpack_weights

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


def auto_round(name: str, layer: Any, weight: torch.Tensor, settings: Any, zeros: Any) -> None:
    """Pack the matrix with a layer of AutoRound; what the layer computes of the unit vectors."""
    bits, linear = settings["bits"], torch.nn.Linear(*weight.shape[::-1], bias=False)
    linear.weight.data = weight
    packed = layer(bits, GROUP, *weight.shape[::-1], bias=False)
    packed.device = "cpu"
    packed.pack(linear, scales(weight, GROUP, (1 << bits - 1) - 1), zeros, device="cpu")
    stored = {f"layer.{part}": tensor for part, tensor in packed.state_dict().items()}
    expected = packed(torch.eye(COLUMNS)).T
    save(name, stored, expected, {"quant_method": "auto-round", "sym": False, **settings})


def save(
    name: str, tensors: dict[str, torch.Tensor], expected: torch.Tensor, settings: Any
) -> None:
    data = tensors | {"expected": expected.float()}
    contiguous = {key: tensor.contiguous() for key, tensor in data.items()}
    save_file(contiguous, FOLDER / f"{name}.safetensors", {"settings": json.dumps(settings)})


def auto_round_matrices() -> None:
    """In GPTQ's two ways of storing zeros, and in AWQ's."""
    weight = torch.randn(4 * ROWS, COLUMNS) / 8
    for bits in (2, 3, 4, 8):
        zeros = torch.randint(1, 1 << bits, (4 * ROWS, COLUMNS // GROUP)).float()
        for packing, layer in (("auto_round:auto_gptq", WithOneLess), ("auto_round", AsItIs)):
            name = f"{packing.replace(':', '-')}-{bits}"
            settings = {"bits": bits, "packing_format": packing}
            auto_round(name, layer, weight, settings, zeros)
    zeros = torch.randint(1, 16, (COLUMNS // GROUP, 4 * ROWS))
    linear = torch.nn.Linear(COLUMNS, 4 * ROWS, bias=False)
    linear.weight.data = weight
    layer = WQLinear_GEMM.from_linear(
        linear, 4, GROUP, scales=scales(weight, GROUP, 7).T, zeros=zeros, device="cpu"
    )
    expected = dequantize_gemm(layer.qweight, layer.qzeros, layer.scales, 4, GROUP).T
    stored = {f"layer.{part}": tensor for part, tensor in layer.state_dict().items()}
    settings = {"quant_method": "auto-round", "bits": 4, "packing_format": "auto_round:auto_awq"}
    save("auto_round-auto_awq-4", stored, expected, settings)


def modelopt(weight: torch.Tensor) -> None:
    """NVFP4, and FP8 with one scale, as the names of an exported checkpoint have them."""
    quantized, scale, factor = NVFP4QTensor.quantize(weight, 16)
    stored = {"weight": quantized._quantized_data, "weight_scale": scale, "weight_scale_2": factor}
    expected = quantized.dequantize(
        dtype=torch.float32, scale=scale, double_scale=factor, block_sizes={-1: 16}
    )
    settings = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
    save("modelopt-nvfp4", {f"layer.{part}": x for part, x in stored.items()}, expected, settings)
    scale = weight.abs().max() / 448
    quantized, _ = FP8QTensor.quantize(weight, scales=scale)
    expected = quantized.dequantize(dtype=torch.float32, scale=scale)
    stored = {"weight": quantized._quantized_data, "weight_scale": scale}
    settings = {"quant_method": "modelopt", "quant_algo": "FP8"}
    save("modelopt-fp8", {f"layer.{part}": x for part, x in stored.items()}, expected, settings)


def bitnet() -> None:
    """As transformers packs -1, 0 and 1, and the layers that multiply or divide by the scale."""
    ternary, scale = torch.randint(-1, 2, (ROWS, COLUMNS)), torch.tensor([1.75])
    packed = pack_weights(ternary.clone())
    for name, factor in (("autobitlinear", scale), ("bitlinear", 1 / scale)):
        expected = unpack_weights(packed, torch.float32) * factor
        settings = {"quant_method": "bitnet", "linear_class": name, "quantization_mode": "offline"}
        save(name, {"layer.weight": packed, "layer.weight_scale": scale}, expected, settings)


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
    auto_round_matrices()
    modelopt(weight)
    bitnet()


if __name__ == "__main__":
    main()
