"""The C functions of models/dsl/kernels by name: each is a file, compiled with some macros."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hearthd.models.dsl.grids import SIGN_BYTES
from hearthd.models.dsl.matrix_format import GROUP, STORED
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hearthd.models.dsl.matrix_format import MatrixFormat

_Macros = dict[str, str]


@dataclass(frozen=True)
class KernelSource:
    """The source of a kernel.

    file    below models/dsl/kernels
    macros  and their values
    """

    file: str
    macros: Mapping[str, str] = field(default_factory=dict)


# A type of stored values: its C type, and the function that loads sixteen of them as f32.
_VALUES: Mapping[str, _Macros] = {
    "": {"Value": "float", "load_value": "load"},
    "_f16": {"Value": "_Float16", "load_value": "widen"},
    "_i8": {"Value": "int8_t", "load_value": "widen_i8"},
}
# The variants of attention, by how a cache stores keys and values.
_CACHES: Mapping[str, _Macros] = {
    **_VALUES,
    "_i8": _VALUES["_i8"] | {"SCALED": "1"},
    "_i4": {"Value": "int8_t", "PACKED": "1"},
}
# The C types of scales: uint8_t has exponents of two.
_SCALES = {DType.F16: "_Float16", DType.F32: "float", DType.I8: "uint8_t"}
# The kernels that have no macros, by their folders.
_PLAIN: Mapping[str, tuple[str, ...]] = {
    "": ("clamped_swiglu", "gated_heads", "squared_relu"),
    "cache/": (
        "rotate_heads", "write_f16_rows", "write_int8_rows", "write_packed_rows",
        "write_packed_scales", "write_row_scales",
    ),
    "lora/": ("lora_up_i8",),
    "norms/": ("add_norm", "gated_norm", "grouped_rms_norm", "norm_rope", "residual_norm", "rope"),
    "recurrent/": (
        "channel_delta_rule", "gated_delta_rule", "latest_inputs", "row_before", "selective_scan",
        "ssm_scan",
    ),
    "routing/": ("expert_sum", "top_indices"),
}  # fmt: skip
# The variants of a product, by the suffix of its name: with experts, or with terms of adapters.
_PRODUCTS: Mapping[str, _Macros] = {
    "linear_{}": {"ROUTED": "0", "ADAPTED": "0"},
    "routed_linear_{}": {"ROUTED": "1", "ADAPTED": "0"},
    "linear_{}_adapted": {"ROUTED": "0", "ADAPTED": "1"},
}
_FLOATS: Mapping[str, _Macros] = {
    "f32": {"WEIGHT": "float", "load_weights": "load", "f32_of": "(float)"},
    "bf16": {"WEIGHT": "uint16_t", "load_weights": "widen_bf16", "f32_of": "f32_of_bf16"},
}


def variant(name: str, activation_bits: int) -> str:
    """The name of the variant of a kernel that rounds activations to 16 or to 8 bits."""
    return f"{name}_a8" if activation_bits == 8 else name


def _format_macros(matrix_format: MatrixFormat) -> _Macros:
    """The macros that kernels/product/matrix.h describes."""
    planes = {
        f"PLANE{i}": f"{plane.start},{plane.bits},{plane.has_digits:d}"
        for i, plane in enumerate(matrix_format.planes)
    }
    values = ",".join(map(str, matrix_format.values))
    return {
        **_grid_macros(matrix_format),
        "BITS": str(matrix_format.operand_bits),
        "PLANES": str(len(matrix_format.planes)),
        **planes,
        "MISSING": str(matrix_format.missing),
        "ZERO": str(matrix_format.operand_zero),
        "VALUES": f"(const int8_t[]){{{values}}}" if values else "0",
        "HALVES": str(int(matrix_format.columns < GROUP)),
        "STEPS": str(matrix_format.steps),
        "SCALE": _SCALES[matrix_format.scale],
        "SUPER_GROUPS": str(matrix_format.super_block // GROUP),
        "MINIMUM": str(int(matrix_format.minimum)),
        "MULTIPLIER_BITS": str(matrix_format.multiplier_bits),
        "MULTIPLIER_FLOATS": str(int(matrix_format.multiplier_floats)),
    }


def _grid_macros(matrix_format: MatrixFormat) -> _Macros:
    """The macros of a format's grid, or of a format without a grid."""
    grid = matrix_format.grid
    if grid is None:
        return {"GRIDS": "0", "GRID": "{}", "EXTRA": "NONE"}
    count = matrix_format.integer_arrays - len(matrix_format.planes)
    fields = {
        "bytes": f"{grid.name}_bytes",
        "levels": f"{grid.name}_levels",
        "count": grid.count,
        "columns": grid.columns,
        "extra_bytes": grid.extra_bytes,
        "multiplier_bits": grid.multiplier_bits,
        "has_offsets": int(grid.offset is not None),
    }
    for name in ("upper", "multiplier", "offset"):
        bits = getattr(grid, name)
        if bits is not None:
            fields[name] = f"{{{bits.start},{bits.stride}}}"
    initializer = ",".join(f".{name}={value}" for name, value in fields.items())
    extra = "SIGNS" if grid.extra_bytes == SIGN_BYTES else "APART"
    return {"GRIDS": str(count), "GRID": f"{{{initializer}}}", "EXTRA": extra}


