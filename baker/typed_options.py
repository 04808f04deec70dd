"""Check the options of a bake before a model is downloaded, which takes long."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hearthd.baker.hub.reference import is_reference
from hearthd.baker.pipeline.bake_options import BadOption, BakeOptions, bake_options
from hearthd.bundle import bundle_home
from hearthd.flag_names import flag

if TYPE_CHECKING:
    from collections.abc import Mapping

_INPUTS = ("adapter", "mmproj", "calibration", "drafter")


def typed_options(values: Mapping[str, Any]) -> BakeOptions:
    """As bake_options; also raises BadOption for a file or a folder that is not there."""
    options = bake_options(values)
    for name in _INPUTS:
        path = getattr(options, name)
        if isinstance(path, Path) and not (is_reference(str(values[name])) or path.exists()):
            raise BadOption(f"{flag(name)}: {path} does not exist{bundle_home.similar_path(path)}")
    return options
