"""The real `anthropic` client."""

from __future__ import annotations

import functools
from typing import Any

import pytest


@functools.cache
def package() -> Any:
    """The `anthropic` package. Its import takes two seconds: only workers that use it have them."""
    return pytest.importorskip(
        "anthropic",
        reason="anthropic is not installed; test_anthropic.py tests the same without it",
    )
