"""The ways to store matrices that the tests of quantized folders have: see packing.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.baker.weights.quantized.packing import (
    BLOCK,
    GROUP,
    awq,
    bitnet,
    float_4,
    float_8,
    gptq,
    int_quantized,
    llm_int8,
    mlx,
    modelopt,
    nf4,
    pack_quantized,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np

    from tests.baker.weights.quantized.packing import Packed


@dataclass(frozen=True, kw_only=True)
class Case:
    """A way to store matrices.

    settings  the quantization_config
    type      as Hearth names it
    storage   that holds the integers, if one does
    pack      a random matrix (N, K)
    """

    settings: dict[str, Any]
    type: str
    storage: str | None
    pack: Callable[[np.random.Generator, int, int], Packed]


def _gptq_case(bits: int, storage: str | None, *, symmetric: bool, **options: Any) -> Case:
    scattered = options.get("scattered", False)
    settings = {"quant_method": "gptq", "bits": bits, "group_size": GROUP, "sym": symmetric}
    settings["desc_act"] = scattered
    if options.get("stored_less") == 0:
        settings["checkpoint_format"] = "gptq_v2"
    return Case(
        settings=settings,
        type=f"GPTQ int{bits}" + " desc_act" * scattered,
        storage=storage,
        pack=gptq(bits, symmetric=symmetric, **options),
    )


def compressed(
    form: str, bits: int, storage: str | None, pack: Callable[..., Packed], type_: str = ""
) -> Case:
    weights: dict[str, Any] = {"num_bits": bits}
    if form == "float-quantized-blocks":
        weights["block_structure"] = list(BLOCK)
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    settings = {"quant_method": "compressed-tensors", "format": form, "config_groups": groups}
    name = f"compressed-tensors {type_ or f'int{bits}'}"
    return Case(settings=settings, type=name, storage=storage, pack=pack)


_NF4 = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
_PACK = "pack-quantized"
_AWQ = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm"}
CASES: Mapping[str, Case] = {
    "awq": Case(settings=_AWQ, type="AWQ int4", storage="int5-g32", pack=awq),
    "gptq_4_symmetric": _gptq_case(4, "int4-g32", symmetric=True),
    "gptq_4": _gptq_case(4, "int5-g32", symmetric=False),
    "gptq_4_v2": _gptq_case(4, "int5-g32", symmetric=False, stored_less=0),
    "gptq_4_desc_act": _gptq_case(4, None, symmetric=True, scattered=True),
    "gptq_2": _gptq_case(2, "int4-g32", symmetric=False),
    "gptq_3": _gptq_case(3, "int4-g32", symmetric=False),
    "gptq_8_symmetric": _gptq_case(8, "int8-g32", symmetric=True),
    "gptq_8": _gptq_case(8, None, symmetric=False),
    "packed_4_symmetric": compressed(_PACK, 4, "int4-g32", pack_quantized(4, symmetric=True)),
    "packed_4": compressed(_PACK, 4, "int5-g32", pack_quantized(4, symmetric=False)),
    "packed_4_rows": compressed(
        _PACK, 4, "int4-g32", pack_quantized(4, symmetric=True, group=1 << 20)
    ),
    "packed_4_g16": compressed(_PACK, 4, "int5-g16", pack_quantized(4, symmetric=True, group=16)),
    "packed_8_symmetric": compressed(_PACK, 8, "int8-g32", pack_quantized(8, symmetric=True)),
    "packed_8": compressed(_PACK, 8, None, pack_quantized(8, symmetric=False)),
    "packed_4_actorder": compressed(
        _PACK, 4, None, pack_quantized(4, symmetric=True, scattered=True), "int4 actorder"
    ),
    "int_rows": compressed("int-quantized", 8, "int8-g32", int_quantized()),
    "int_tensor": compressed("int-quantized", 8, "int8-g32", int_quantized(per_tensor=True)),
    "int_asymmetric": compressed("int-quantized", 8, None, int_quantized(symmetric=False)),
    "float_rows": compressed("float-quantized", 8, None, float_8("weight_scale"), "FP8"),
    "float_tensor": compressed(
        "float-quantized", 8, None, float_8("weight_scale", rows_of_a_scale=None), "FP8"
    ),
    "float_blocks": compressed(
        "float-quantized-blocks",
        8,
        None,
        float_8("weight_scale", rows_of_a_scale=24, columns_of_a_scale=48),
        "FP8",
    ),
    "nvfp4": compressed("nvfp4-pack-quantized", 4, "int5-g16", float_4(16), "NVFP4"),
    "mxfp4": compressed("mxfp4-pack-quantized", 4, "mxfp4-g32", float_4(32), "MXFP4"),
    "modelopt": Case(
        settings={"quant_method": "modelopt", "quant_algo": "NVFP4"},
        type="modelopt NVFP4",
        storage="int5-g16",
        pack=modelopt,
    ),
    "fp8_blocks": Case(
        settings={"quant_method": "fp8", "weight_block_size": [16, 32]},
        type="FP8",
        storage=None,
        pack=float_8("weight_scale_inv", rows_of_a_scale=16, columns_of_a_scale=32),
    ),
    "fp8_tensor": Case(
        settings={"quant_method": "fp8", "weight_block_size": None},
        type="FP8",
        storage=None,
        pack=float_8("weight_scale_inv", rows_of_a_scale=None),
    ),
    "nf4": Case(settings=_NF4, type="bitsandbytes nf4", storage=None, pack=nf4()),
    "nf4_double": Case(settings=_NF4, type="bitsandbytes nf4", storage=None, pack=nf4(double=True)),
    "nf4_blocks_across_rows": Case(
        settings={"load_in_4bit": True}, type="bitsandbytes nf4", storage=None, pack=nf4(block=256)
    ),
    "bitnet": Case(
        settings={"quant_method": "bitnet", "linear_class": "autobitlinear"},
        type="BitNet ternary",
        storage="int2-g64",
        pack=bitnet(),
    ),
    "bitnet_divides": Case(
        settings={"quant_method": "bitnet"},
        type="BitNet ternary",
        storage="int2-g64",
        pack=bitnet(divides=True),
    ),
    **{
        f"mlx_{bits}": Case(
            settings={"group_size": GROUP, "bits": bits},
            type=f"MLX int{bits}",
            storage=None,
            pack=mlx(bits),
        )
        for bits in (3, 4, 8)
    },
    "llm_int8": Case(
        settings={"quant_method": "bitsandbytes", "load_in_8bit": True},
        type="bitsandbytes int8",
        storage="int8-g32",
        pack=llm_int8,
    ),
}
