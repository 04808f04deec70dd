"""The kernels for ARM, on CPUs that QEMU emulates, give the bits that this machine's give.

At night: compiling them takes longer than any other test. Run it after a change of a kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.models.dsl.composite import Fused
from hearthd.models.dsl.matrix_format import INT6_SUPER, INT8_HALVES, INT12
from hearthd.models.dsl.matrix_packing import pack
from hearthd.models.dsl.ops import REGISTRY
from hearthd.models.dsl.types import DType, TensorType
from tests.models.kernels.emulated_kernels import (
    EMULATED,
    QEMU,
    build_program,
    emulated,
)
from tests.models.kernels.kernel_library import ALL_FORMATS, kernel_names
from tests.models.kernels.test_kernel_calls import compute_calls
from tools.fuzz.guided.call_values import Call
from tools.fuzz.guided.coverage_inputs import kept_calls
from tools.fuzz.guided.kernel_calls import call_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.models.dsl.matrix_format import MatrixFormat
    from tests.models.kernels.emulated_kernels import EmulatedKernels
    from tests.models.kernels.kernel_library import BuiltKernels, Kernels

    Array = NDArray[Any]


pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module", params=EMULATED)
def instructions(request: pytest.FixtureRequest) -> str:
    """An instruction set."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def names() -> list[str]:
    """The kernels of a program."""
    return kernel_names(whole=True)


@pytest.fixture(scope="module")
def program(instructions: str, names: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernels for an instruction set; they need nothing else to be linked."""
    return build_program(instructions, tmp_path_factory.mktemp("emulated"), names)


@pytest.fixture(scope="module")
def arm(program: Path, names: list[str]) -> Iterator[EmulatedKernels]:
    if QEMU is None:
        pytest.skip("no qemu-aarch64-static: Debian's package is qemu-user-static")
    with emulated(program, names, EMULATED[program.name][1]) as kernels:
        yield kernels


@pytest.fixture(scope="module")
def here(built: BuiltKernels) -> Kernels:
    """Without tiles, which add products of bf16 in another order."""
    return built["avx2"]


def compute(kernels: Kernels, call: Call) -> Array:
    types = tuple(TensorType(array.shape, DType.of(array.dtype)) for array in call.inputs)
    op = REGISTRY[call.op]
    assert isinstance(op, Fused)
    result = op.infer(types, call.attrs)
    inputs = tuple(map(finite, call.inputs))
    out = np.full(result.shape, 1, result.dtype.numpy)
    return kernels(call.op, inputs, out, **call.attrs)


def finite(array: Array) -> Array:
    """The array, with 1 for NaN and infinities in f32: what integer they round to may differ."""
    if array.dtype != np.float32:
        return np.ascontiguousarray(array)
    return np.where(np.isfinite(array), array, np.float32(1))


def check(arm: Kernels, here: Kernels, call: Call) -> None:
    """Both results have the same bits, except in NaN."""
    actual, expected = compute(arm, call), compute(here, call)
    if actual.dtype.kind == "f":
        numbers = ~np.isnan(expected)
        assert np.array_equal(numbers, ~np.isnan(actual)), call.op
        actual, expected = (x[numbers].view(f"i{x.itemsize}") for x in (actual, expected))
    assert np.array_equal(actual, expected), call.op


def test_a_program_is_for_its_instructions(program: Path, arm: EmulatedKernels) -> None:
    assert arm.instructions == program.name


def test_calls_of_every_kernel_have_the_bits_of_this_machine(
    arm: EmulatedKernels, here: Kernels
) -> None:
    compute_calls(lambda data: check(arm, here, call_of(data)))
    for line in kept_calls().read_text("ascii").splitlines():
        check(arm, here, call_of(bytes.fromhex(line)))


# --- the largest sums: all activations of a group, and its weights, are extreme

_SIGNS = np.where(np.random.default_rng(0).integers(0, 2, 64), 1.0, -1.0)
# Activations whose parts are all 127, with the signs of the weights, and of any size.
_EXTREME = np.stack(
    [np.ones(64), -np.ones(64), _SIGNS, _SIGNS * (1 - 1 / 510), -_SIGNS * (1 - 1 / 510)]
).astype(np.float32)


@pytest.mark.parametrize("byte", [0x88, 0x77, 0x78, 0x00, 0xFF])
@pytest.mark.parametrize("form", [INT6_SUPER, INT8_HALVES, INT12], ids=lambda form: form.name)
def test_the_largest_products_of_a_head_in_two_parts_fit(
    arm: EmulatedKernels, here: Kernels, form: MatrixFormat, byte: int
) -> None:
    split, rows = form.split, len(_EXTREME)
    assert split is not None
    for part in (split.upper, split.lower):
        arrays = [
            np.full(array.shape, value).astype(array.dtype.numpy)
            for array, value in zip(part.arrays(16, 64).values(), (byte, 0.01, 127), strict=False)
        ]
        attrs: dict[str, Any] = {"matrix_format": part.name}
        for flag in (0, 1) if part is split.upper else ():
            flags = np.full(rows, flag, np.int32)
            check(arm, here, Call("linear_coarse", [_EXTREME, flags, *arrays], attrs))
            few, fine = [_EXTREME[4:], flags[4:], *arrays], {"fine": True}
            check(arm, here, Call("linear_coarse", few, attrs | fine))
        coarse, threshold = np.zeros((rows, 16), np.float32), np.full(rows, -1, np.float32)
        inputs: list[Array] = [coarse, _EXTREME, threshold, *arrays]
        more = {"replaces": True} if part is split.upper else {"step": split.step}
        check(arm, here, Call("linear_refined", inputs, attrs | more))


@pytest.mark.parametrize("form", ALL_FORMATS)
@pytest.mark.parametrize("activation_bits", [16, 8])
def test_the_largest_products_fit(
    arm: EmulatedKernels, here: Kernels, form: MatrixFormat, activation_bits: int
) -> None:
    smallest, largest = form.range
    dtype = np.int16 if form.bits > 8 else np.int8 if form.signed else np.uint8
    integers = np.full((16, 64), largest, dtype)
    integers[4:8] = smallest
    integers[8:] = np.where(_SIGNS > 0, largest, smallest)
    if form.grid is not None:
        integers = form.grid.sample(np.random.default_rng(0), 16, 64)
    scale = np.full((16, form.arrays(16, 64)["scale"].shape[1]), 0.01, np.float16)
    stored_scale = np.full(scale.shape, 120 if form.exponents else 0.01, form.scale.numpy)
    multipliers = np.full((16, 64 // form.columns, 1 + form.minimum), 15, np.int8)
    arrays = pack(
        form,
        integers,
        stored_scale,
        scale if form.minimum else None,
        multipliers if form.has_multipliers else None,
    )
    attrs = {"matrix_format": form.name, "activation_bits": activation_bits}
    check(arm, here, Call("linear_quantized", [_EXTREME, *arrays], attrs))
