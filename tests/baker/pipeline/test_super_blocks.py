"""A file of types whose scales have two levels: its bytes and its values in a bundle."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest

from hearthd.baker.parameters import native
from hearthd.baker.parameters.parameter_writer import locate, write_parameters
from hearthd.baker.precision.kl_from_f32 import Meter
from hearthd.baker.reference.numpy_runtime import stored_parameters
from hearthd.baker.weights.gguf import GgufSource
from hearthd.bundle.parsing.head_rows import half_after_half
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.dsl.matrix_format import FORMATS
from hearthd.models.program import ProgramOptions, StoredTensor
from tests.baker.gguf_blocks import random_rows
from tests.models.families.gemma3.gemma3_cases import GROUPED, TOKENS
from tests.models.families.gguf_files import add_config
from tests.models.unpacked import real_weights

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.baker.parameters.parameter_writer import Located

    Array = NDArray[Any]

GEMMA = ARCHITECTURES["gemma3"]
CONFIG = replace(GROUPED, hidden=256, ffn=512)
# Without Q4_K, beside which activations have 12 bits.
TYPES = (
    "Q2_K", "Q3_K", "Q5_K", "Q6_K", "IQ4_XS", "MXFP4", "Q1_0", "TQ2_0", "TQ1_0", "NVFP4",
    "IQ1_M", "IQ2_XS", "IQ3_XXS", "IQ3_S",
)  # fmt: skip


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> GgufSource:
    """A file of a small Gemma 3, whose matrices have the types in turn."""
    path = tmp_path_factory.mktemp("weights") / "model.gguf"
    writer = gguf.GGUFWriter(path, "gemma3")
    add_config(writer, "gemma3", CONFIG)
    types = cycle(TYPES)
    for seed, (name, one) in enumerate(GEMMA.model(CONFIG).parameters().items()):
        stored = GEMMA.tensors.find(CONFIG, name, (), gguf=True).name
        if len(one.shape) < 2:
            writer.add_tensor(stored, np.ones(one.shape, np.float32))
            continue
        type_ = next(types)
        rows = random_rows(type_, *one.shape, size=2e-3, seed=seed)
        writer.add_tensor(stored, rows, raw_dtype=gguf.GGMLQuantizationType[type_])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return GgufSource(path)


@pytest.fixture(scope="module")
def located(source: GgufSource) -> tuple[Located, ...]:
    options = ProgramOptions(
        context=64,
        precision="native",
        prefill_tokens=(16,),
        decode_batches=(1,),
        storages=native.storages("native", source, GEMMA, CONFIG),
    )
    return locate(source, GEMMA, CONFIG, GEMMA.program(CONFIG, options))


def stored_arrays(source: GgufSource, weight: Located, folder: Path) -> list[Array]:
    """The arrays of a weight, as a bundle stores them."""
    write_parameters(source, [weight], folder / "params.irpa", lambda _: None)
    types = {name: tensor.type for name, tensor in weight.weight.parameters.items()}
    return list(stored_parameters(types, folder / "params.irpa").values())


def test_every_matrix_has_the_values_of_the_file_in_about_its_bytes(
    source: GgufSource, located: tuple[Located, ...], tmp_path: Path
) -> None:
    used = set()
    for weight in located:
        names = [tensor.name for (tensor,) in weight.tensors]
        types = {source.dtype(name) for name in names}
        if types == {"f32"}:
            continue
        used |= types
        (type_,) = types
        arrays = stored_arrays(source, weight, tmp_path)
        values = np.concatenate([source.read(name) for name in names])
        actual = real_weights(arrays, FORMATS[native.NATIVE[type_]])
        np.testing.assert_array_equal(actual, values)
        columns, count = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[type_]]
        assert sum(array.nbytes for array in arrays) <= 1.05 * values.size * count / columns
    assert used == {*TYPES}


@pytest.mark.parametrize("type_", TYPES)
def test_interleaved_rows_are_ordered_with_their_multipliers(
    source: GgufSource, located: tuple[Located, ...], tmp_path: Path, type_: str
) -> None:
    weight = next(one for one in located if source.dtype(one.tensors[0][0].name) == type_)
    moved = tuple((StoredTensor(tensor.name, interleaved=16),) for (tensor,) in weight.tensors)
    arrays = stored_arrays(source, replace(weight, tensors=moved), tmp_path)
    values = [half_after_half(source.read(tensor.name), 16) for (tensor,) in moved]
    actual = real_weights(arrays, FORMATS[native.NATIVE[type_]])
    np.testing.assert_array_equal(actual, np.concatenate(values))


def test_weights_have_no_error(source: GgufSource) -> None:
    """What is left is the rounding of activations to 16 bits; int8-g32 rounds the weights."""
    meter = Meter(source, GEMMA, CONFIG, [tuple(TOKENS[:32])])
    divergences = {name: meter.measure(name).mean for name in ("native", "int8-g32")}
    assert divergences["native"] < 1e-6
    assert divergences["native"] < 0.1 * divergences["int8-g32"]
