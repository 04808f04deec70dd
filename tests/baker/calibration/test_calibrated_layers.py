"""`--precision int4-g32`: layers rounded by what a text has them compute, up to the bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from examples.train_tiny_gemma import tokenizer
from hearthd.baker.atomic_folder import BakeError
from hearthd.baker.calibration.calibrated_layers import (
    CalibratedLayers,
    calibrated_layers,
    divergence,
    hessian,
)
from hearthd.baker.calibration.calibration_text import LENGTH, calibration_text, sequences
from hearthd.baker.calibration.token_weights import token_weights
from hearthd.baker.checks.reproduction import reproduce
from hearthd.baker.parameters.quantization import encoded
from hearthd.baker.pipeline.bake import bake
from hearthd.baker.pipeline.recipe import RecipeError
from hearthd.baker.reference.numpy_runtime import traced
from hearthd.bundle import CALIBRATION, LanguageManifest, read_manifest_of
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.dsl.matrix_format import FORMATS
from hearthd.models.dsl.storage import STORAGES
from tests.baker.pipeline.test_auto_precision import RandomWeights, log_probabilities
from tests.baker.small_gemma import small_gemma
from tests.conftest import Silent, few_entry_points, options_for
from tests.models.families.gemma3.gemma3_cases import GROUPED, TOKENS
from tests.models.unpacked import real_weights

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Array = NDArray[Any]

GEMMA = ARCHITECTURES["gemma3"]


def rounded(
    source: RandomWeights, folder: Path, bits: int
) -> tuple[dict[str, Array], CalibratedLayers]:
    """The weights, in layers rounded for the first 32 of TOKENS, and the rounding."""
    storage = STORAGES[f"int{bits}-g32"]
    layers = {
        name: storage
        for name, values in source.parameters.items()
        if name.startswith("layers.") and values.ndim == 2
    }
    tokens = np.array([TOKENS[:32]], np.int32)
    weights = token_weights(source, GEMMA, GROUPED, layers, tokens, folder, lambda _: None)
    done: list[int] = []
    made = calibrated_layers(source, GEMMA, GROUPED, layers, tokens, weights, folder, done.append)
    assert made.arrays.keys() == made.divergences.keys() == layers.keys()
    assert sum(done) == sum(source.parameters[name].nbytes for name in layers)
    return source.parameters | {
        name: real_weights(stored, FORMATS[f"int{bits}-g32"])
        for name, stored in made.arrays.items()
    }, made


@pytest.mark.parametrize("bits", [4, 5])
def test_predictions_change_less_than_by_rounding_each_weight(tmp_path: Path, bits: int) -> None:
    source = RandomWeights()
    calibrated, _ = rounded(source, tmp_path, bits)
    storage = STORAGES[f"int{bits}-g32"]
    plain = source.parameters | {
        name: real_weights(encoded(storage, values), FORMATS[storage.name])
        for name, values in source.parameters.items()
        if name.startswith("layers.") and values.ndim == 2
    }
    exact = log_probabilities(source.parameters)
    divergences = [
        float((np.exp(exact) * (exact - log_probabilities(weights))).sum(axis=1).mean())
        for weights in (calibrated, plain)
    ]
    assert divergences[0] < 0.5 * divergences[1]


def test_what_a_matrix_adds_to_the_divergence_is_its_products_change() -> None:
    rng = np.random.default_rng(0)
    x, change = rng.normal(size=(50, 32)), rng.normal(size=(16, 32))
    weights = rng.exponential(size=50)
    products = (np.square(x @ change.T).mean(axis=1) * weights).mean()
    got = divergence(
        change.astype(np.float32),
        hessian(x.astype(np.float32), weights.astype(np.float32)),
        weights.astype(np.float32),
    )
    assert got == pytest.approx(products * weights.mean() / 2, rel=1e-5)


def test_a_bit_more_leaves_about_a_quarter_of_the_expected_divergence(tmp_path: Path) -> None:
    source = RandomWeights()
    expected = []
    for bits in (4, 5):
        folder = tmp_path / str(bits)
        folder.mkdir()
        expected.append(sum(rounded(source, folder, bits)[1].divergences.values()))
    assert 3 < expected[0] / expected[1] < 6


# --- bakes


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    return small_gemma(tmp_path / "weights")


@pytest.mark.nightly  # test_auto_stage.py has one of mixed precision
@pytest.mark.slow
def test_a_bundle_with_its_own_calibration_text_is_reproduced(
    tmp_path: Path, weights: Path
) -> None:
    text = tmp_path / "days.txt"
    text.write_text("after monday comes tuesday. " * 40)
    options = options_for(
        tmp_path / "bundle", weights=weights, precision="int4-g32", slots=1, calibration=text
    )
    with few_entry_points():
        bundle = bake(options, Silent())
        differences = reproduce(bundle, weights, Silent())
    assert differences == []
    manifest = read_manifest_of(bundle, LanguageManifest)
    assert manifest.activations == "int8"
    assert (bundle / CALIBRATION).read_text() == text.read_text()
    for weight in traced(manifest).weights:
        matrices = [shape for shape in weight.sources.values() if len(shape) == 2]
        in_layer = next(iter(weight.sources)).startswith("layers.")
        if matrices:
            assert weight.storage is (
                STORAGES["int4-g32"] if in_layer else STORAGES["int8-g32"].table
            )


# --- the text


def test_the_shipped_text_has_several_kinds_of_text() -> None:
    text = calibration_text(None)
    assert 15_000 < len(text.encode()) < 60_000
    for part in ("def ", "#include", "SELECT", "User:", "| Method |", "Der ", "吾輩", "है"):
        assert part in text


def test_each_sequence_begins_as_a_text_does() -> None:
    made = sequences("ab" * 1000, tokenizer(), 256, 2048)
    assert made.shape == (3, LENGTH)
    np.testing.assert_array_equal(made[:, 0], 256)
    np.testing.assert_array_equal(made[:, 1:].reshape(-1), list(b"ab" * 1000)[: 3 * LENGTH - 3])
    assert sequences("ab" * 1000, tokenizer(), None, 100).shape == (20, 100)


def test_a_short_text_is_rejected() -> None:
    with pytest.raises(BakeError, match="--calibration: the text has 9 tokens, expected at least"):
        sequences("too short", tokenizer(), 256, 2048)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "--calibration: .*text cannot be read: No such file"),
        (b"\xff\xfd", "--calibration: .*text cannot be read: it is not UTF-8 text"),
    ],
)
def test_a_wrong_calibration_file_is_one_sentence(
    tmp_path: Path, weights: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "text"
    if content is not None:
        path.write_bytes(content)
    options = options_for(
        tmp_path / "bundle", weights=weights, precision="int4-g32", calibration=path
    )
    with pytest.raises(BakeError, match=message) as error:
        bake(options, Silent())
    assert "\n" not in str(error.value)
    assert not (tmp_path / "bundle").exists()


def test_a_precision_that_needs_no_text_rejects_one(tmp_path: Path, weights: Path) -> None:
    (tmp_path / "text").write_text("some text")
    options = options_for(
        tmp_path / "bundle", weights=weights, precision="bf16", calibration=tmp_path / "text"
    )
    with pytest.raises(RecipeError, match=r"bf16 does not .* --precision int4-g32 or int5-g32"):
        bake(options, Silent())
