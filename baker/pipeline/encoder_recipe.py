"""The recipes in configs/encoders: a file MODEL.toml is one encoder."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

_FOLDER, _SUFFIX = "encoders", ".toml"


@dataclass(frozen=True, kw_only=True)
class EncoderDefaults:
    """The values of a recipe."""

    architecture: str
    precision: str
    lengths: tuple[int, ...]


def encoder_recipes() -> dict[str, EncoderDefaults]:
    """The recipes of every encoder that can be baked, by its name."""
    paths = sorted((files("hearthd.configs") / _FOLDER).iterdir(), key=lambda path: path.name)
    return {
        path.name.removesuffix(_SUFFIX): _recipe(tomllib.loads(path.read_text("utf-8")))
        for path in paths
        if path.name.endswith(_SUFFIX)
    }


def _recipe(data: dict[str, Any]) -> EncoderDefaults:
    return EncoderDefaults(**data | {"lengths": tuple(data["lengths"])})
