"""How long tests wait for what must come. A test of a timeout has one of its own."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 60.0  # seconds: the machine may be loaded


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds; raises AssertionError after PATIENCE."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
