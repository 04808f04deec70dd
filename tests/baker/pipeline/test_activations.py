"""What products round activations to, by the precision and the request."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.baker.pipeline.bake import bake, resolve
from hearthd.baker.pipeline.language_plan import LanguagePlan
from hearthd.baker.pipeline.shared_stages import ComparisonFailed
from hearthd.baker.pipeline.stages import comparison_stage
from hearthd.baker.pipeline.stages.program_comparison import compare_program
from hearthd.baker.reference.numpy_runtime import slightly_changed
from hearthd.bundle import Activations, LanguageManifest, read_manifest_of
from hearthd.models.dsl.mlir.stablehlo import kernels
from hearthd.models.dsl.storage import STORAGES
from hearthd.models.precision import ACTIVATION_TOLERANCE, activation_tolerance
from tests.baker.small_gemma import small_gemma
from tests.conftest import Silent, few_entry_points, options_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.runtime.checks.self_test import Verdict


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


def baked_tolerance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, activations: str, changed: Callable[..., Any]
) -> float:
    """The tolerance of a small Gemma whose programs all fail with the usual tolerance.

    `changed` are the parameters that a bake calls slightly changed.
    """

    def strict(bundle: Path, manifest: LanguageManifest, *others: Any) -> Verdict:
        verdict = compare_program(bundle, manifest, *others)
        return replace(verdict, passed=manifest.tolerance > 1.1)

    monkeypatch.setattr(comparison_stage, "compare_program", strict)
    monkeypatch.setattr(comparison_stage, "slightly_changed", changed)
    weights = small_gemma(tmp_path / "weights")
    options = {"precision": "int8-g32", "slots": 1, "activations": activations}
    with few_entry_points():
        bundle = bake(options_for(tmp_path / "bundle", weights=weights, **options), Silent())
    return read_manifest_of(bundle, LanguageManifest).tolerance


def much_changed(parameters: dict[str, NDArray[Any]], _: int = 0) -> dict[str, NDArray[Any]]:
    vectors = {name: 3 * array for name, array in parameters.items() if array.ndim == 1}
    return {**parameters, **vectors}


@pytest.mark.slow
def test_a_model_that_amplifies_rounding_is_compared_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a dense model whose weights have one bit each."""
    assert baked_tolerance(tmp_path, monkeypatch, "int8", much_changed) > 1.1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("activations", "changed"), [("int8", slightly_changed), ("int16", much_changed)]
)
def test_a_wrong_program_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    activations: str,
    changed: Callable[..., Any],
) -> None:
    with pytest.raises(ComparisonFailed):
        baked_tolerance(tmp_path, monkeypatch, activations, changed)


def test_int16_beside_4_bits_adds_a_sixteenth_of_the_tolerance_of_int8() -> None:
    def tolerance(activations: Activations, *names: str) -> float:
        return activation_tolerance(activations, {STORAGES[name] for name in names})

    names = {"int4-g32", "int4-g32-min", "int4-g32-s256-min"}
    for name in names:
        assert tolerance("int16", "int8-g32", name) == 1 / 16
    others = set(STORAGES) - names
    assert tolerance("int16", *others) == 0
    assert tolerance("int8", "int4-g32") == ACTIVATION_TOLERANCE["int8"]
