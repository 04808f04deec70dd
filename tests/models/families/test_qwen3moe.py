"""A mixture of experts as a compiled program: what it computes, and which experts it reads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest

from hearthd.baker.parameters import native
from hearthd.baker.parameters.parameter_writer import Located, locate, write_parameters
from hearthd.baker.reference.numpy_runtime import stored_parameters
from hearthd.baker.weights.open_weights import open_weights
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.config import ConfigError
from hearthd.models.decoder.experts import ExpertsConfig
from hearthd.models.dsl.fused.two_part_head import ALL
from hearthd.models.dsl.graph import Parameter, Tensor
from hearthd.models.dsl.rewrites.stored_weights import Weight
from hearthd.models.dsl.storage import STORAGES
from hearthd.models.program import ProgramOptions, StoredTensor
from tests.models.compiled import Compiled
from tests.models.families import ours
from tests.models.families.cases import random_tensors
from tests.models.families.family_recording import recorded
from tests.models.families.gguf_files import add_config
from tests.models.families.test_compiled import with_parameters_as_inputs
from tests.models.numpy_device import Device
from tests.models.unpacked import real_weights

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Array = NDArray[Any]

CONFIG = ExpertsConfig(
    layers=1, hidden=64, ffn=96, heads=2, kv_heads=1, head_dim=64, max_context=32, vocab_size=67,
    norm_eps=1e-6, rope_base=1e4, tied=True, experts=6, experts_per_token=2, expert_ffn=32,
    routed=(True,), normalized=True,
)  # fmt: skip
# By precision, the largest difference from NumPy, as a part of the largest logit.
TOLERANCE = {"f32": 1e-5, "bf16": 1e-2, "int8-g32": 2e-3, "int12-g32": 2e-3}
PRECISIONS = tuple(TOLERANCE)
TOKENS = [5, 9, 33, 2]


@pytest.fixture(scope="module")
def devices() -> dict[str, Device]:
    family = ARCHITECTURES["qwen3moe"]
    return {
        precision: Device(
            family.program(
                CONFIG,
                ProgramOptions(
                    context=16, precision=precision, prefill_tokens=(4,), decode_batches=(1,)
                ),
            )
        )
        for precision in PRECISIONS
    }


@pytest.fixture(scope="module")
def compiled(devices: dict[str, Device], tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    graphs = [
        with_parameters_as_inputs(f"decode_{precision.replace('-', '_')}", graph)
        for precision, device in devices.items()
        for point, graph in device.program.entry_points
        if point.name == "decode_1"
    ]
    return Compiled(graphs, tmp_path_factory.mktemp("experts"))


def decoded(
    compiled: Compiled, device: Device, precision: str, weights: dict[str, Array], token: int
) -> Array:
    """The logits after one token at position 0."""
    ((_, graph),) = [pair for pair in device.program.entry_points if pair[0].name == "decode_1"]
    numbers = (np.array([value], np.int32) for value in (token, 0, ALL))
    parameters = [weights[name] for name in graph.parameters]
    name = f"decode_{precision.replace('-', '_')}"
    return compiled(name, *numbers, *device.slot(), *parameters)[0]


@pytest.mark.nightly
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_compiled_step_equals_numpy(
    compiled: Compiled, devices: dict[str, Device], precision: str
) -> None:
    device = devices[precision]
    for token in TOKENS:
        actual = decoded(compiled, device, precision, device.weights, token)
        expected, _ = device.decode([device.slot()], [token], [0])
        largest = np.abs(expected).max()
        np.testing.assert_allclose(actual, expected, atol=TOLERANCE[precision] * largest)


def poisoned(device: Device, expert: int) -> dict[str, Array]:
    """The weights with NaN in the matrices of one expert: in their values, or in their scales."""
    weights = dict(device.weights)
    for name, array in weights.items():
        if ".experts." in name and array.dtype != np.int8:
            rows = len(array) // CONFIG.experts
            weights[name] = array.copy()
            weights[name][expert * rows : (expert + 1) * rows] = np.nan
    return weights


@pytest.mark.nightly
@pytest.mark.parametrize("precision", PRECISIONS)
def test_only_a_tokens_experts_change_the_bits_of_its_logits(
    compiled: Compiled, devices: dict[str, Device], precision: str
) -> None:
    device = devices[precision]
    reached: list[set[int]] = []
    for token in TOKENS:
        clean = decoded(compiled, device, precision, device.weights, token)
        reached.append(
            {
                expert
                for expert in range(CONFIG.experts)
                if not np.array_equal(
                    decoded(compiled, device, precision, poisoned(device, expert), token), clean
                )
            }
        )
    assert all(len(experts) == CONFIG.experts_per_token for experts in reached)
    assert len(set(map(frozenset, reached))) > 1


# --- quantized GGUF files


@pytest.fixture(params=["Q4_0", "Q5_1", "Q8_0"])
def quantized(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file whose experts have integers, as llama.cpp writes them: (experts, N, K)."""
    path, architecture = tmp_path / "model.gguf", ARCHITECTURES["qwen3moe"]
    writer = gguf.GGUFWriter(path, "qwen3moe")
    add_config(writer, "qwen3moe", CONFIG)
    shapes = {name: one.shape for name, one in architecture.model(CONFIG).parameters().items()}
    type_ = gguf.GGMLQuantizationType[request.param]
    for name, values in random_tensors(shapes).items():
        stored = architecture.tensors.find(CONFIG, name, (), gguf=True).name
        if ".experts." in name:
            matrices = values.reshape(CONFIG.experts, -1, values.shape[1])
            writer.add_tensor(stored, gguf.quantize(matrices, type_), raw_dtype=type_)
        else:
            writer.add_tensor(stored, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_quantized_experts_keep_their_integers(quantized: Path, tmp_path: Path) -> None:
    source, architecture = open_weights(quantized), ARCHITECTURES["qwen3moe"]
    config = ours.config_of(source, "qwen3moe")
    options = replace(
        ours.OPTIONS,
        context=16,
        prefill_tokens=(4,),
        precision="native",
        storages=native.storages("native", source, architecture, config),
    )
    program = architecture.program(config, options)
    located = locate(source, architecture, config, program)
    write_parameters(source, located, tmp_path / "params.irpa", lambda _: None)
    arrays = stored_parameters(program.parameters, tmp_path / "params.irpa")
    experts = [one for one in program.weights if any(".experts." in name for name in one.sources)]
    assert len(experts) == 3
    for weight in experts:
        (name,) = weight.sources
        stored = [arrays[part] for part in weight.parameters]
        tensor = architecture.tensors.find(config, name, (), gguf=True).name
        expected = source.read(tensor).reshape(weight.sources[name])
        assert weight.storage.format is not None
        actual = real_weights(stored, weight.storage.format)
        assert weight.storage.name == native.NATIVE[source.dtype(tensor)]
        np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("type_", "storage"), [("Q4_0", "int4-g32"), ("F32", "f32")])
