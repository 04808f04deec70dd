"""The options of a bake that a user typed, checked before a model is downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hearthd.baker.hub.reference import is_reference
from hearthd.baker.pipeline.bake_options import BadOption, bake_options
from hearthd.bundle import bundle_home
from hearthd.flag_names import flag

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearthd.baker.pipeline.bake_options import BakeOptions

_INPUTS = ("adapter", "mmproj", "calibration", "drafter")


def typed_options(values: Mapping[str, Any]) -> BakeOptions:
    """As bake_options, but BadOption also if a file or a folder does not exist."""
    options = bake_options(values)
    for name in _INPUTS:
        path = getattr(options, name)
        if isinstance(path, Path) and not (is_reference(str(values[name])) or path.exists()):
            raise BadOption(f"{flag(name)}: {path} does not exist{bundle_home.similar_path(path)}")
    return options
