"""A model as Ollama describes it: weights, and what is beside them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.bundle import NO_PRESET, Preset

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


OTHER_TEMPLATE = (
    "is in Go's template language, and not used: chats use the chat template of the weights; "
    "`hearth serve --chat-template-file` takes another one, in Jinja"
)


@dataclass(frozen=True, kw_only=True)
class DescribedModel:
    """What a Modelfile or a manifest of Ollama says.

    base    what `hearth bake` takes as MODEL: the path of weights, or hf:ORG/REPO
    name    a readable name for a bundle of it
    files   files that options of the bake name, by the option: adapter, mmproj
    preset  settings of requests
    notes   sentences about what is not used
    """

    base: str
    name: str
    files: Mapping[str, Path] = dataclasses.field(default_factory=dict)
    preset: Preset = NO_PRESET
    notes: tuple[str, ...] = ()
