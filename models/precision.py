"""Precisions: how the weights of matrices are stored, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from hearthd.bundle import Activations
from hearthd.models.dsl.storage import STORAGES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from hearthd.bundle import AdapterDType, CacheDType
    from hearthd.models.dsl.storage import Storage

# How keys and values are stored: int8 has a scale for each head of each position, int4 for each 32
# columns.
KvCache: TypeAlias = Literal["f16", "f32", "int8", "int4"]


@dataclass(frozen=True, kw_only=True)
class Precision:
    """One way to store a model's weights; norms are f32 in all of them.

    name           as `--precision` has it
    storage        how matrices are stored
    native         whether a matrix of quantized weights that has integers keeps them instead
    layers         how the matrices of layers are stored, if in another way: they are rounded with
                   error compensation (baker/calibration)
    assigned       whether `--precision auto` assigns a storage to each matrix of a layer. Users
                   cannot request such a precision by its name
    kernels        whether norms, RoPE and attention also use C kernels
    tolerance      the largest difference of a logit between NumPy and a compiled program that
                   rounding explains
    rounding       the default of `--activations`. Weights of floats ignore it: their products do
                   not round activations
    speed          its rank among all precisions, 1 for the fastest; expected, not measured
    speed_without  its rank where the CPU has no instructions for products of int8: kernels then
                   wait for arithmetic, and not for memory
    help           what a user should know of it
    """

    name: str
    storage: Storage
    kernels: bool
    tolerance: float
    speed: int
    speed_without: int
    help: str
    rounding: Activations = "int16"
    native: bool = False
    layers: Storage | None = None
    assigned: bool = False

    @property
    def calibrated(self) -> bool:
        """Whether layers are rounded by a calibration text."""
        return self.layers is not None or self.assigned

    @property
    def kv_cache(self) -> KvCache:
        """How keys and values are stored: the kernel of attention reads f16."""
        return "f16" if self.kernels else "f32"

    @property
    def activations(self) -> tuple[Activations, ...]:
        """The roundings of activations that products offer; none for weights that are floats."""
        return () if self.storage.format is None else get_args(Activations)

    @property
    def adapters(self) -> AdapterDType:
        """How the factors of adapters are stored: as precisely as matrices."""
        if self.storage.format is not None:
            return "i8"
        return "f32" if self.storage is STORAGES["f32"] else "f16"


ACTIVATION_BITS: Mapping[Activations, int] = {"int16": 16, "int8": 8}
# Added to a precision's `tolerance` for the rounding of keys and values.
KV_TOLERANCE: Mapping[KvCache, float] = {"f16": 2e-2, "f32": 0.0, "int8": 1.0, "int4": 3.0}
# Added to it for the rounding of activations, except with weights of 4 bits.
ACTIVATION_TOLERANCE: Mapping[Activations, float] = {"int16": 0.0, "int8": 1.0}


def activation_tolerance(activations: Activations, storages: Collection[Storage]) -> float:
    """The tolerance that the rounding of activations adds to a precision's `tolerance`.

    `storages` are how weights are stored. With weights of 4 bits, int16 is rounded to 12 bits:
    steps of a sixteenth of int8's.
    """
    formats = (storage.format for storage in storages)
    if activations == "int16" and any(format_ and format_.operand_bits == 4 for format_ in formats):
        return ACTIVATION_TOLERANCE["int8"] / 16
    return ACTIVATION_TOLERANCE[activations]


def kv_cache_of(dtypes: Collection[CacheDType]) -> KvCache:
    """How keys and values are stored in buffers of these dtypes."""
    if "i4" in dtypes:
        return "int4"
    if "i8" in dtypes:
        return "int8"
    return "f16" if "f16" in dtypes else "f32"


PRECISIONS: Mapping[str, Precision] = {
    precision.name: precision
    for precision in (
        Precision(
            name="f32",
            storage=STORAGES["f32"],
            kernels=False,
            tolerance=2e-3,
            speed=8,
            speed_without=8,
            help="exact",
        ),
        Precision(
            name="bf16",
            storage=STORAGES["bf16"],
            kernels=True,
            tolerance=0.25,
            speed=7,
            speed_without=1,
            help="close to f32 in half the memory",
        ),
        Precision(
            name="int12-g32",
            storage=STORAGES["int12-g32"],
            kernels=True,
            tolerance=2e-2,
            speed=6,
            speed_without=7,
            help="closer to f32 than bf16, smaller and faster",
        ),
        Precision(
            name="int8-g32",
            storage=STORAGES["int8-g32"],
            kernels=True,
            tolerance=2e-2,
            speed=5,
            speed_without=2,
            help="close to f32 in a quarter of the memory, and usually the fastest",
        ),
        Precision(
            name="native",
            storage=STORAGES["int8-g32"],
            kernels=True,
            tolerance=2e-2,
            speed=4,
            speed_without=3,
            help="the integers of quantized weights as they are, other weights as int8-g32",
            rounding="int8",
            native=True,
        ),
        Precision(
            name="int4-g32",
            storage=STORAGES["int8-g32"],
            layers=STORAGES["int4-g32"],
            kernels=True,
            tolerance=2e-2,
            speed=1,
            speed_without=4,
            help="layers in 4 bits, rounded for a calibration text; the rest as int8-g32",
            rounding="int8",
        ),
        Precision(
            name="int5-g32",
            storage=STORAGES["int8-g32"],
            layers=STORAGES["int5-g32"],
            kernels=True,
            tolerance=2e-2,
            speed=2,
            speed_without=5,
            help="the same in 5 bits",
            rounding="int8",
        ),
        Precision(
            name="mixed",
            storage=STORAGES["int8-g32"],
            kernels=True,
            tolerance=2e-2,
            speed=3,
            speed_without=6,
            help="the layers in 4, 5 and 8 bits",
            native=True,
            assigned=True,
        ),
    )
}
# The precisions that users can request.
NAMED_PRECISIONS = tuple(name for name, precision in PRECISIONS.items() if not precision.assigned)
