"""`--precision auto`: which precision is taken, and that what is measured of one is true."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import ml_dtypes
import numpy as np
import pytest

from hearthd.baker.atomic_folder import BakeError
from hearthd.baker.precision.auto_precision import by_speed, choose
from hearthd.baker.precision.kl_from_f32 import Divergence, Meter
from hearthd.baker.weights.source import UnsupportedType
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.families import gemma3
from hearthd.models.families.gemma3 import Gemma3
from hearthd.models.precision import PRECISIONS
from tests.models.families.gemma3.gemma3_cases import GROUPED, TOKENS
from tests.models.families.gemma3.gemma3_reference import forward

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.baker.weights.source import IntegerBlock
    from hearthd.bundle import TriedPrecision

    Array = NDArray[Any]

# What was found of the 270m, about.
KL = {"native": 1e-4, "int8-g32": 4e-4, "int12-g32": 9e-5, "bf16": 7e-5, "f32": 0.0}
NOT_QUANTIZED = {"native": "stores these weights as int8-g32"}
ODD = NOT_QUANTIZED | dict.fromkeys(
    ("int8-g32", "int12-g32"), "a matrix in groups has a multiple of 16 rows"
)
UP_TO_BF16 = ["native", "int8-g32", "int12-g32", "bf16"]
LARGE = {"bf16": "needs 900 MB", "f32": "needs 1500 MB"}


def tried(
    instructions: str, max_kl: float, obstacles: dict[str, str], kl: dict[str, float] = KL
) -> tuple[tuple[TriedPrecision, ...], list[str]]:
    """What was tried, and what of it was measured."""
    measured: list[str] = []

    def divergence(precision: str) -> Divergence:
        measured.append(precision)
        return Divergence(mean=kl[precision], positions=64)

    order = by_speed(instructions)
    assert sorted(order) == sorted(n for n, one in PRECISIONS.items() if not one.calibrated)
    attempts = choose(order, max_kl=max_kl, obstacle=obstacles.get, divergence=divergence)
    return attempts, measured


@pytest.mark.parametrize(
    ("instructions", "max_kl", "obstacles", "names", "measured"),
    [
        # The fastest that is close enough; what comes after it is not looked at.
        ("avx512vnni", 0.0035, {}, ["native"], ["native"]),
        ("dotprod", 0.0035, NOT_QUANTIZED, ["native", "int8-g32"], ["int8-g32"]),
        ("avx2", 4e-4, NOT_QUANTIZED, ["native", "int8-g32"], ["int8-g32"]),
        ("avx2", 9e-5, {}, UP_TO_BF16[:3], UP_TO_BF16[:3]),
        ("avx2", 8e-5, {}, UP_TO_BF16, UP_TO_BF16),
        ("avx2", 0.0, {}, list(by_speed("avx2")), list(by_speed("avx2"))),
        # What cannot be is not measured.
        ("avx2", 0.0035, ODD, UP_TO_BF16, ["bf16"]),
        ("avx2", 0.0, ODD, list(by_speed("avx2")), ["bf16", "f32"]),
        # Our kernels come last where there are no instructions for them, but for F32.
        ("portable", 0.0035, {}, ["bf16"], ["bf16"]),
        ("portable", 0.0035, LARGE, ["bf16", "int8-g32"], ["int8-g32"]),
    ],
)
def test_the_fastest_precision_within_the_limits_is_chosen(
    instructions: str,
    max_kl: float,
    obstacles: dict[str, str],
    names: list[str],
    measured: list[str],
) -> None:
    attempts, looked_at = tried(instructions, max_kl, obstacles)
    assert [attempt.precision for attempt in attempts] == names
    assert [attempt.refused is None for attempt in attempts] == [
        *[False] * (len(attempts) - 1),
        True,
    ]
    assert looked_at == measured
    for attempt in attempts:
        assert attempt.kl == (None if attempt.precision in obstacles else KL[attempt.precision])


def test_the_error_lists_every_reason_when_no_precision_qualifies() -> None:
    with pytest.raises(BakeError) as error:
        tried("avx2", 1e-5, {**ODD, "f32": LARGE["f32"]})
    for said in (
        "multiple of 16 rows",
        "mean KL divergence from F32 7e-05",
        "--max-kl 1e-05",
        LARGE["f32"],
    ):
        assert said in str(error.value)


def test_a_nan_divergence_is_rejected() -> None:
    attempts, _ = tried("avx2", 1.0, NOT_QUANTIZED, {**KL, "int8-g32": float("nan")})
    assert attempts[-1].precision == "int12-g32"


# --- measured


class RandomWeights:
    """A small Gemma 3, as a WeightSource of GGUF's names."""

    format: Literal["gguf"] = "gguf"
    folder: None = None

    @cached_property
    def parameters(self) -> dict[str, Array]:
        rng = np.random.default_rng(0)
        return {
            name: (rng.normal(size=tensor_type.shape) / np.sqrt(tensor_type.shape[-1])).astype(
                np.float32
            )
            for name, tensor_type in Gemma3(GROUPED).parameters().items()
        }

    @cached_property
    def _tensors(self) -> dict[str, Array]:
        return {
            gemma3.ARCHITECTURE.tensors.find(GROUPED, name, (), gguf=True).name: values
            for name, values in self.parameters.items()
        }

    def names(self) -> tuple[str, ...]:
        return tuple(self._tensors)

    def integer_storage(self, name: str) -> str | None:  # noqa: ARG002  (of the protocol)
        return None

    def integer_blocks(self, name: str) -> Iterator[IntegerBlock]:
        raise UnsupportedType(name)

    def is_flat(self, name: str) -> bool:  # noqa: ARG002  (as of a WeightSource)
        return False

    def shape(self, name: str) -> tuple[int, ...]:
        return self._tensors[name].shape

    def dtype(self, name: str) -> str:
        return self._tensors[name].dtype.name

    def blocks(self, name: str) -> Iterator[Array]:
        yield self._tensors[name]

    def read(self, name: str) -> Array:
        return self._tensors[name]

    def files(self) -> tuple[Path, ...]:
        return ()

    def require_unchanged(self) -> None:
        pass

    def metadata(self) -> dict[str, object]:
        return {}


