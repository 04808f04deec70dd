"""Which tokens are read in the next step, and what a sampled token means for its request.

Pure policy: no arrays, text, clock, thread or I/O. A step is `plan()`, then running the model on
what was planned, then `commit()` with the sampled tokens. A prompt is read in chunks, all but its
last token; that one is read like each token of the answer, by itself, and gives the next one.

Requests are admitted in the order in which they came, as many at once as there are slots. A slot
belongs to one request until that request ends.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


@dataclass(frozen=True, kw_only=True)
class Work:
    """Read `tokens` at positions start, start + 1, ... of a slot.

    With `sample` it is one token, after which the next one is sampled.
    """

    request: int
    slot: int
    tokens: tuple[int, ...]
    start: int
    sample: bool


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a sampled token means: one more `token`, the end of the request, or both.

    A token that ends the answer by itself (`eos`) is not part of it: then `token` is None.
    """

    request: int
    token: int | None
    finish: Literal["stop", "length"] | None


@dataclass(kw_only=True)
class _Sequence:
    request: int
    tokens: list[int]
    limit: int  # the length at which it ends
    read: int = 0  # how many of the tokens are in the slot's cache


@dataclass(kw_only=True)
class Scheduler:
    """Serves requests in `slots` slots of `context` positions.

    A step reads at most `chunk` tokens per slot. `eos` are the ids that end an answer.
    """

    slots: int
    context: int
    chunk: int
    eos: frozenset[int]
    _waiting: deque[_Sequence] = field(default_factory=deque)
    _running: dict[int, _Sequence] = field(default_factory=dict)  # by slot
    _planned: tuple[Work, ...] = ()

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self._waiting and not self._running

    def add(self, request: int, prompt: Sequence[int], max_tokens: int) -> None:
        """Queue a request: at least one token of prompt, and room in the context for one more."""
        limit = min(len(prompt) + max_tokens, self.context)
        assert 0 < len(prompt) < limit, f"a prompt of {len(prompt)} in a context of {self.context}"
        self._waiting.append(_Sequence(request=request, tokens=list(prompt), limit=limit))

    def end(self, request: int) -> None:
        """Forget a request and free its slot; nothing happens if it has already ended."""
        self._waiting = deque(s for s in self._waiting if s.request != request)
        self._running = {k: s for k, s in self._running.items() if s.request != request}

    def plan(self) -> tuple[Work, ...]:
        """Admit what fits and say what each busy slot reads in the next step."""
        for slot in range(self.slots):
            if slot not in self._running and self._waiting:
                self._running[slot] = self._waiting.popleft()
        self._planned = tuple(self._work(slot, s) for slot, s in self._running.items())
        return self._planned

    def commit(self, sampled: Mapping[int, int], last: Collection[int] = ()) -> tuple[Outcome, ...]:
        """Take the step's sampled tokens, by request, and say what they mean.

        The requests in `last` end with the token that they were given, which counts as a stop.

        Every planned request that asked for a token and has not ended since must have one.
        """
        outcomes = []
        for work in self._planned:
            sequence = self._running.get(work.slot)
            if sequence is None:  # ended since the plan; its slot stays free until the next one
                continue
            sequence.read += len(work.tokens)
            if work.sample:
                outcomes.append(
                    self._append(
                        work.slot, sequence, sampled[work.request], last=work.request in last
                    )
                )
        self._planned = ()
        return tuple(outcomes)

    def _work(self, slot: int, sequence: _Sequence) -> Work:
        last = len(sequence.tokens) - 1
        sample = sequence.read == last
        end = last + 1 if sample else min(sequence.read + self.chunk, last)
        return Work(
            request=sequence.request,
            slot=slot,
            tokens=tuple(sequence.tokens[sequence.read : end]),
            start=sequence.read,
            sample=sample,
        )

    def _append(self, slot: int, sequence: _Sequence, token: int, *, last: bool) -> Outcome:
        if token in self.eos:
            del self._running[slot]
            return Outcome(request=sequence.request, token=None, finish="stop")
        if last:
            del self._running[slot]
            return Outcome(request=sequence.request, token=token, finish="stop")
        sequence.tokens.append(token)
        if len(sequence.tokens) < sequence.limit:
            return Outcome(request=sequence.request, token=token, finish=None)
        del self._running[slot]
        return Outcome(request=sequence.request, token=token, finish="length")
