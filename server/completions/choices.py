"""Several completions that answer one request, read and cancelled together."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.server.fault_isolation import STOPS
from hearthd.text.answer import AnswerSummary, Piece

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from hearthd.server.completions.completion import Completion


class Choices:
    """Accepted completions, known by their index. Leaving the `with` block cancels all of them."""

    def __init__(self, completions: Sequence[Completion]) -> None:
        self._completions = tuple(completions)

    def __enter__(self) -> Choices:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.ExitStack() as stack:
            for completion in self._completions:
                stack.push(completion)

    @property
    def prompt_tokens(self) -> tuple[int, ...]:
        """The number of tokens of each completion's prompt."""
        return tuple(completion.prompt_tokens for completion in self._completions)

    @property
    def dropped_tokens(self) -> int:
        """The most tokens that were dropped from the middle of a prompt."""
        return max(completion.dropped_tokens for completion in self._completions)

    async def pieces(self) -> AsyncIterator[tuple[int, Piece | AnswerSummary]]:
        """(index, piece) of all completions, as they arrive; raises as Completion.pieces."""
        arrived: asyncio.Queue[tuple[int, Piece | AnswerSummary] | BaseException] = asyncio.Queue()

        async def read(index: int, completion: Completion) -> None:
            try:
                with completion:  # a completed one frees its slot for the others
                    async for piece in completion.pieces():
                        arrived.put_nowait((index, piece))
            except STOPS:
                raise
            except BaseException as error:
                arrived.put_nowait(error)

        readers = [asyncio.create_task(read(*item)) for item in enumerate(self._completions)]
        try:
            unfinished = len(readers)
            while unfinished:
                item = await arrived.get()
                if isinstance(item, BaseException):
                    raise item
                yield item
                unfinished -= isinstance(item[1], AnswerSummary)
        finally:
            for reader in readers:
                reader.cancel()


class SingleChoice(Choices):
    """One completion, whose tokens become pieces no faster than the pieces are read."""

    @override
    async def pieces(self) -> AsyncIterator[tuple[int, Piece | AnswerSummary]]:
        (completion,) = self._completions
        with completion:  # it ends before its response does
            async for piece in completion.pieces():
                yield 0, piece