def _products(matrix_format: MatrixFormat) -> Iterator[tuple[str, str, _Macros]]:
    """The kernels of a format: products, lookups, and an output head in two parts."""
    table = matrix_format.table or matrix_format
    macros, table_macros = _format_macros(matrix_format), _format_macros(table)
    for name, product in _PRODUCTS.items():
        for bits in (16, 8):
            named = variant(name.format(matrix_format.symbol), bits)
            yield named, "product/linear.c", macros | product | {"ACTIVATION_BITS": str(bits)}
    for bits in (16, 8):
        bits_macros = macros | {"ACTIVATION_BITS": str(bits), "ROUNDED": "1"}
        rounded = variant(f"linear_{matrix_format.symbol}_rounded", bits)
        yield rounded, "product/linear_rounded.c", bits_macros
        rounding = variant(f"round_rows_{matrix_format.symbol}", bits)
        yield rounding, "product/round_rows.c", bits_macros
    yield f"embedding_{table.symbol}", "product/embedding.c", table_macros
    if table.split is not None:
        upper, lower = table.split.upper, table.split.lower
        yield f"linear_coarse_{upper.symbol}", "product/coarse.c", _format_macros(upper)
        both = f"linear_coarse_and_fine_{upper.symbol}"
        yield both, "product/coarse_and_fine.c", _format_macros(upper)
        for part, replaces in ((lower, "0"), (upper, "1")):
            part_macros = _format_macros(part) | {"REPLACES": replaces}
            yield f"linear_refined_{part.symbol}", "product/refined.c", part_macros


def _attention() -> Iterator[tuple[str, str, _Macros]]:
    """The kernels of attention, with sinks and without."""
    for suffix, macros in _CACHES.items():
        for name in ("attention_scores", "attention_mix", "attention_many"):
            yield f"{name}{suffix}", f"attention/{name}.c", macros
            yield f"{name}{suffix}_sinks", f"attention/{name}.c", macros | {"SINKS": "1"}
    for suffix in ("", "_f16"):
        for name in ("full_attention", "split_rows"):
            yield f"{name}{suffix}", f"attention/{name}.c", _VALUES[suffix]


def _floats() -> Iterator[tuple[str, str, _Macros]]:
    """The products with matrices of floats."""
    for dtype, macros in _FLOATS.items():
        yield f"routed_linear_{dtype}", "product/routed_floats.c", macros
        yield f"linear_{dtype}", "product/linear_floats.c", macros
    yield "linear_rounded_bf16", "product/linear_rounded_bf16.c", {}
    yield "linear_sketch", "product/linear_sketch.c", {"ACTIVATION_BITS": "8"}


def _sources() -> Iterator[tuple[str, str, _Macros]]:
    """The name, the file and the macros of each kernel."""
    for matrix_format in STORED:
        yield from _products(matrix_format)
    yield from _floats()
    yield from _attention()
    for suffix, macros in _VALUES.items():
        yield f"lora_down{suffix}", "lora/lora_down.c", macros
        if suffix != "_i8":
            yield f"lora_up{suffix}", "lora/lora_up.c", macros
    for activation in ("silu", "gelu_tanh"):
        yield f"gated_{activation}", "gated.c", {"ACTIVATION": activation}
    for suffix, biased in (("", "0"), ("_bias", "1")):
        yield f"causal_conv{suffix}", "recurrent/causal_conv.c", {"BIASED": biased}
    for suffix, scaled in (("", "0"), ("_scaled", "1")):
        yield f"expert_factors{suffix}", "routing/expert_factors.c", {"SCALED": scaled}
    for folder, names in _PLAIN.items():
        yield from ((name, f"{folder}{name}.c", {}) for name in names)


# By the name of a C function without `hearth_`, which the macro NAME has in full.
KERNELS: Mapping[str, KernelSource] = {
    name: KernelSource(file, {"NAME": f"hearth_{name}", **macros} if macros else {})
    for name, file, macros in _sources()
}
