"""A service in this process, from its self-test to its end, for who asks one thing at a time.

It turns the service's asynchronous answers into calls that return, and Ctrl-C during one of them
into KeyboardInterrupt after the answer was cancelled. It knows no flags and prints nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from server.errors import SelfTestFailed
from server.text.answer import Summary

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from server.services.language_service import LanguageService
    from server.text.completion_request import CompletionRequest


class Session:
    """Starts the service on entering, raises SelfTestFailed, and stops it on leaving."""

    def __init__(self, service: LanguageService) -> None:
        self.service = service
        self._runner = asyncio.Runner()

    def __enter__(self) -> Session:
        self._runner.__enter__()
        verdict = self._runner.run(self.service.start())
        if not verdict.passed:
            self.__exit__(None, None, None)
            raise SelfTestFailed(verdict.message)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._runner.run(self.service.stop())
        self._runner.__exit__(kind, error, trace)

    def answer(self, request: CompletionRequest, write: Callable[[str], None]) -> Summary:
        """Write the text of an answer as it comes; raises ServerError and KeyboardInterrupt."""
        return self._runner.run(self._answer(request, write))

    async def _answer(self, request: CompletionRequest, write: Callable[[str], None]) -> Summary:
        with await self.service.complete(request) as completion:
            async for piece in completion.pieces():
                if isinstance(piece, Summary):
                    return piece
                write(piece.text)
        raise AssertionError("a completion ended without a summary")


def figures(summary: Summary) -> str:
    """What an answer took, in a line."""
    timings = summary.timings
    speed = timings.tokens_per_second
    cached = f" ({summary.cached_tokens} from the cache)" if summary.cached_tokens else ""
    return (
        f"{summary.prompt_tokens} prompt tokens{cached} in {timings.prefill_ms / 1e3:.2f} s, "
        f"{summary.completion_tokens} tokens in {timings.decode_ms / 1e3:.2f} s"
        f"{f', {speed:.1f} tokens/s' if speed else ''}, "
        f"{summary.finish_reason}, seed {summary.seed}"
    )
