"""The recipes in configs/, and the values of a request that replace theirs.

Each file MODEL.toml is one published model: its architecture, its sizes and its defaults.
"""

from __future__ import annotations

import dataclasses
import functools
import tomllib
from dataclasses import MISSING, dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from hearthd.baker.precision.auto_precision import AUTO, MAX_KL
from hearthd.baker.weights.open_weights import PackagedWeights
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.dsl.functions import DECODE_ROWS
from hearthd.models.precision import ACTIVATION_BITS, KV_CACHES, NAMED_PRECISIONS, PRECISIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from hearthd.models.bundle import Activations
    from hearthd.models.config import ModelConfig
    from hearthd.models.decoder.architecture import Architecture
    from hearthd.models.precision import KvCache

# The golden prompts and their continuations must fit.
MIN_CONTEXT = 64
_SUFFIX = ".toml"
# Tokens of the verify entry points. Verifying four takes little longer than one decode step;
# eight are faster only in text that is copied word for word.
VERIFY_TOKENS = (4,)


class RecipeError(Exception):
    """A recipe or an option is invalid; the message names it."""


@dataclass(frozen=True, kw_only=True)
class BakeRequest:
    """A language model to bake. None means: as the recipe says.

    `max_memory` limits the memory of serving, in bytes; None: no limit. `max_kl` is the
    largest mean KL divergence from F32, in nats, that the precision `auto` accepts, `max_bytes` the
    most bytes that it lets the weights take; at most one of them is given. `calibration`
    is the text that layers are rounded for; None: the one that is shipped. `adapter` is the folder
    of a LoRA adapter, which is merged into the weights. `adapters` is the number of places for
    adapters that a server loads, each of at most `rank`.
    """

    model: str
    weights: Path | None
    size: str | None
    target: str
    precision: str | None
    context: int | None
    slots: int | None
    out: Path | None
    kv_cache: str | None = None
    activations: str | None = None
    max_memory: int | None = None
    max_kl: float | None = None
    max_bytes: int | None = None
    calibration: Path | None = None
    adapter: Path | None = None
    adapters: int | None = None
    rank: int | None = None

    @property
    def kl_limit(self) -> float:
        """The largest mean KL divergence that `auto` accepts, in nats."""
        return MAX_KL if self.max_kl is None else self.max_kl