def test_a_share_of_the_rows_of_each_expert_is_a_parameter(
    type_: str, storage: str, tmp_path: Path
) -> None:
    """As in a tensor of gates and ups: the second half of each of three matrices."""
    writer, kind = gguf.GGUFWriter(tmp_path / "model.gguf", "x"), gguf.GGMLQuantizationType[type_]
    values = np.random.default_rng(1).normal(size=(3, 64, 96)).astype(np.float32)
    writer.add_tensor("both.weight", gguf.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    stored = STORAGES[storage]
    types = stored.arrays(3 * 32, 96)
    weight = Weight(
        sources={"up": (3 * 32, 96)},
        storage=stored,
        parameters={name: Tensor(array, Parameter()) for name, array in types.items()},
    )
    located = Located(weight, ((StoredTensor("both.weight", share=(1, 2)),),))
    source = open_weights(tmp_path / "model.gguf")
    write_parameters(source, [located], tmp_path / "params.irpa", lambda _: None)
    arrays = list(stored_parameters(types, tmp_path / "params.irpa").values())
    actual = arrays[0] if stored.format is None else real_weights(arrays, stored.format)
    expected = gguf.dequantize(gguf.quantize(values, kind), kind)[:, 32:].reshape(96, 96)
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-3)


def test_published_names_of_keys_are_read() -> None:
    """Qwen3-30B-A3B's `num_experts`; transformers 5 writes `num_local_experts`."""
    config = dict(recorded("qwen3moe-qwen3moe").config)
    read = ARCHITECTURES["qwen3moe"].from_hugging_face
    config["num_experts"] = config.pop("num_local_experts")
    assert read(config | {"max_window_layers": 48, "rope_scaling": None}) == read(
        recorded("qwen3moe-qwen3moe").config
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_experts_per_tok": 8}, "experts_per_token: got 8, expected at most the 7 experts"),
        ({"shared_expert_intermediate_size": 8}, "unknown key shared_expert_intermediate_size"),
        ({"num_local_experts": None}, "num_experts is missing"),
    ],
    ids=str,
)
def test_unsupported_configurations_are_rejected(changes: dict[str, Any], message: str) -> None:
    config = dict(recorded("qwen3moe-qwen3moe").config) | changes
    with pytest.raises(ConfigError, match=message):
        ARCHITECTURES["qwen3moe"].from_hugging_face(config)
