"""Random matrices as tools for quantization store them, and their values by the formulas.

Written from the published formats (AutoAWQ, AutoGPTQ, compressed-tensors, bitsandbytes), with no
code of Hearth. `K` inputs are columns, `N` outputs are rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Array = NDArray[Any]

GROUP = 32
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


@dataclass(frozen=True, kw_only=True)
class Packed:
    """The stored tensors of a matrix, by the last parts of their names, and its values."""

    tensors: dict[str, Array]
    values: Array


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


def scales(rng: np.random.Generator, bits: int, *shape: int) -> Array:
    """Scales with which weights of `bits` bits are about as large as those of a model."""
    return (rng.uniform(0.2, 0.4, shape) / (1 << bits)).astype(np.float16)


def scaled(integers: Array, zeros: Array | int, scale: Array, group: int = GROUP) -> Array:
    """(q - z) s, f32: integers (N, K), zeros and scales (N, K / group)."""
    if not isinstance(zeros, int):
        zeros = np.repeat(zeros, group, axis=1)
    factor = np.repeat(scale.astype(np.float32), group, axis=1)
    return (integers - zeros).astype(np.float32) * factor


def into_words(integers: Array, bits: int) -> Array:
    """(R, C) into i32 (R, C bits / 32): the first integer in the lowest bits."""
    count = 32 // bits
    words = np.zeros((len(integers), integers.shape[1] // count), np.uint32)
    for i in range(integers.shape[1]):
        words[:, i // count] |= integers[:, i].astype(np.uint32) << np.uint32(bits * (i % count))
    return words.view(np.int32)


def three_bits_into_words(integers: Array) -> Array:
    """(R, C) into i32 (R, 3 C / 32), as AutoGPTQ packs 32 integers into three words."""
    words = np.zeros((len(integers), integers.shape[1] * 3 // 32), np.uint32)
    of_32 = integers.astype(np.uint32).reshape(len(integers), -1, 32)
    for block in range(of_32.shape[1]):
        q, word = of_32[:, block], 3 * block
        for i in range(10):
            words[:, word] |= q[:, i] << np.uint32(3 * i)
            words[:, word + 1] |= q[:, 11 + i] << np.uint32(3 * i + 1)
            words[:, word + 2] |= q[:, 22 + i] << np.uint32(3 * i + 2)
        words[:, word] |= q[:, 10] << np.uint32(30)
        words[:, word + 1] |= q[:, 10] >> np.uint32(2) & np.uint32(1)
        words[:, word + 1] |= q[:, 21] << np.uint32(31)
        words[:, word + 2] |= q[:, 21] >> np.uint32(1) & np.uint32(3)
    return words.view(np.int32)


def awq(rng: np.random.Generator, rows: int, columns: int) -> Packed:
    groups = columns // GROUP
    q, z = rng.integers(0, 16, (rows, columns)), rng.integers(0, 16, (rows, groups))
    q[0, 0], z[0, 0], q[1, 0], z[1, 0] = 0, 15, 15, 0  # the ends of q - z
    scale = scales(rng, 4, rows, groups)
    order = np.arange(rows).reshape(-1, 8)[:, AWQ_ORDER].reshape(-1)
    return Packed(
        tensors={
            "qweight": into_words(q.T[:, order], 4),
            "qzeros": into_words(z.T[:, order], 4),
            "scales": np.ascontiguousarray(scale.T),
        },
        values=scaled(q, z, scale),
    )


def gptq(
    bits: int, *, symmetric: bool, scattered: bool = False, stored_less: int = 1
) -> Callable[[np.random.Generator, int, int], Packed]:
    """`stored_less` is what the stored zeros are smaller by: 1, in gptq_v2 0."""
    words = three_bits_into_words if bits == 3 else lambda integers: into_words(integers, bits)

    def pack(rng: np.random.Generator, rows: int, columns: int) -> Packed:
        groups, top = columns // GROUP, 1 << bits
        q = rng.integers(0, top, (rows, columns))
        z = rng.integers(stored_less, top + stored_less, (rows, groups))
        q[0, 0], z[0, 0] = 0, top - 1 + stored_less
        q[1, 0], z[1, 0] = top - 1, stored_less
        if symmetric:
            z[:] = top // 2
        scale, group_of = scales(rng, bits, rows, groups), np.arange(columns) // GROUP
        if scattered:
            group_of = rng.permutation(group_of)
        factor = scale.astype(np.float32)[:, group_of]
        return Packed(
            tensors={
                "qweight": np.ascontiguousarray(words(q).T),
                "qzeros": words(z.T - stored_less),
                "scales": np.ascontiguousarray(scale.T),
                "g_idx": group_of.astype(np.int32),
            },
            values=(q - z[:, group_of]).astype(np.float32) * factor,
        )

    return pack


def pack_quantized(
    bits: int, *, symmetric: bool, scattered: bool = False, group: int = GROUP
) -> Callable[[np.random.Generator, int, int], Packed]:
    def pack(rng: np.random.Generator, rows: int, columns: int) -> Packed:
        each = min(group, columns)
        groups, half = columns // each, 1 << bits - 1
        q = rng.integers(-half, half, (rows, columns))
        z = (
            np.zeros((rows, groups), np.int64)
            if symmetric
            else rng.integers(-half, half, (rows, groups))
        )
        q[0, 0] = -half
        scale, group_of = scales(rng, bits, rows, groups), np.arange(columns) // each
        scale = scale.astype(ml_dtypes.bfloat16)
        if scattered:
            group_of = rng.permutation(group_of)
        tensors: dict[str, Array] = {
            "weight_packed": into_words(q + half, bits),
            "weight_scale": scale,
            "weight_shape": np.array([rows, columns]),
        }
        if not symmetric:
            tensors["weight_zero_point"] = np.ascontiguousarray(into_words(z.T + half, bits).T)
        if scattered:
            tensors["weight_g_idx"] = group_of.astype(np.int32)
        factor = scale.astype(np.float32)[:, group_of]
        return Packed(tensors=tensors, values=(q - z[:, group_of]).astype(np.float32) * factor)

    return pack


def int_quantized(
    *, symmetric: bool = True, per_tensor: bool = False
) -> Callable[[np.random.Generator, int, int], Packed]:
    def pack(rng: np.random.Generator, rows: int, columns: int) -> Packed:
        q = rng.integers(-128, 128, (rows, columns))
        z = np.zeros((rows, 1), np.int64) if symmetric else rng.integers(-128, 128, (rows, 1))
        scale = scales(rng, 8, 1) if per_tensor else scales(rng, 8, rows, 1)
        tensors = {"weight": q.astype(np.int8), "weight_scale": scale}
        if not symmetric:
            tensors["weight_zero_point"] = z.astype(np.int8)
        values = (q - z).astype(np.float32) * scale.astype(np.float32)
        return Packed(tensors=tensors, values=values)

    return pack


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
    weights = {"num_bits": bits, "type": "int"}
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    settings = {"quant_method": "compressed-tensors", "format": form, "config_groups": groups}
    name = f"compressed-tensors {type_ or f'int{bits}'}"
    return Case(settings=settings, type=name, storage=storage, pack=pack)


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
    "packed_4_g16": compressed(_PACK, 4, "int6-g16", pack_quantized(4, symmetric=True, group=16)),
    "packed_8_symmetric": compressed(_PACK, 8, "int8-g32", pack_quantized(8, symmetric=True)),
    "packed_8": compressed(_PACK, 8, None, pack_quantized(8, symmetric=False)),
    "packed_4_actorder": compressed(
        _PACK, 4, None, pack_quantized(4, symmetric=True, scattered=True), "int4 actorder"
    ),
    "int_rows": compressed("int-quantized", 8, "int8-g32", int_quantized()),
    "int_tensor": compressed("int-quantized", 8, "int8-g32", int_quantized(per_tensor=True)),
    "int_asymmetric": compressed("int-quantized", 8, None, int_quantized(symmetric=False)),
}
