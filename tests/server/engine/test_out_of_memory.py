"""A failed allocation ends the request that needed it, and changes no other request."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from typing_extensions import override

from hearthd.server.engine.generation import EmbedRequest, Event, Failed, Finished, Token
from hearthd.server.engine.prefixes.prefix_cache import PrefixCache
from tests.fake_runtime import FakeRuntime
from tests.server.engine.test_engine import SAMPLED, events_of, request_of, tokens_in, with_engine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hearthd.runtime.interface import Rows
    from hearthd.server.engine.engine import Engine
    from hearthd.server.engine.generation import Request

LARGE = 13  # allocations fail for a sequence with this token
LONG = (1, 2, 3, 4, LARGE, 6, 7, 8, 9, 10, 11, 12)


@dataclass(kw_only=True)
class PoorRuntime(FakeRuntime):
    """A runtime whose allocations fail in one of its calls."""

    at: str

    @override
    def prefill(self, slot: int, tokens: Sequence[int], *others: Any, **options: Any) -> None:
        self._allocate("prefill", tokens)
        super().prefill(slot, tokens, *others, **options)

    @override
    def decode(self, slots: Sequence[int], tokens: Sequence[int], *others: Any) -> NDArray[Any]:
        for slot, token in zip(slots, tokens, strict=True):
            self._allocate("decode", [*self._read[slot], token])
        return super().decode(slots, tokens, *others)

    @override
    def save(self, slot: int, start: int, stop: int) -> Rows:
        self._allocate("save", self._read[slot])
        return super().save(slot, start, stop)

    @override
    def embed(self, slot: int, tokens: Sequence[int], start: int) -> NDArray[Any]:
        self._allocate("embed", tokens)
        return super().embed(slot, tokens, start)

    def _allocate(self, call: str, tokens: Sequence[int]) -> None:
        if call == self.at and LARGE in tokens:
            raise MemoryError(f"no memory to {call}")


class LargeGrammar:
    """A constraint whose allocation fails."""

    finished = False

    def allowed(self) -> NDArray[Any]:
        raise MemoryError("no memory to allow")

    def accept(self, token: int) -> None:
        raise AssertionError(f"token {token} came although nothing was allowed")


# By call: the request for which it fails.
FAILING: dict[str, Request | EmbedRequest] = {
    "prefill": request_of(*LONG),
    "save": request_of(*LONG),
    "decode": request_of(LARGE),
    "embed": EmbedRequest(prompt=LONG),
    "allow": request_of(1, constraint=LargeGrammar()),
}
PROMPTS = ((1, 2), (3,), tuple(range(20, 30)))
OTHERS = [request_of(*prompt, sampling=SAMPLED, max_tokens=12) for prompt in PROMPTS]


@pytest.mark.parametrize("at", FAILING)
def test_a_failed_allocation_ends_its_request_and_changes_no_other(at: str) -> None:
    received: list[list[Event]] = []

    def serve(*requests: Request | EmbedRequest) -> list[list[Event]]:
        async def test(engine: Engine) -> None:
            received[:] = await asyncio.gather(*(events_of(engine.submit(one)) for one in requests))
            # The engine goes on, also with the slot of the failed request.
            assert (await events_of(engine.submit(OTHERS[0])))[-1] == Finished("length")

        runtime = PoorRuntime(vocab_size=50, context=64, slots=4, batch=4, at=at)
        with_engine(runtime, test, cache=PrefixCache(limit_bytes=10_000))
        return list(received)

    alone = serve(*OTHERS)
    large, *others = serve(FAILING[at], *OTHERS)
    assert large[-1] == Failed(f"a step of the model failed: MemoryError: no memory to {at}")
    for actual, expected in zip(others, alone, strict=True):
        assert actual[-1] == Finished("length")
        assert len(tokens_in(actual)) == 12
        assert _without_times(actual) == _without_times(expected)


def _without_times(events: list[Event]) -> list[tuple[Any, ...]]:
    """Tokens and their log-probabilities, to the bit."""
    return [(event.id, repr(event.logprobs)) for event in events if isinstance(event, Token)]
