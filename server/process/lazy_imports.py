"""Make importing the routes cheaper, with less work in pydantic and FastAPI."""

from __future__ import annotations

import sys
import warnings

from pydantic import BaseModel, ConfigDict
from pydantic.warnings import UnsupportedFieldAttributeWarning


def build_models_lazily() -> None:
    """Let pydantic build each model when it is first used, to speed up startup.

    Call this once, before the first import of FastAPI. Most servers never use most of the models
    of Hearth's API and of FastAPI's OpenAPI. Building them all takes a quarter of the import time
    and 8 MB.
    """
    BaseModel.model_config = ConfigDict(defer_build=True)
    # FastAPI ignores this setting in the models that it makes of routes, and pydantic warns.
    warnings.filterwarnings("ignore", category=UnsupportedFieldAttributeWarning)
    # FastAPI imports pydantic's version 1 only to test models for it, and works without it.
    sys.modules.setdefault("pydantic.v1", None)  # type: ignore[arg-type]
