"""The real `anthropic` client."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

import pytest

from tests.patience import PATIENCE
from tests.server import fakes

if TYPE_CHECKING:
    from collections.abc import Iterator


@functools.cache
def package() -> Any:
    """The `anthropic` package. Its import takes two seconds: only workers that use it have them."""
    return pytest.importorskip(
        "anthropic",
        reason="anthropic is not installed; test_anthropic.py tests the same without it",
    )


@contextlib.contextmanager
def client_of(service: Any, *, key: str = "none", **options: Any) -> Iterator[Any]:
    """The client of a service that runs as long as the block."""
    with (
        fakes.running(service, **options) as plain,
        package().Anthropic(
            base_url=f"{plain.base_url}{options.get('prefix', '')}",
            api_key=key,
            max_retries=0,
            timeout=PATIENCE,
            default_headers={"Connection": "close"},
        ) as client,
    ):
        yield client
