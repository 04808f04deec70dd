"""No program that is baked has the pattern that IREE 3.13.0 compiles wrongly.

That is docs/iree-reports/packed_rows.mlir: an operand of a batched product that the compiler
computes and packs in one dispatch, whose rows do not fill tiles. It must be read behind a barrier.
Its rows are one axis, and so are its terms: the compiler computes an operand whose axes it merges
(merged_axes.mlir).
The StableHLO is searched, and nothing is compiled.
"""

from __future__ import annotations

import dataclasses
import math
import re
from random import Random
from typing import TYPE_CHECKING

import pytest

from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.decoder.latent_attention import LatentConfig
from hearthd.models.dsl import ops
from hearthd.models.dsl.mlir.stablehlo import module_text
from hearthd.models.dsl.ops.elementwise import COMPUTE_BARRIER
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType
from hearthd.models.precision import PRECISIONS
from hearthd.models.program import ProgramOptions
from tests.by_day import each_architecture
from tests.models.presets import GEMMA3, SMOLLM2
from tools.fuzz.compiled.model_maker import KINDS, make_config, make_model

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hearthd.models.dsl.graph import Graph, Tensor

_PRODUCT = re.compile(
    r'"stablehlo\.dot_general"\((%\S+), (%\S+)\).*lhs_batching_dimensions = \[(.*?)\], '
    r"rhs_batching_dimensions = \[(.*?)\], lhs_contracting_dimensions = \[(.*?)\], "
    r"rhs_contracting_dimensions = \[(.*?)\].* : \(tensor<(\S+)>, tensor<(\S+)>\)"
)
_PRECISIONS = sorted(PRECISIONS)
# By name: the architecture and the configuration of published models.
PUBLISHED = {
    **{f"gemma3-{size}": ("gemma3", config) for size, config in GEMMA3.items()},
    "smollm2": ("llama", SMOLLM2),
}


def padded_operands(graphs: Iterable[Graph]) -> Iterator[tuple[str, bool]]:
    """The operands of batched products that need padding in tiles, and whether each is behind a
    barrier, and without axes to merge."""
    return padded_operands_of(module_text("module", tuple(graphs), "model"))


def padded_operands_of(text: str) -> Iterator[tuple[str, bool]]:
    """As `padded_operands`, of a module."""
    for line, defined in _lines(text):
        product = _PRODUCT.search(line)
        if product is None:
            continue
        left, right, *axes, left_type, right_type = product.groups()
        numbers = [[int(axis) for axis in text.split(",") if axis.strip()] for text in axes]
        sides = (
            (left, _extents(left_type, numbers[0], numbers[2])),
            (right, _extents(right_type, numbers[1], numbers[3])),
        )
        is_merged = any(
            sum(extent > 1 for extent in axes) > 1 for _, groups in sides for axes in groups[1:]
        )
        for name, (batch, rows, _) in sides:
            count = math.prod(rows)
            is_padded = any(count % tile for tile in (1, 2, 4, 8, 16) if tile <= count)
            if math.prod(batch) > 1 and is_padded:
                is_right = COMPUTE_BARRIER in defined[name] and not is_merged
                yield f"{line.strip()}: {name}", is_right


def _extents(type_: str, batch: list[int], summed: list[int]) -> tuple[list[int], ...]:
    """The extents of an operand's matrices, rows and terms."""
    shape = [int(extent) for extent in type_.split("x")[:-1]]
    free = [axis for axis in range(len(shape)) if axis not in batch + summed]
    return tuple([shape[axis] for axis in axes] for axes in (batch, free, summed))


def _lines(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The lines, each with those that define the names before it in its function."""
    defined: dict[str, str] = {}
    for line in text.splitlines():
        if "func.func" in line:
            defined = dict.fromkeys(re.findall(r"%\w+", line), line)
        yield line, defined
        name, is_definition, _ = line.strip().partition(" = ")
        if is_definition:
            defined[name] = line


# All heads of latent vectors share their keys.
@pytest.mark.parametrize(
    "name",
    each_architecture(
        name for name in ARCHITECTURES if not issubclass(ARCHITECTURES[name].config, LatentConfig)
    ),
)
@pytest.mark.parametrize(
    "every", [(3, 7), pytest.param(range(1, 10), marks=pytest.mark.nightly)], ids=str
)
def test_models_of_any_number_of_heads_pack_behind_barriers(
    name: str, every: Sequence[int]
) -> None:
    """With keys for each head, which makes as many matrices."""
    checked = 0
    for heads in every:
        random = Random(heads)
        config = make_config(name, "f32", random, heads, heads)
        options = ProgramOptions(
            context=random.randint(3, 60),
            precision="f32",
            prefill_tokens=(random.randint(1, 20),),
            decode_batches=(1,),
        )
        operands = list(padded_operands(ARCHITECTURES[name].program(config, options).graphs))
        assert [text for text, is_right in operands if not is_right] == []
        checked += len(operands)
    assert checked > 2 * len(every)


@pytest.mark.parametrize("model", PUBLISHED)
@pytest.mark.nightly
def test_published_models_pack_behind_barriers(model: str) -> None:
    name, config = PUBLISHED[model]
    config = dataclasses.replace(config, layers=1, windows=config.windows[:1])
    for precision in _PRECISIONS:
        options = ProgramOptions(
            context=2048, precision=precision, prefill_tokens=(16, 256), decode_batches=(1,)
        )
        operands = padded_operands(ARCHITECTURES[name].program(config, options).graphs)
        assert [text for text, is_right in operands if not is_right] == []


def test_gru_models_pack_behind_barriers() -> None:
    for seed in range(KINDS.index("gru"), 20 * len(KINDS), len(KINDS)):
        model = make_model(seed)
        assert model.text.startswith("gru")
        assert all(is_right for _, is_right in padded_operands(model.graphs))


def test_an_operand_without_a_barrier_is_found() -> None:
    text = module_text("module", [traced_product()], "model")
    barrier = next(line for line in text.splitlines() if COMPUTE_BARRIER in line)
    assert [is_right for _, is_right in padded_operands_of(text)] == [True, True]
    name, _, rest = barrier.strip().partition(" = ")
    read = rest.partition("(")[2].partition(")")[0]
    broken = text.replace(f"{barrier}\n", "").replace(name, read)
    assert sorted(is_right for _, is_right in padded_operands_of(broken)) == [
        False,
        True,
    ]


def traced_product() -> Graph:
    """exp(x) y for 3 matrices of 5 rows each."""
    kinds = {"x": TensorType((3, 5, 4), DType.F32), "y": TensorType((3, 7, 4), DType.F32)}

    def product(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        sides = ((0,), (0,)), ((2,), (2,))
        x = ops.exponential(x)
        return (ops.dot_general(x, y, batch=sides[0], contract=sides[1], dtype=DType.F32),)

    return trace("product", product, kinds)
