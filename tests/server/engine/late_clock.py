"""A clock for deadlines of requests, which depends on what the model has computed."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from tests.fake_runtime import FakeRuntime

HOUR = 3600.0


class LateClock:
    """The engine's clock, which goes ahead by an hour after some calls of the runtime."""

    def __init__(
        self,
        runtime: FakeRuntime,
        monkeypatch: pytest.MonkeyPatch,
        call: Literal["prefill", "decode"] = "decode",
    ) -> None:
        self._calls = 0
        self._limit = math.inf
        self._then: Callable[[], object] = lambda: None
        working = getattr(runtime, call)

        def counted(*arguments: Any, **options: Any) -> Any:
            result = working(*arguments, **options)
            self._calls += 1
            if self._calls == self._limit:
                self._then()
            return result

        monkeypatch.setattr(runtime, call, counted)
        monkeypatch.setattr("hearthd.server.engine.engine.time", self)

    def go_ahead_after(self, calls: int, then: Callable[[], object] = lambda: None) -> None:
        """An hour passes after this many more calls, and `then` is called."""
        self._limit, self._then = self._calls + calls, then

    def monotonic(self) -> float:
        return time.monotonic() + HOUR * (self._calls >= self._limit)
