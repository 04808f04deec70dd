"""A mixture of experts as a compiled program: what it computes, and which experts it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from models.catalog import ARCHITECTURES
from models.config import ConfigError
from models.decoder.experts import ExpertsConfig
from models.program import ProgramOptions
from tests.models.compiled import Compiled
from tests.models.families.recording import recorded
from tests.models.families.test_compiled import with_parameters_as_inputs
from tests.models.numpy_device import Device

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

CONFIG = ExpertsConfig(
    layers=1, hidden=64, ffn=96, heads=2, kv_heads=1, head_dim=64, max_context=32, vocab_size=67,
    norm_eps=1e-6, rope_base=1e4, tied=True, experts=6, experts_per_token=2, expert_ffn=32,
    routed=(True,), normalized=True,
)  # fmt: skip
# By precision, the largest difference from NumPy, as a part of the largest logit.
TOLERANCE = {"f32": 1e-5, "bf16": 1e-2, "int8-g32": 2e-3}
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
    numbers = (np.array([value], np.int32) for value in (token, 0, 1))
    parameters = [weights[name] for name in graph.parameters]
    name = f"decode_{precision.replace('-', '_')}"
    return compiled(name, *numbers, *device.slot(), *parameters)[0]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_compiled_step_equals_numpy(
    compiled: Compiled, devices: dict[str, Device], precision: str
) -> None:
    device = devices[precision]
    for token in TOKENS:
        found = decoded(compiled, device, precision, device.weights, token)
        expected, _ = device.decode([device.slot()], [token], [0])
        largest = np.abs(expected).max()
        np.testing.assert_allclose(found, expected, atol=TOLERANCE[precision] * largest)


def poisoned(device: Device, expert: int) -> dict[str, Array]:
    """The weights with NaN in the matrices of one expert: in their values, or in their scales."""
    weights = dict(device.weights)
    for name, array in weights.items():
        if ".experts." in name and array.dtype != np.int8:
            rows = len(array) // CONFIG.experts
            weights[name] = array.copy()
            weights[name][expert * rows : (expert + 1) * rows] = np.nan
    return weights


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
def test_what_is_rejected(changes: dict[str, Any], message: str) -> None:
    config = dict(recorded("qwen3moe-qwen3moe").config) | changes
    with pytest.raises(ConfigError, match=message):
        ARCHITECTURES["qwen3moe"].from_hugging_face(config)
