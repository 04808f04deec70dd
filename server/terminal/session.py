"""A service in this process with a blocking interface, one request at a time.

Ctrl-C during a call cancels the answer and raises KeyboardInterrupt. The module knows no flags and
prints nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

from hearthd.server.errors import SelfTestFailed
from hearthd.server.services.service import Service
from hearthd.text.answer import AnswerSummary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
    from types import TracebackType
    from typing import Any, Self

    from hearthd.server.services.language_service import LanguageService
    from hearthd.text.text_request import TextRequest

Served = TypeVar("Served", bound=Service)
Result = TypeVar("Result")


class Session(Generic[Served]):
    """Context manager: start the service, or raise SelfTestFailed; stop it at the end."""

    def __init__(self, service: Served) -> None:
        self.service = service
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        self._runner.__enter__()
        try:
            verdict = self._runner.run(self.service.start())
            if not verdict.passed:
                raise SelfTestFailed(verdict.message)
        except BaseException:  # also KeyboardInterrupt
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        type_: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._runner.run(self.service.stop())
        self._runner.__exit__(type_, error, trace)

    def run(self, call: Coroutine[Any, Any, Result]) -> Result:
        """The result of a call of the service."""
        return self._runner.run(call)

    def answer(
        self: Session[LanguageService], request: TextRequest, write: Callable[[str], None]
    ) -> AnswerSummary:
        """Answer a request, calling `write` with each piece of text.

        Raises RequestError, and KeyboardInterrupt when the answer is cancelled.
        """
        return self.run(self._answer(request, write))

    def pieces(self: Session[LanguageService], request: TextRequest) -> Iterator[str]:
        """The pieces of the answer to a request; raises as `answer`.

        Closing the iterator cancels the answer.
        """
        with self.run(self.service.complete(request)) as completion:
            pieces = completion.pieces()
            while not isinstance(piece := self.run(_next(pieces)), AnswerSummary):
                if piece.text:  # a token can be a part of a character
                    yield piece.text

    async def _answer(
        self: Session[LanguageService], request: TextRequest, write: Callable[[str], None]
    ) -> AnswerSummary:
        with await self.service.complete(request) as completion:
            async for piece in completion.pieces():
                if isinstance(piece, AnswerSummary):
                    return piece
                write(piece.text)
        raise AssertionError("a completion ended without a summary")


async def _next(pieces: AsyncIterator[Result]) -> Result:
    return await anext(pieces)


def usage_line(summary: AnswerSummary) -> str:
    """One line with the token counts, times and seed of an answer, and how full the context is."""
    timings = summary.timings
    speed = timings.tokens_per_second
    cached = f" ({summary.cached_tokens} from the cache)" if summary.cached_tokens else ""
    used = summary.prompt_tokens + summary.completion_tokens
    dropped = f" ({summary.dropped_tokens} dropped from the middle)" * (summary.dropped_tokens > 0)
    return (
        f"{summary.prompt_tokens} prompt token{'s' * (summary.prompt_tokens != 1)}"
        f"{dropped}{cached} "
        f"in {timings.prefill_ms / 1e3:.2f} s, "
        f"{summary.completion_tokens} token{'s' * (summary.completion_tokens != 1)} "
        f"in {timings.decode_ms / 1e3:.2f} s"
        f"{f', {speed:.1f} tokens/s' if speed else ''}, "
        f"context {used} of {timings.n_ctx}, {summary.finish_reason}, seed {summary.seed}"
    )
