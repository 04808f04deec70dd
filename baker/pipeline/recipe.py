"""The recipes in configs/: each file MODEL.toml is one family of published models.

A recipe names the architecture of a family, its sizes and its defaults.
"""

from __future__ import annotations

import dataclasses
import functools
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from hearthd.baker.weights.open_weights import PackagedWeights, open_weights
from hearthd.baker.weights.source import NoWeights
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.dsl.functions import DECODE_ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from hearthd.baker.weights.source import WeightSource
    from hearthd.models.config import ModelConfig
    from hearthd.models.decoder.architecture import Architecture

_SUFFIX = ".toml"
# Chunks that a long prefill reads at once: four chunks of 128 tokens give each expert of
# Qwen3-30B-A3B 32 rows.
LONG_PREFILL_CHUNKS = 4
# The widest model without experts that has one: SmolLM2, with a width of 576, is 1.2 times as fast
# with it, and Llama 3.2 1B, with 2048, as fast as without.
NARROW = 1024
# Tokens of the verify entry points. Verifying four takes little longer than one decode step;
# eight are faster only in text that is copied word for word.
VERIFY_TOKENS = (4,)
# Tokens of each of two sequences that are verified at once. Four rows take 1.2 times as long as the
# two rows of a decode, and eight take 1.9 times as long (docs/results/zen-4.md).
PAIR_TOKENS = 2
# With a drafter, of whose tokens often only the first is likely: to verify two tokens takes 1.2
# times, and four 1.4 to 1.7 times as long as a decode (docs/results/zen-4.md).
VERIFY_TOKENS_OF_DRAFTER = (2, 4)
# The same for a model without states. A verify leaves a copy of them for each token: in Qwen3.5 4B
# four more tokens are 211 MB for each slot. Eight tokens take 15 MB more scratch than four in that
# shape, and the engine verifies as many only where that gives more tokens in the time.
VERIFY_TOKENS_WITHOUT_STATES = (*VERIFY_TOKENS_OF_DRAFTER, 8)


class RecipeError(Exception):
    """A recipe or an option is invalid; the message names it."""


@dataclass(frozen=True, kw_only=True)
class Defaults:
    """The values of a recipe for options that are not given, and the sizes of prefills."""

    slots: int
    precision: str
    prefill_tokens: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One size of a family of configs/.

    shape    layers and width, which identify a size; vocabularies differ between fine-tunes
    weights  are baked when none are named
    """

    model: str
    size: str
    shape: tuple[int, int]
    architecture: Architecture[Any]
    defaults: Defaults
    weights: PackagedWeights | None


def packaged_names() -> list[str]:
    """The names of models whose weights come in a Python package."""
    return [name for name, sizes in recipes().items() if any(each.weights for each in sizes)]


@functools.cache
def recipes() -> Mapping[str, tuple[Recipe, ...]]:
    """The recipes of every family that can be baked, by its name, the smallest size first."""
    models = sorted(
        entry.name.removesuffix(_SUFFIX)
        for entry in files("hearthd.configs").iterdir()
        if entry.name.endswith(_SUFFIX)
    )
    return {model: tuple(_read(model)) for model in models}


def packaged_weights(model: str, size: str | None = None) -> PackagedWeights:
    """The packaged weights of a family, by default of any size; raises NoWeights for none."""
    for recipe in recipes().get(model, ()):
        if recipe.weights is not None and size in (None, recipe.size):
            return recipe.weights
    named = model if size is None else f"{model} {size}"
    raise NoWeights(f"no package contains the weights of {named}")


def open_named(model: str, weights: Path | None, size: str | None = None) -> WeightSource:
    """Open the path in `weights`, or the package of a family if it is None.

    For commands that have the option --weights. Raises as open_weights.
    """
    if weights is not None:
        return open_weights(weights)
    try:
        return open_weights(packaged_weights(model, size))
    except NoWeights as error:
        raise NoWeights(f"{error}; specify --weights PATH") from error


def size_of(model: str, config: ModelConfig) -> str | None:
    """The name of the size with this depth and width, or None."""
    shape = (config.layers, config.hidden)
    return next((recipe.size for recipe in recipes().get(model, ()) if recipe.shape == shape), None)


def defaults_of(model: str, config: ModelConfig) -> Defaults:
    """The defaults for weights of a family: of their size, or else of the smallest."""
    smallest, *larger = recipes()[model]
    size = size_of(model, config)
    return next((recipe for recipe in larger if recipe.size == size), smallest).defaults


def decode_batches(slots: int) -> tuple[int, ...]:
    """Batch sizes of the decode entry points: powers of two below the slots, and the slots.

    At most DECODE_ROWS, since all batch sizes must round alike; more slots are decoded in turns.
    """
    largest = min(slots, DECODE_ROWS)
    powers = (1 << i for i in range(largest.bit_length()))
    return (*(power for power in powers if power < largest), largest)


def _read(model: str) -> Iterator[Recipe]:
    """The recipes of a family: one for each of its sizes."""
    data = tomllib.loads(files("hearthd.configs").joinpath(model + _SUFFIX).read_text("utf-8"))
    weights = data.pop("weights", {})
    expected = {"architecture", "sizes", *(field.name for field in dataclasses.fields(Defaults))}
    if data.keys() != expected:
        raise RecipeError(
            f"configs/{model}{_SUFFIX}: got the keys {sorted(data.keys())}, "
            f"expected {sorted(expected)}"
        )
    architecture, sizes = ARCHITECTURES[data.pop("architecture")], data.pop("sizes")
    defaults = Defaults(**{**data, "prefill_tokens": tuple(data["prefill_tokens"])})
    unknown = sorted(weights.keys() - set(sizes))
    if unknown:
        raise RecipeError(
            f"configs/{model}{_SUFFIX}: weights of an unknown size: got {unknown}, "
            f"expected {list(sizes)}"
        )
    for size, (layers, width) in sizes.items():
        yield Recipe(
            model=model,
            size=size,
            shape=(layers, width),
            architecture=architecture,
            defaults=defaults,
            weights=PackagedWeights(**weights[size]) if size in weights else None,
        )
