"""The weights of calibration tokens: the formula, their independence of threads, and memory."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from hearthd.baker.calibration.calibrated_layers import hessian
from hearthd.baker.calibration.token_weights import (
    STRIDE,
    Gradients,
    random_gradient,
    token_weights,
)
from hearthd.baker.parameters.quantization import NotFiniteError
from hearthd.baker.weights.open_weights import open_weights
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.dsl import functions as f
from hearthd.models.dsl.graph import op_of
from tests.baker.pipeline.test_auto_precision import RandomWeights
from tests.by_day import each_of
from tests.models.families import ours
from tests.models.families.cases import CASES
from tests.models.families.family_recording import recorded, write_folder
from tests.models.families.gemma3.gemma3_cases import GROUPED, TOKENS
from tests.models.families.gemma3.gemma3_reference import forward

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Array = NDArray[Any]

GEMMA = ARCHITECTURES["gemma3"]
SEQUENCES = np.array([TOKENS[:32], TOKENS[8:40]], np.int32)
# A case of each family of decoders.
FAMILIES = {case.architecture: name for name, case in CASES.items()}


def matrices(source: RandomWeights) -> list[str]:
    return [
        name
        for name, values in source.parameters.items()
        if name.startswith("layers.") and values.ndim == 2
    ]


def weights(folder: Path, tokens: Array = SEQUENCES) -> dict[str, Array]:
    source, done = RandomWeights(), list[int]()
    result = token_weights(source, GEMMA, GROUPED, matrices(source), tokens, folder, done.append)
    assert sum(done) == len(tokens)
    return result


def arriving(logits: Array, first: int, bits: np.random.BitGenerator) -> Array:
    """The gradient that is followed back, by the logits (T, V) of a sequence."""
    result = np.zeros_like(logits)
    result[first::STRIDE] = random_gradient(logits[first::STRIDE].astype(np.float32), bits)
    return result


def test_weights_are_the_lengths_of_torchs_gradients(tmp_path: Path) -> None:
    """Of two of four sequences; the others have root mean squares by position."""
    pytest.importorskip("torch", reason="torch is not installed")
    from tests.baker.calibration.torch_gemma3 import squares_of_gradients

    parameters, bits = RandomWeights().parameters, np.random.SFC64(0)
    other = np.array(TOKENS[4:36], np.int32)
    actual = weights(tmp_path, np.stack([SEQUENCES[0], other, SEQUENCES[1], other]))
    first, second = (
        squares_of_gradients(
            GROUPED, parameters, tokens, arriving(forward(GROUPED, parameters, tokens), i, bits)
        )
        for i, tokens in enumerate(SEQUENCES)
    )
    assert actual.keys() == first.keys()
    for name, values in actual.items():
        mean = (first[name] + second[name]) / 2
        expected = np.sqrt(np.concatenate([first[name], mean, second[name], mean]))
        np.testing.assert_allclose(values, expected, rtol=1e-3, atol=1e-5 * expected.max())


def test_random_gradients_have_the_covariance_of_those_of_drawn_tokens() -> None:
    logits = np.random.default_rng(0).normal(size=(1, 7)).astype(np.float32)
    made = random_gradient(np.repeat(logits, 40_000, axis=0), np.random.SFC64(1))
    p = np.exp(logits[0]) / np.exp(logits).sum()
    np.testing.assert_allclose(made.sum(axis=1), 0, atol=1e-6)
    np.testing.assert_allclose(made.T @ made / len(made), np.diag(p) - np.outer(p, p), atol=5e-3)


def test_the_hessian_is_the_weighted_mean_of_the_products_of_inputs() -> None:
    rng = np.random.default_rng(0)
    inputs, w = (rng.normal(size=(50, 6)).astype(np.float32), rng.exponential(size=50))
    expected = sum(a * np.outer(x, x) for a, x in zip(w, inputs.astype(float), strict=True))
    actual = hessian(inputs, (1e-12 * w).astype(np.float32))
    np.testing.assert_allclose(actual, expected / w.sum(), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(hessian(inputs, np.zeros(50, np.float32)), 0)


def test_matrices_are_multiplied_by_one_thread(tmp_path: Path) -> None:
    """The last bits of a sum depend on the number of threads."""
    source, threads = RandomWeights(), set[int]()

    def advance(_: int) -> None:
        threads.update(pool["num_threads"] for pool in threadpool_info())

    with threadpool_limits(2):
        token_weights(source, GEMMA, GROUPED, matrices(source), SEQUENCES, tmp_path, advance)
    assert threads == {1}


def test_weights_are_the_same_each_time(tmp_path: Path) -> None:
    first, second = weights(tmp_path), weights(tmp_path)
    assert first.keys() == second.keys()
    for name, values in first.items():
        np.testing.assert_array_equal(values, second[name])


def test_each_product_is_computed_at_most_twice(tmp_path: Path) -> None:
    source = RandomWeights()
    graph = Gradients(source, GEMMA, GROUPED, matrices(source), 32, tmp_path).graph
    products = [node for node in graph.nodes if op_of(node) is f.times_weight.op]
    counts = Counter(id(node.inputs[1]) for node in products)
    assert len(counts) == len(matrices(source))
    assert max(counts.values()) <= 2


@pytest.mark.nightly
def test_memory_does_not_grow_with_the_number_of_sequences(tmp_path: Path) -> None:
    peaks = []
    for count in (1, 4):
        tracemalloc.start()
        weights(tmp_path, np.repeat(SEQUENCES[:1], count, axis=0))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0]


def test_weights_that_are_not_finite_are_named(tmp_path: Path) -> None:
    source = RandomWeights()
    source.parameters["layers.1.mlp.up_proj.weight"][3, 5] = np.nan
    with pytest.raises(NotFiniteError, match=r"parameter layers.1.mlp.up_proj.weight: .* is nan"):
        token_weights(source, GEMMA, GROUPED, matrices(source), SEQUENCES, tmp_path, lambda _: None)


@pytest.mark.parametrize("name", each_of(FAMILIES))
def test_every_family_has_gradients(name: str, tmp_path: Path) -> None:
    """Each matrix counts at some token; the last layer's value matrix at all, for instance."""
    case = CASES[name]
    write_folder(recorded(name), tmp_path)
    source, architecture = open_weights(tmp_path), ARCHITECTURES[case.architecture]
    config = ours.config_of(source, case.architecture)
    names = [
        parameter
        for parameter, tensor in architecture.model(config).parameters().items()
        if parameter.startswith("layers.") and tensor.type.rank == 2
    ]
    tokens = SEQUENCES[:1, :16]
    result = token_weights(source, architecture, config, names, tokens, tmp_path, lambda _: None)
    assert result
    for values in result.values():
        assert np.isfinite(values).all()
        assert values.min() >= 0 < values.max()
