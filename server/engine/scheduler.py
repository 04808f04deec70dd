"""Whose tokens are read in the next step, and what a sampled token means for its request.

Pure policy: no arrays, text, clock, thread or I/O. In a step the model reads

- one token of every sequence that is `ready`: the last one of a prompt, or the newest one of an
  answer. Each gives the next token, which `commit` takes. Guesses of the tokens behind it may be
  read with it: those that come true are committed one after the other as well;
- one chunk of the first prompt in `reading`, reported by `read`.

So a long prompt delays the others by one chunk a token. Prompts take turns: whoever has read goes
to the end of the line, so that of n prompts each gets every n-th chunk at least, and a short one
is not kept waiting by a long one that came before it.

A prompt is read in chunks of one size from its start, then what is left of it, then its last token
by itself. A text that is not to be continued is read in chunks to its end, which is the end of its
request. These calls depend on the prompt alone, never on its neighbours.

Requests are admitted in the order in which they came, as many at once as there are slots. A slot
belongs to one request until that request ends.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence


@dataclass(frozen=True, kw_only=True)
class Work:
    """Read `tokens` at positions start, start + 1, ... of a slot."""

    request: int
    slot: int
    tokens: tuple[int, ...]
    start: int


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a sampled token means: one more `token`, the end of the request, or both.

    A token that ends the answer by itself (`eos`) is not part of it: then `token` is None.
    """

    request: int
    token: int | None
    finish: Literal["stop", "length"] | None


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far the request in a slot is, in tokens; `read` counts those in the slot's KV cache."""

    request: int
    slot: int
    prompt: int
    read: int
    generated: int


@dataclass(kw_only=True)
class _Sequence:
    request: int
    tokens: list[int]
    prompt: int  # how many of the tokens are the prompt
    chunked: int  # how many of the tokens are read in chunks
    limit: int  # the length at which it ends
    read: int = 0  # how many of the tokens are in the slot's cache
    turn: int = 0  # of two prompts, the one with the lower turn is read first

    @property
    def ready(self) -> bool:
        return self.read >= self.chunked


@dataclass(kw_only=True)
class Scheduler:
    """Serves requests in `slots` slots of `context` positions.

    A chunk has at most `chunk` tokens. `eos` are the ids that end an answer.
    """

    slots: int
    context: int
    chunk: int
    eos: frozenset[int]
    _waiting: deque[_Sequence] = field(default_factory=deque)
    _running: dict[int, _Sequence] = field(default_factory=dict)  # by slot
    _turns: Iterator[int] = field(default_factory=itertools.count)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self._waiting and not self._running

    def add(self, request: int, prompt: Sequence[int], max_tokens: int) -> None:
        """Queue a request: at least one token of prompt, and room in the context for one more."""
        limit = min(len(prompt) + max_tokens, self.context)
        assert 0 < len(prompt) < limit, f"a prompt of {len(prompt)} in a context of {self.context}"
        self._wait(request, prompt, chunked=len(prompt) - 1, limit=limit)

    def add_text(self, request: int, text: Sequence[int]) -> None:
        """Queue a text to be read and not continued: at least one token, and no more than fit."""
        assert 0 < len(text) <= self.context, f"{len(text)} tokens in a context of {self.context}"
        self._wait(request, text, chunked=len(text), limit=len(text))

    def end(self, request: int) -> None:
        """Forget a request and free its slot; nothing happens if it has already ended."""
        self._waiting = deque(s for s in self._waiting if s.request != request)
        self._running = {k: s for k, s in self._running.items() if s.request != request}

    def admit(self) -> tuple[int, ...]:
        """Give the free slots to those who wait; the requests that got one."""
        admitted = []
        for slot in range(self.slots):
            if slot not in self._running and self._waiting:
                sequence = self._waiting.popleft()
                sequence.turn = next(self._turns)
                self._running[slot] = sequence
                admitted.append(sequence.request)
        return tuple(admitted)

    def ready(self) -> tuple[Work, ...]:
        """The token of each sequence after which the next one is sampled, by slot."""
        return tuple(
            _work(slot, sequence, sequence.read + 1)
            for slot, sequence in sorted(self._running.items())
            if sequence.ready
        )

    def room(self, request: int) -> int:
        """How many more tokens the answer of a running request may have."""
        sequence = self._running[self._slot(request)]
        return sequence.limit - len(sequence.tokens)

    def reading(self) -> tuple[Work, ...]:
        """The next chunk of each prompt, in the order of their turns."""
        unread = [(slot, s) for slot, s in self._running.items() if not s.ready]
        unread.sort(key=lambda pair: pair[1].turn)
        return tuple(_work(slot, s, min(s.read + self.chunk, s.chunked)) for slot, s in unread)

    def read(self, request: int, tokens: int) -> None:
        """So many more tokens of a prompt are in the slot's cache; the next prompt has its turn."""
        slot = self._slot(request)
        sequence = self._running[slot]
        sequence.read += tokens
        sequence.turn = next(self._turns)
        assert sequence.read <= sequence.chunked, f"{sequence.read} tokens read of a prompt"
        if sequence.read == sequence.limit:
            del self._running[slot]

    def commit(self, sampled: Mapping[int, int], last: Collection[int] = ()) -> tuple[Outcome, ...]:
        """Take the tokens that were sampled for ready requests, and say what they mean.

        The requests in `last` end with the token that they were given, which counts as a stop.
        """
        return tuple(
            self._append(self._slot(request), token, last=request in last)
            for request, token in sampled.items()
        )

    def progress(self) -> tuple[Progress, ...]:
        """How far each running request is, by slot."""
        return tuple(
            Progress(
                request=s.request,
                slot=slot,
                prompt=s.prompt,
                read=s.read,
                generated=len(s.tokens) - s.prompt,
            )
            for slot, s in sorted(self._running.items())
        )

    def _wait(self, request: int, tokens: Sequence[int], *, chunked: int, limit: int) -> None:
        self._waiting.append(
            _Sequence(
                request=request,
                tokens=list(tokens),
                prompt=len(tokens),
                chunked=chunked,
                limit=limit,
            )
        )

    def _slot(self, request: int) -> int:
        return next(slot for slot, s in self._running.items() if s.request == request)

    def _append(self, slot: int, token: int, *, last: bool) -> Outcome:
        sequence = self._running[slot]
        sequence.read += 1
        sequence.tokens.append(token)
        ended = token in self.eos
        finish: Literal["stop", "length"] | None = None
        if ended or last:
            finish = "stop"
        elif len(sequence.tokens) == sequence.limit:
            finish = "length"
        if finish is not None:
            del self._running[slot]
        return Outcome(request=sequence.request, token=None if ended else token, finish=finish)


def _work(slot: int, sequence: _Sequence, end: int) -> Work:
    tokens = tuple(sequence.tokens[sequence.read : end])
    return Work(request=sequence.request, slot=slot, tokens=tokens, start=sequence.read)
