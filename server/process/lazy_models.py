"""What importing the routes would do at once, and is better done when somebody asks for it.

It knows pydantic and FastAPI's use of it. Called once, before anything of FastAPI is imported.
"""

from __future__ import annotations

import sys
import warnings

from pydantic import BaseModel, ConfigDict
from pydantic.warnings import UnsupportedFieldAttributeWarning


def build_models_when_used() -> None:
    """Let pydantic build each model when it first reads or writes one.

    Of the models of our surfaces and of FastAPI's OpenAPI, most servers never need most: built at
    once they take a fourth of the time in which all is imported, and 8 MB.
    """
    BaseModel.model_config = ConfigDict(defer_build=True)
    # FastAPI ignores this where it makes a model of a route, which is now too early.
    warnings.filterwarnings("ignore", category=UnsupportedFieldAttributeWarning)
    # FastAPI asks of each model whether it is one of pydantic's first version, and goes without it.
    sys.modules.setdefault("pydantic.v1", None)  # type: ignore[arg-type]
