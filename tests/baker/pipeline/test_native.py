"""`--precision native`: a quantized GGUF file's own integers, in the program and in the archive."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest
from typing_extensions import override

from hearthd.baker.parameters import native
from hearthd.baker.parameters.parameter_writer import locate, write_parameters
from hearthd.baker.precision.kl_from_f32 import Meter
from hearthd.baker.reference.numpy_runtime import stored_parameters
from hearthd.baker.weights import gguf_integers
from hearthd.bundle.parsing.head_rows import half_after_half
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.dsl.matrix_format import INT4_MIN
from hearthd.models.dsl.rewrites.stored_weights import Weight
from hearthd.models.dsl.storage import F32, STORAGES
from hearthd.models.dsl.types import DType, TensorType
from hearthd.models.families import gemma3
from hearthd.models.program import ProgramOptions, StoredTensor
from tests.baker.pipeline.test_auto_precision import RandomWeights
from tests.models.families.gemma3.gemma3_cases import GROUPED, TOKENS
from tests.models.unpacked import real_weights

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.baker.weights.source import IntegerBlock

    Array = NDArray[Any]

GEMMA = ARCHITECTURES["gemma3"]
TYPES = ("Q4_0", "Q5_0", "Q4_1", "Q8_0", "Q5_1")


class QuantizedWeights(RandomWeights):
    """A small Gemma 3 whose matrices are quantized, each in another type than the one before."""

    def __init__(self, types: Sequence[str] = TYPES) -> None:
        matrices = [name for name in self.names() if len(self.shape(name)) == 2]
        self._types = dict(zip(matrices, cycle(types), strict=False))
        self._rows = {
            name: _quantized(self._tensors[name], type_) for name, type_ in self._types.items()
        }

    @override
    def dtype(self, name: str) -> str:
        return self._types.get(name, "f32")

    @override
    def read(self, name: str) -> Array:
        if name not in self._types:
            return super().read(name)
        values: Array = gguf.quants.dequantize(
            self._rows[name], gguf.GGMLQuantizationType[self._types[name]]
        )
        return values

    @override
    def blocks(self, name: str) -> Iterator[Array]:
        yield self.read(name)

    @override
    def integer_blocks(self, name: str) -> Iterator[IntegerBlock]:
        for rows in np.split(self._rows[name], [16]):
            yield gguf_integers.decoded(self._types[name], rows, self.shape(name)[1])


def _quantized(values: Array, type_: str) -> Array:
    """Blocks of a type. gguf does not write IQ4_NL: Q4_0 has its layout, and a sixteenth of it."""
    if type_ == "IQ4_NL":
        values, type_ = values / np.float32(16), "Q4_0"
    return gguf.quants.quantize(values, gguf.GGMLQuantizationType[type_])


@pytest.fixture(scope="module")
def source() -> QuantizedWeights:
    return QuantizedWeights()


def stored(source: QuantizedWeights) -> dict[str, str]:
    """The storage of each parameter that is not the precision's."""
    return native.storages("native", source, GEMMA, GROUPED)


def test_each_matrix_is_stored_as_its_type_says() -> None:
    source = QuantizedWeights((*TYPES, "IQ4_NL"))
    chosen = stored(source)
    for name, parameter in source.parameters.items():
        type_ = source.dtype(gemma3.ARCHITECTURE.tensors.find(GROUPED, name, (), gguf=True).name)
        native_storage = native.NATIVE.get(type_) if parameter.ndim == 2 else None
        assert chosen.get(name) == (None if native_storage == "int8-g32" else native_storage)
    types = {*TYPES, "IQ4_NL"} - {"Q8_0"}
    assert set(chosen.values()) == {native.NATIVE[type_] for type_ in types}


@pytest.mark.parametrize("precision", ["f32", "int8-g32"])
def test_other_precisions_store_every_matrix_alike(
    source: QuantizedWeights, precision: str
) -> None:
    assert native.storages(precision, source, GEMMA, GROUPED) == {}


@pytest.mark.parametrize(
    ("default", "quantized", "expected"),
    [
        ("native", True, "native"),
        ("native", False, "int8-g32"),
        ("int8-g32", True, "int8-g32"),
        ("auto", True, "auto"),
    ],
)
def test_the_default_is_native_for_quantized_weights(
    source: QuantizedWeights, default: str, quantized: bool, expected: str
) -> None:
    weights = source if quantized else RandomWeights()
    assert native.default_precision(default, weights, GEMMA, GROUPED) == expected


def test_only_matrices_of_one_storage_become_one_product(source: QuantizedWeights) -> None:
    options = ProgramOptions(
        context=64,
        precision="native",
        prefill_tokens=(16,),
        decode_batches=(1,),
        storages=stored(source),
    )
    weights = GEMMA.program(GROUPED, options).weights
    assert {name for weight in weights for name in weight.sources} == source.parameters.keys()
    for weight in weights:
        if len(weight.sources) > 1 or weight.storage is not F32:
            names = {options.storages.get(name, "int8-g32") for name in weight.sources}
            (storage,) = names
            assert weight.storage in (STORAGES[storage], STORAGES[storage].table)


def test_native_weights_have_no_error(source: QuantizedWeights) -> None:
    """What is left is the rounding of activations: to 12 bits beside weights of 4 bits, else 16.

    int8-g32 rounds the weights of Q4_1 and Q5_1, and keeps the others.
    """
    meter = Meter(source, GEMMA, GROUPED, [tuple(TOKENS[:32])])
    divergences = {name: meter.measure(name).mean for name in ("native", "int8-g32")}
    assert divergences["native"] < 5e-9
    assert 3 * divergences["native"] < divergences["int8-g32"]


def test_interleaved_rows_are_ordered_with_their_scales(
    source: QuantizedWeights, tmp_path: Path
) -> None:
    """Llama's files have the rows of a head's two halves side by side."""
    name = next(name for name in source.names() if source.dtype(name) == "Q4_1")
    rows, columns = source.shape(name)
    storage = STORAGES["int4-g32-min"]
    program = GEMMA.program(
        GROUPED,
        ProgramOptions(
            context=64,
            precision="native",
            prefill_tokens=(16,),
            decode_batches=(1,),
            storages=stored(source),
        ),
    )
    located = locate(source, GEMMA, GROUPED, program)
    (one,) = (x for x in located if [tensor.name for (tensor,) in x.tensors] == [name])
    assert isinstance(one.weight, Weight)
    moved = type(one)(one.weight, ((StoredTensor(name, interleaved=16),),))
    write_parameters(source, [moved], tmp_path / "params.irpa", lambda _: None)
    types = {key: tensor.type for key, tensor in one.weight.parameters.items()}
    arrays = stored_parameters(types, tmp_path / "params.irpa")
    assert next(iter(types.values())) == TensorType((rows // 16, columns // 32, 4, 64), DType.I8)
    actual = real_weights(list(arrays.values()), INT4_MIN)
    assert one.weight.storage is storage
    np.testing.assert_array_equal(actual, half_after_half(source.read(name), 16))
