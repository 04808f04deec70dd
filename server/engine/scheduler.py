"""Scheduling policy: which sequence gets a slot, and which tokens the next step reads.

Pure policy: it reads no tokens, arrays, text or clock, and starts no thread. In a step the model
reads

- one token of every sequence that is `ready`: the last token of a prompt, or the newest token of an
  answer. The next token is sampled after it;
- one chunk of the first sequence in `prefilling`, or slices of an image of its next chunk. Both are
  reported by `advance`.

So a long prompt delays the other sequences by one chunk per token. Prompts take turns: a sequence
that has read a chunk goes to the end of the line, so of n prompts each gets at least every n-th
chunk, and a long prompt does not block a short one that came later. While only one sequence has a
slot, several chunks of its prompt may be read at once.

A prompt is read in chunks of one size from its start, then the remainder, then its last token in a
call of its own. A text to be embedded is read in chunks to its end. No bit depends on how many
chunks a call reads.

Requests get slots in the order in which they came. A slot belongs to one request until that request
ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING

from hearthd.server.engine.sequence import NO_SLOT

if TYPE_CHECKING:
    from hearthd.server.engine.sequence import Sequence

_by_slot = attrgetter("slot")


@dataclass(kw_only=True)
class Scheduler:
    """Shares `slots` slots between the sequences that were added and have not been removed."""

    slots: int
    _waiting: dict[int, Sequence] = field(default_factory=dict)  # by id, in the order of arrival
    _running: dict[int, Sequence] = field(default_factory=dict)  # by id, in the order of turns

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self._waiting and not self._running

    def sequences(self) -> tuple[Sequence, ...]:
        """All sequences, those with a slot first."""
        return (*self._running.values(), *self._waiting.values())

    def find(self, id_: int) -> Sequence | None:
        """The sequence with this id, or None if it was removed."""
        return self._running.get(id_) or self._waiting.get(id_)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence."""
        self._waiting[sequence.id] = sequence

    def remove(self, sequence: Sequence) -> None:
        """Forget a sequence and free its slot. A removed sequence may be removed again."""
        self._waiting.pop(sequence.id, None)
        self._running.pop(sequence.id, None)
        sequence.slot = NO_SLOT

    def admit(self) -> tuple[Sequence, ...]:
        """Give the free slots to waiting sequences; returns those that got one."""
        if not self._waiting:
            return ()
        used = {sequence.slot for sequence in self._running.values()}
        free = (slot for slot in range(self.slots) if slot not in used)
        admitted = tuple(zip(free, self._waiting.values(), strict=False))
        for slot, sequence in admitted:
            sequence.slot = slot
            self._running[sequence.id] = self._waiting.pop(sequence.id)
        return tuple(sequence for _, sequence in admitted)

    def ready(self) -> tuple[Sequence, ...]:
        """The sequences whose next token can be sampled, by slot."""
        return tuple(sorted((s for s in self._running.values() if s.ready), key=_by_slot))

    def prefilling(self) -> tuple[Sequence, ...]:
        """The sequences whose prompt is being read, in the order of their turns."""
        return tuple(sequence for sequence in self._running.values() if not sequence.ready)

    def advance(self, sequence: Sequence, count: int) -> None:
        """`count` more tokens of a prompt have been read; the next prompt has its turn."""
        sequence.advance(count)
        self._running[sequence.id] = self._running.pop(sequence.id)

    def running(self) -> tuple[Sequence, ...]:
        """The sequences that have a slot."""
        return tuple(self._running.values())
