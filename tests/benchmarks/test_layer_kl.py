"""The KL divergence of rounded layers against a plain forward pass."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.layer_kl import Layers
from hearthd.baker.parameters.quantization import encoded
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.dsl.matrix_format import INT4
from hearthd.models.dsl.storage import STORAGES
from tests.baker.pipeline.test_auto_precision import RandomWeights, log_probabilities
from tests.models.families.gemma3.gemma3_cases import GROUPED, TOKENS
from tests.models.unpacked import real_weights

STORAGE = STORAGES["int4-g32"]


def test_the_divergence_is_that_of_a_plain_forward_pass() -> None:
    source = RandomWeights()
    texts = [tuple(TOKENS[:32]), tuple(TOKENS[:13])]
    layers = Layers(source, ARCHITECTURES["gemma3"], GROUPED, texts, every=3)
    rounded = source.parameters | {
        name: real_weights(encoded(STORAGE, values), INT4)
        for name, values in source.parameters.items()
        if name in layers.matrices
    }
    p, q = log_probabilities(source.parameters), log_probabilities(rounded)
    divergences = (np.exp(p) * (p - q)).sum(axis=1)
    actual = layers.divergences(layers.nearest(STORAGE))
    assert actual == pytest.approx([*divergences[1:32:3], *divergences[1:13:3]], rel=1e-3)


def test_eight_bits_and_calibration_lose_less_than_four_bits() -> None:
    layers = Layers(RandomWeights(), ARCHITECTURES["gemma3"], GROUPED, [tuple(TOKENS[:32])], 1)
    four, eight = (
        float(np.mean(layers.divergences(layers.nearest(STORAGES[name]))))
        for name in ("int4-g32", "int8-g32")
    )
    calibrated = layers.calibrated(STORAGE, np.array([TOKENS[:32]], np.int32))
    assert eight < 0.02 * four
    assert np.mean(layers.divergences(calibrated)) < 0.7 * four
