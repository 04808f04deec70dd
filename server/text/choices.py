"""Several completions that answer one request, as one thing to read and to leave."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from server.text.answer import Piece, Summary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from types import TracebackType

    from server.text.completion import Completion


class Choices:
    """Accepted completions, each known by its place. Leaving the `with` block cancels them all."""

    def __init__(self, completions: Sequence[Completion]) -> None:
        self._completions = tuple(completions)

    def __enter__(self) -> Choices:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.ExitStack() as stack:
            for completion in self._completions:
                stack.push(completion)

    async def pieces(self) -> AsyncIterator[tuple[int, Piece | Summary]]:
        """Each completion's pieces with its place, as they come; raises as Completion.pieces."""
        found: asyncio.Queue[tuple[int, Piece | Summary] | Exception] = asyncio.Queue()

        async def read(place: int, completion: Completion) -> None:
            try:
                with completion:  # one that has ended leaves the engine to the others
                    async for piece in completion.pieces():
                        found.put_nowait((place, piece))
            except Exception as error:
                found.put_nowait(error)

        readers = [asyncio.create_task(read(*one)) for one in enumerate(self._completions)]
        try:
            unfinished = len(readers)
            while unfinished:
                item = await found.get()
                if isinstance(item, Exception):
                    raise item
                yield item
                unfinished -= isinstance(item[1], Summary)
        finally:
            for reader in readers:
                reader.cancel()
