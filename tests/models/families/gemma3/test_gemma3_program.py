"""Gemma 3: what a program is made of, and the names of its tensors in files."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hearthd.models.decoder import entry_points
from hearthd.models.dsl.types import DType
from hearthd.models.families import gemma3
from hearthd.models.families.gemma3 import Gemma3
from tests.by_day import first_by_day
from tests.models.families.gemma3.gemma3_cases import (
    OPTIONS,
    TINY,
)
from tests.models.presets import GEMMA3

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearthd.models.program import StoredTensor


# One entry point is enough to show what a program reads.
DECODE = replace(OPTIONS, prefill_tokens=(8,), decode_batches=(1,), verify_tokens=())


def test_the_270m_has_its_236_tensors_and_one_head() -> None:
    config = replace(GEMMA3["270m"], vocab_size=262153)  # a fine-tune with tokens of its own
    program = entry_points.program(Gemma3(config), replace(OPTIONS, context=2048))
    assert sum(len(one.sources) for one in program.weights) == 236
    large = [
        name for name, tensor_type in program.parameters.items() if 262153 in tensor_type.shape
    ]
    assert large == ["embed_tokens.weight"]
    for point, graph in program.entry_points:
        logits = [tensor for tensor in graph.outputs if 262153 in tensor.shape]
        assert len(logits) == (point.kind in ("decode", "verify"))


@pytest.mark.parametrize(
    ("precision", "tensors"), first_by_day([("int8-g32", 292), ("f32", 200), ("bf16", 200)])
)
def test_a_precision_changes_matrices_only(precision: str, tensors: int) -> None:
    """Integers add a scale for each of the 18 * 5 + 1 matrices, and the head is in two halves."""
    options = replace(DECODE, precision=precision)
    program = entry_points.program(Gemma3(GEMMA3["270m"]), options)
    assert len(program.parameters) == tensors
    storage = {"f32": DType.F32, "bf16": DType.BF16}.get(precision, DType.I8)
    for name, tensor_type in program.parameters.items():
        plain = DType.F16 if name.endswith(".scale") else DType.F32
        matrix = tensor_type.rank > 1 and not name.endswith(".scale")
        assert tensor_type.dtype is (storage if matrix else plain), name


def test_a_prefill_reads_neither_the_last_norm_nor_scores_tokens() -> None:
    for point, graph in entry_points.program(Gemma3(TINY), OPTIONS).entry_points:
        assert ("norm.weight" in graph.parameters) == (point.kind != "prefill")
        numbers = 2 if point.kind == "prefill" else 3
        assert sorted(graph.in_place.values()) == list(range(numbers, len(graph.inputs)))


_TRACE = """
import sys
from hearthd.models.decoder import entry_points
from hearthd.models.families.gemma3 import Gemma3
from tests.models.presets import GEMMA3
from hearthd.models.program import ProgramOptions
options = ProgramOptions(
    context=8192, precision="bf16", prefill_tokens=(16, 128), decode_batches=(1, 2)
)
program = entry_points.program(Gemma3(GEMMA3[sys.argv[1]]), options)
print([line for line in open("/proc/self/status") if line.startswith("VmHWM")][0])
"""
# Published sizes of the text models, in parameters.
_PARAMETERS = {"270m": 268e6, "1b": 1.0e9, "4b": 3.88e9, "12b": 11.8e9, "27b": 27.0e9}


@pytest.mark.parametrize("size", GEMMA3)
def test_a_preset_has_the_published_number_of_parameters(size: str) -> None:
    count = sum(parameter.type.size for parameter in Gemma3(GEMMA3[size]).parameters().values())
    assert count == pytest.approx(_PARAMETERS[size.removeprefix("gemma3-")], rel=0.01)


@pytest.mark.nightly
def test_the_largest_preset_traces_without_the_memory_for_its_weights() -> None:
    result = subprocess.run(
        [sys.executable, "-c", _TRACE, "27b"], capture_output=True, text=True, check=True
    )
    _, kilobytes, unit = result.stdout.split()
    assert unit == "kB"
    assert int(kilobytes) < 250_000  # the 27B's weights have 54 GB


# --- names in files


def stored(*, gguf: bool, names: tuple[str, ...] = ()) -> Mapping[str, StoredTensor]:
    config = GEMMA3["270m"]
    return {
        name: gemma3.ARCHITECTURE.tensors.find(config, name, names, gguf=gguf)
        for name in Gemma3(config).parameters()
    }


def test_names_in_gguf_whose_norms_hold_1_plus_w() -> None:
    tensors = stored(gguf=True)
    assert len({tensor.name for tensor in tensors.values()}) == 236
    assert {tensor.offset for tensor in tensors.values()} == {0.0}
    assert tensors["layers.17.self_attn.k_norm.weight"].name == "blk.17.attn_k_norm.weight"
    assert tensors["layers.0.pre_feedforward_layernorm.weight"].name == "blk.0.ffn_norm.weight"
    assert tensors["norm.weight"].name == "output_norm.weight"


def test_names_in_safetensors_whose_norms_hold_w() -> None:
    tensors = stored(gguf=False)
    assert all(tensor.name == f"model.{name}" for name, tensor in tensors.items())
    norms = {name for name, tensor in tensors.items() if tensor.offset == 1.0}
    assert len(norms) == 18 * 6 + 1
    assert norms == {name for name in tensors if "norm" in name}
    assert {tensors[name].offset for name in tensors.keys() - norms} == {0.0}


@pytest.mark.parametrize("prefix", ["model.", "model.language_model.", "language_model.model."])
def test_names_one_level_down(prefix: str) -> None:
    names = (f"{prefix}norm.weight", "vision_tower.x")
    tensor = gemma3.ARCHITECTURE.tensors.find(TINY, "norm.weight", names, gguf=False)
    assert tensor.name == f"{prefix}norm.weight"
    assert [gemma3.ARCHITECTURE.tensors.is_other_part(name) for name in names] == [False, True]
