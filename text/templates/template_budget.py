"""The time and memory that rendering one chat template may take.

The budget counts every value that a template makes, whether it keeps the value or not.
"""

from __future__ import annotations

import sys
import time
from collections.abc import ItemsView, KeysView, ValuesView
from typing import Any

import jinja2

MAX_SECONDS = 2.0  # of the processor; on a busy machine three times as long
MAX_BYTES = 128 << 20
MAX_BITS = 64  # of a number
ITEM_BYTES = 64  # upper bound of a number, or of an entry of a list
# Seconds between two reads of the processor's clock, which is much slower than the wall clock.
_CLOCK_INTERVAL = 0.01


class LimitExceeded(jinja2.TemplateError):
    """A template takes too much time or memory."""


class Budget:
    """The rest of the time and memory of one rendering."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin a new rendering."""
        self._bytes = MAX_BYTES
        self._processor_end = time.thread_time() + MAX_SECONDS
        self._wall_end = time.monotonic() + 3 * MAX_SECONDS
        self._next_check = 0.0

    def check_time(self) -> None:
        """Raise LimitExceeded if the time is over."""
        now = time.monotonic()
        if now < self._next_check:
            return
        self._next_check = now + _CLOCK_INTERVAL
        if time.thread_time() > self._processor_end or now > self._wall_end:
            raise LimitExceeded(f"the template takes longer than {MAX_SECONDS:g} s")

    def require(self, size: float) -> None:
        """Raise LimitExceeded unless `size` bytes are left."""
        if size > self._bytes:
            raise LimitExceeded(f"the template makes more than {MAX_BYTES} bytes")

    def spend(self, size: int) -> None:
        """Take `size` bytes; raises LimitExceeded if that is more than what is left."""
        self._bytes -= size
        self.require(0)

    def size_of(self, value: Any) -> int:
        """As `size_of`, up to what is left."""
        return size_of(value, self._bytes)


def size_of(value: Any, limit: float = sys.maxsize) -> int:
    """Estimated bytes of a value and all that it holds; counting stops above `limit`."""
    if isinstance(value, str):
        return sys.getsizeof(value)
    if isinstance(value, int):
        if value.bit_length() > MAX_BITS:
            raise LimitExceeded(f"a number of more than {MAX_BITS} bits")
        return ITEM_BYTES
    if isinstance(value, KeysView | ValuesView | ItemsView):
        value = list(value)
    if not isinstance(value, dict | list | tuple):
        return ITEM_BYTES
    size = ITEM_BYTES * (1 + len(value))
    items = (item for pair in value.items() for item in pair) if isinstance(value, dict) else value
    for item in items:
        if size > limit:
            break
        size += size_of(item, limit - size)
    return size
