"""What to bake: the defaults of a model's size in configs/, overridden by the command line."""

from __future__ import annotations

import dataclasses
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from models.gemma3_config import PRESETS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from models.gemma3_config import Config

# The shape that takes its defaults when the weights are of none of the presets' shapes.
_SMALLEST = "270m"
# The golden prompts and their continuations must fit.
_LEAST_CONTEXT = 64


class RecipeError(Exception):
    """A default or an option does not fit; the message names it."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What the command line asks for; None where it leaves the choice to the defaults."""

    weights: Path | None
    size: str | None
    target: str
    precision: str | None
    context: int | None
    slots: int | None
    out: Path | None


@dataclass(frozen=True, kw_only=True)
class Defaults:
    """The content of one file of configs/."""

    context: int
    slots: int
    precision: str
    prefill_tokens: tuple[int, ...]


def size_of(config: Config) -> str | None:
    """The preset of that depth and width; vocabularies differ between fine-tunes."""
    for size, preset in PRESETS.items():
        if (preset.layers, preset.hidden) == (config.layers, config.hidden):
            return size
    return None


def defaults_for(order: Order, config: Config) -> Defaults:
    """The defaults of the weights' size, with what the order says in their place.

    Raises RecipeError when the order names another size than the weights have, or a context or
    number of slots that cannot be.
    """
    found = size_of(config)
    if order.size is not None and order.size != found:
        raise RecipeError(
            f"--size {order.size}: the weights are of size {found or 'unknown'} "
            f"({config.layers} layers of width {config.hidden})"
        )
    defaults = _read_defaults(f"gemma3-{found or _SMALLEST}.toml")
    said = {
        field.name: getattr(order, field.name)
        for field in dataclasses.fields(Defaults)
        if getattr(order, field.name, None) is not None
    }
    chosen = dataclasses.replace(defaults, **said)
    if not _LEAST_CONTEXT <= chosen.context <= config.max_context:
        raise RecipeError(
            f"--context {chosen.context}: wanted {_LEAST_CONTEXT} to {config.max_context}, "
            "the context that the model was trained for"
        )
    if chosen.slots < 1:
        raise RecipeError(f"--slots {chosen.slots}: wanted at least 1")
    return chosen


def decode_batches(slots: int) -> tuple[int, ...]:
    """Batch sizes of the decode entry points: powers of two below the slots, and the slots."""
    powers = (1 << i for i in range(slots.bit_length()))
    return (*(power for power in powers if power < slots), slots)


def _read_defaults(name: str) -> Defaults:
    data: Mapping[str, Any] = tomllib.loads(files("configs").joinpath(name).read_text("utf-8"))
    fields = {field.name for field in dataclasses.fields(Defaults)}
    if data.keys() != fields:
        raise RecipeError(
            f"configs/{name}: wanted the keys {sorted(fields)}, got {sorted(data.keys())}"
        )
    return Defaults(**{**data, "prefill_tokens": tuple(data["prefill_tokens"])})
