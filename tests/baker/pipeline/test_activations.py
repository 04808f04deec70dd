"""What products round activations to, by the precision and the request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hearthd.baker.pipeline.bake import bake, resolve
from hearthd.baker.pipeline.language_plan import LanguagePlan
from hearthd.bundle import Activations, LanguageManifest, read_manifest_of
from hearthd.models.dsl.mlir.stablehlo import kernels
from hearthd.models.dsl.storage import STORAGES
from hearthd.models.precision import ACTIVATION_TOLERANCE, activation_tolerance
from tests.baker.small_gemma import small_gemma
from tests.conftest import Silent, few_entry_points, options_for

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("precision", "given", "expected"),
    [("native", None, "int8"), ("native", "int16", "int16"), ("int8-g32", None, "int16")],
)
def test_products_with_the_bits_of_a_file_round_to_8_bits_unless_asked(
    tmp_path: Path, precision: str, given: str | None, expected: str
) -> None:
    weights = small_gemma(tmp_path / "weights")
    plan = resolve(
        options_for(
            tmp_path / "bundle", weights=weights, slots=1, precision=precision, activations=given
        )
    )
    assert isinstance(plan, LanguagePlan)
    assert plan.program.activations == expected
    called = kernels(plan.model.program(plan.program).graphs)
    assert any(name.endswith("_a8") for name in called) == (expected == "int8")


@pytest.mark.slow
@pytest.mark.nightly
def test_a_manifest_says_what_products_round_to(tmp_path: Path) -> None:
    weights = small_gemma(tmp_path / "weights")
    options = options_for(tmp_path / "bundle", weights=weights, slots=1, precision="native")
    with few_entry_points():
        manifest = read_manifest_of(bake(options, Silent()), LanguageManifest)
    assert manifest.activations == "int8"
    assert any(name.endswith("_a8") for name in manifest.provenance.kernels.names)
    assert manifest.tolerance > ACTIVATION_TOLERANCE["int8"]


@pytest.mark.nightly  # test_integer_caches.py has a small model
@pytest.mark.slow
def test_int8_activations_and_int8_caches_of_a_real_model_pass_the_self_test(
    tmp_path: Path,
) -> None:
    options = {"model": "smollm2", "slots": 1, "kv_cache": "int8", "activations": "int8"}
    with few_entry_points():
        bundle = bake(options_for(tmp_path / "b", precision="native", **options), Silent())
    manifest = read_manifest_of(bundle, LanguageManifest)
    assert (manifest.caches[0].dtype, manifest.activations) == ("i8", "int8")
    assert [row.offset for row in manifest.golden_rows] == [0, 0, 0]


def test_int16_beside_4_bits_adds_a_sixteenth_of_the_tolerance_of_int8() -> None:
    def tolerance(activations: Activations, *names: str) -> float:
        return activation_tolerance(activations, {STORAGES[name] for name in names})

    names = {"int4-g32", "int4-g32-min", "int4-g32-s256-min"}
    for name in names:
        assert tolerance("int16", "int8-g32", name) == 1 / 16
    others = set(STORAGES) - names
    assert tolerance("int16", *others) == 0
    assert tolerance("int8", "int4-g32") == ACTIVATION_TOLERANCE["int8"]
