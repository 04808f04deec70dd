"""The kernels that a fuzzer calls."""

from __future__ import annotations

from typing import Any, Protocol


class Library(Protocol):
    """The kernels of an instruction set, as shared library."""

    def function(self, name: str) -> Any:
        """The C function of a kernel."""
