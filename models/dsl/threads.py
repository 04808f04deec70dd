"""All CPUs for what NumPy computes in independent parts."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")
R = TypeVar("R")

_thread = threading.local()


def in_threads(function: Callable[[T], R], parts: Iterable[T]) -> list[R]:
    """The function's result for each part, in order, by one thread for each CPU.

    In one of these threads, by that thread alone: the others have parts of their own.
    """
    if getattr(_thread, "has_part", False):
        return [function(part) for part in parts]
    with ThreadPoolExecutor(os.cpu_count(), "numpy", initializer=_mark) as pool:
        return list(pool.map(function, parts))


def _mark() -> None:
    _thread.has_part = True
