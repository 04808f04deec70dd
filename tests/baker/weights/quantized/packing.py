"""Random matrices as tools for quantization store them, and their values by the formulas.

Written from the published formats (AutoAWQ, AutoGPTQ, compressed-tensors, bitsandbytes, MLX), with
no code of Hearth. `K` inputs are columns, `N` outputs are rows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Array = NDArray[Any]

GROUP = 32
BLOCK = 24, 48  # divides no extent of the matrices
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


@dataclass(frozen=True, kw_only=True)
class Packed:
    """The stored tensors of a matrix, by the last parts of their names, and its values."""

    tensors: dict[str, Array]
    values: Array


def scales(rng: np.random.Generator, bits: int, *shape: int) -> Array:
    """Scales that make weights of `bits` bits about as large as a model's."""
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


def float_8(
    scale_name: str, *, rows_of_a_scale: int | None = 1, columns_of_a_scale: int | None = None
) -> Callable[[np.random.Generator, int, int], Packed]:
    """`None` stands for all rows or columns."""

    def pack(rng: np.random.Generator, rows: int, columns: int) -> Packed:
        weight = rng.normal(size=(rows, columns), scale=30).astype(ml_dtypes.float8_e4m3fn)
        height, width = rows_of_a_scale or rows, columns_of_a_scale or columns
        blocks = -(-rows // height), -(-columns // width)
        scale = rng.uniform(0.002, 0.006, blocks).astype(ml_dtypes.bfloat16)
        factor = np.repeat(np.repeat(scale.astype(np.float32), height, 0), width, 1)
        stored = scale.reshape(1) if rows_of_a_scale is None else scale
        return Packed(
            tensors={"weight": weight, scale_name: stored},
            values=weight.astype(np.float32) * factor[:rows, :columns],
        )

    return pack


E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def float_4(group: int) -> Callable[[np.random.Generator, int, int], Packed]:
    """NVFP4 has groups of 16, MXFP4 of 32."""

    def pack(rng: np.random.Generator, rows: int, columns: int) -> Packed:
        codes = rng.integers(0, 16, (rows, columns)).astype(np.uint8)
        numbers = np.where(codes & 8, -1.0, 1.0) * np.array(E2M1)[codes & 7]
        shape = rows, columns // group
        tensors: dict[str, Array] = {"weight_packed": codes[:, ::2] | codes[:, 1::2] << 4}
        if group == 32:
            exponent = rng.integers(119, 125, shape).astype(np.uint8)
            tensors["weight_scale"], scale = exponent, 2.0 ** (exponent.astype(np.int64) - 127)
        else:
            # A power of two, so that products with scales of four bits are exact in f16.
            tensors["weight_global_scale"] = np.array([4096.0], np.float32)
            stored = rng.uniform(50, 400, shape).astype(ml_dtypes.float8_e4m3fn)
            tensors["weight_scale"], scale = stored, stored.astype(np.float64) / 4096
        values = numbers * np.repeat(scale, group, axis=1)
        return Packed(tensors=tensors, values=values.astype(np.float32))

    return pack


def modelopt(rng: np.random.Generator, rows: int, columns: int) -> Packed:
    """NVFP4 with a factor in place of a divisor."""
    packed = float_4(16)(rng, rows, columns)
    stored = packed.tensors
    tensors = {
        "weight": stored["weight_packed"],
        "weight_scale": stored["weight_scale"],
        "weight_scale_2": np.array(1 / stored["weight_global_scale"][0]),
    }
    return Packed(tensors=tensors, values=packed.values)


NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
)  # fmt: skip


def nf4(
    *, double: bool = False, block: int = 64
) -> Callable[[np.random.Generator, int, int], Packed]:
    def pack(rng: np.random.Generator, rows: int, columns: int) -> Packed:
        codes = rng.integers(0, 16, rows * columns).astype(np.uint8)
        count, state = -(-len(codes) // block), {"quant_type": "nf4", "dtype": "bfloat16"}
        absmax = rng.uniform(0.1, 0.4, count).astype(np.float32)
        tensors = {
            "weight": (codes[::2] << 4 | codes[1::2]).reshape(-1, 1),
            "weight.quant_map": np.array(NF4, np.float32),
            "weight.absmax": absmax,
        }
        described: dict[str, Any] = state | {"blocksize": block, "shape": [rows, columns]}
        if double:
            quantized = rng.integers(0, 256, count).astype(np.uint8)
            inner = np.sort(rng.uniform(-1, 1, 256)).astype(np.float32)
            outer = rng.uniform(0.05, 0.1, -(-count // 256)).astype(np.float32)
            described |= {"nested_blocksize": 256, "nested_dtype": "float32"}
            described |= {"nested_offset": 0.25}
            tensors |= {
                "weight.absmax": quantized,
                "weight.nested_absmax": outer,
                "weight.nested_quant_map": inner,
            }
            absmax = inner[quantized] * np.repeat(outer, 256)[:count] + np.float32(0.25)
        text = np.frombuffer(json.dumps(described).encode(), np.uint8)
        tensors["weight.quant_state.bitsandbytes__nf4"] = text
        values = np.array(NF4, np.float32)[codes] * np.repeat(absmax, block)[: len(codes)]
        return Packed(tensors=tensors, values=values.reshape(rows, columns))

    return pack


def llm_int8(rng: np.random.Generator, rows: int, columns: int) -> Packed:
    weight = rng.integers(-127, 128, (rows, columns)).astype(np.int8)
    scb = (127 * scales(rng, 8, rows).astype(np.float32)).astype(np.float32)
    return Packed(
        tensors={"weight": weight, "SCB": scb, "weight_format": np.array(0, np.uint8)},
        values=weight.astype(np.float32) * (scb / np.float32(127))[:, np.newaxis],
    )


def bitnet(*, divides: bool = False) -> Callable[[np.random.Generator, int, int], Packed]:
    """Four rows in a byte: the first quarter of the rows in the lowest bits."""

    def pack(rng: np.random.Generator, rows: int, columns: int) -> Packed:
        digits = rng.integers(0, 3, (rows, columns)).astype(np.uint8)
        packed = np.zeros((rows // 4, columns), np.uint8)
        for quarter, some in enumerate(np.split(digits, 4)):
            packed |= some << 2 * quarter
        stored = np.array([8.0 if divides else 0.125], np.float16)
        numbers = digits.astype(np.float32) - 1
        return Packed(
            tensors={"weight": packed, "weight_scale": stored}, values=numbers * np.float32(0.125)
        )

    return pack


def mlx(bits: int) -> Callable[[np.random.Generator, int, int], Packed]:
    def pack(rng: np.random.Generator, rows: int, columns: int) -> Packed:
        groups = columns // GROUP
        q = rng.integers(0, 1 << bits, (rows, columns))
        scale = scales(rng, bits, rows, groups).astype(ml_dtypes.bfloat16)
        bias = rng.normal(0, 0.1, (rows, groups)).astype(ml_dtypes.bfloat16)
        text = [sum(int(n) << bits * i for i, n in enumerate(row)) for row in q]
        words = [row.to_bytes(columns * bits // 8, "little") for row in text]
        grouped = q.reshape(rows, groups, GROUP).astype(np.float32)
        values = grouped * scale.astype(np.float32)[..., None]
        return Packed(
            tensors={
                "weight": np.frombuffer(b"".join(words), "<u4").reshape(rows, -1),
                "scales": scale,
                "biases": bias,
            },
            values=(values + bias.astype(np.float32)[..., None]).reshape(rows, columns),
        )

    return pack