@dataclass(frozen=True, kw_only=True)
class Defaults:
    """The values of a recipe; `kv_cache` None: as the precision says."""

    context: int
    slots: int
    precision: str
    prefill_tokens: tuple[int, ...]
    kv_cache: KvCache | None = None
    activations: Activations = "int16"
    adapters: int = 0
    rank: int = 16


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One size of a model of configs/.

    shape    layers and width, which identify a size; vocabularies differ between fine-tunes
    weights  are baked when the request names none
    """

    model: str
    size: str
    shape: tuple[int, int]
    architecture: Architecture[Any]
    defaults: Defaults
    weights: PackagedWeights | None


@functools.cache
def recipes() -> Mapping[str, tuple[Recipe, ...]]:
    """The recipes of every model that can be baked, by its name, the smallest size first."""
    models = sorted(
        entry.name.removesuffix(_SUFFIX)
        for entry in files("hearthd.configs").iterdir()
        if entry.name.endswith(_SUFFIX)
    )
    return {model: tuple(_read(model)) for model in models}


def check_storage(request: BakeRequest) -> None:
    """Raise RecipeError for a precision, a KV cache or activations that do not exist.

    None is the recipe's.
    """
    name = request.precision
    if name not in (None, AUTO, *NAMED_PRECISIONS):
        renamed = "; int8 was renamed to int8-g32" if name == "int8" else ""
        raise RecipeError(
            f"--precision: got {name!r}, expected {', '.join(NAMED_PRECISIONS)}, {AUTO}{renamed}"
        )
    if request.kv_cache not in (None, *KV_CACHES):
        raise RecipeError(f"--kv-cache: got {request.kv_cache!r}, expected {', '.join(KV_CACHES)}")
    if request.activations not in (None, *ACTIVATION_BITS):
        raise RecipeError(
            f"--activations: got {request.activations!r}, expected {', '.join(ACTIVATION_BITS)}"
        )


def check_activations(request: BakeRequest, precision: str) -> None:
    """Raise RecipeError for activations that the products of the precision do not round."""
    if request.activations not in (None, *PRECISIONS[precision].activations):
        rounding = (name for name in NAMED_PRECISIONS if PRECISIONS[name].activations)
        raise RecipeError(
            f"--activations: {precision} multiplies floats and rounds no activations to "
            f"{request.activations}; specify --precision {' or '.join(rounding)}"
        )


def check_limits(request: BakeRequest, precision: str) -> None:
    """Raise RecipeError for limits of `auto` with another precision, or for both of them."""
    limits = {"--max-kl": request.max_kl, "--max-bytes": request.max_bytes}
    given = [name for name, value in limits.items() if value is not None]
    if given and precision != AUTO:
        raise RecipeError(f"{given[0]} needs --precision {AUTO}")
    if len(given) > 1:
        raise RecipeError(f"{' and '.join(given)}: got both, expected one; omit one of them")


def check_calibration(request: BakeRequest, precision: str) -> None:
    """Raise RecipeError for a calibration text that the precision does not use."""
    if request.calibration is None or precision == AUTO:
        return
    if not PRECISIONS[precision].calibrated:
        rounding = (name for name in NAMED_PRECISIONS if PRECISIONS[name].calibrated)
        raise RecipeError(
            f"--calibration: {precision} does not round by a calibration text; specify "
            f"--precision {' or '.join(rounding)}"
        )


def architecture_of(request: BakeRequest) -> Architecture[Any]:
    """The architecture of the model that a request names."""
    return recipes()[request.model][0].architecture


def packaged_weights(model: str, size: str | None = None) -> PackagedWeights:
    """The packaged weights of a model, by default of any size; raises RecipeError for none."""
    for recipe in recipes()[model]:
        if recipe.weights is not None and size in (None, recipe.size):
            return recipe.weights
    named = model if size is None else f"{model} {size}"
    raise RecipeError(f"no package contains the weights of {named}; specify --weights")


def size_of(model: str, config: ModelConfig) -> str | None:
    """The name of the size with this depth and width, or None."""
    shape = (config.layers, config.hidden)
    return next((recipe.size for recipe in recipes()[model] if recipe.shape == shape), None)


def bundle_name(request: BakeRequest, config: ModelConfig, defaults: Defaults) -> str:
    """The name of a bundle whose request names no folder."""
    size = size_of(request.model, config) or "custom"
    parts = [request.model, size, defaults.precision]
    return "-".join(parts if request.target == "host" else [*parts, request.target])


def defaults_for(request: BakeRequest, config: ModelConfig) -> Defaults:
    """The values of the recipe for the weights' size, replaced by those of the request.

    Raises RecipeError when the request names another size than the weights have, or a context or
    number of slots out of range.
    """
    size = size_of(request.model, config)
    if request.size is not None and request.size != size:
        raise RecipeError(
            f"--size {request.size}: the weights have size {size or 'unknown'} "
            f"({config.layers} layers of width {config.hidden})"
        )
    smallest, *larger = recipes()[request.model]
    recipe = next((recipe for recipe in larger if recipe.size == size), smallest)
    usual = recipe.defaults
    usual = dataclasses.replace(usual, context=min(usual.context, config.max_context))
    chosen = dataclasses.replace(usual, **dict(_requested(request)))
    if not MIN_CONTEXT <= chosen.context <= config.max_context:
        raise RecipeError(
            f"--context {chosen.context} is out of range: expected {MIN_CONTEXT} to "
            f"{config.max_context}, the context that the model was trained for"
        )
    if chosen.slots < 1:
        raise RecipeError(f"--slots {chosen.slots} is out of range: expected at least 1")
    if request.rank is not None and not chosen.adapters:
        raise RecipeError("--rank needs --adapters")
    return chosen


def decode_batches(slots: int) -> tuple[int, ...]:
    """Batch sizes of the decode entry points: powers of two below the slots, and the slots.

    At most DECODE_ROWS, since all batch sizes must round alike; more slots are decoded in turns.
    """
    largest = min(slots, DECODE_ROWS)
    powers = (1 << i for i in range(largest.bit_length()))
    return (*(power for power in powers if power < largest), largest)


def _requested(request: BakeRequest) -> Iterator[tuple[str, Any]]:
    """The fields of Defaults that a request sets."""
    for field in dataclasses.fields(Defaults):
        value = getattr(request, field.name, None)
        if value is not None:
            yield field.name, value


def _read(model: str) -> Iterator[Recipe]:
    """The recipes of a model: one for each of its sizes."""
    data = tomllib.loads(files("hearthd.configs").joinpath(model + _SUFFIX).read_text("utf-8"))
    weights = data.pop("weights", {})
    required = (one.name for one in dataclasses.fields(Defaults) if one.default is MISSING)
    expected = {"architecture", "sizes", *required}
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