def log_probabilities(weights: dict[str, Array]) -> Array:
    """Of each next token after each of the first 32, by the plain forward pass: f64 (32, V)."""
    logits: Array = forward(GROUPED, weights, TOKENS[:32]).astype(np.float64)
    result: Array = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return result


@pytest.mark.nightly
def test_the_meter_measures_the_mean_divergence_from_a_plain_forward_pass() -> None:
    source = RandomWeights()
    texts = [tuple(TOKENS[:32]), tuple(TOKENS[:13])]
    meter = Meter(source, ARCHITECTURES["gemma3"], GROUPED, texts)
    rounded = {
        name: values.astype(ml_dtypes.bfloat16).astype(np.float32) if values.ndim == 2 else values
        for name, values in source.parameters.items()
    }
    p, q = log_probabilities(source.parameters), log_probabilities(rounded)
    divergences = (np.exp(p) * (p - q)).sum(axis=1)
    result = meter.measure("bf16")
    assert result.positions == 45
    assert result.mean == pytest.approx((divergences.sum() + divergences[:13].sum()) / 45, rel=0.1)
    assert meter.measure("f32") == Divergence(mean=0.0, positions=0)
    eight_bits = meter.measure("int8-g32").mean
    assert result.mean < eight_bits
    # A step is 1/16 of a step of int8, and the divergence grows with its square; a half is left for
    # the two draws of rounding errors.
    assert meter.measure("int12-g32").mean < eight_bits / 16**2 * 2
    assert meter.measure("int8-g32", "int8").mean > 1.2 * eight_bits
