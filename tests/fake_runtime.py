"""A runtime without weights, a test double for everything that calls a model.

Logits and hidden states depend on the tokens that a slot has read, in order, and on nothing else:
equal tokens give equal values in every slot, batch, chunking and process. The row of a token's
embedding has the token in its first column. Where a real runtime would compute nonsense this one
raises AssertionError: a position that leaves a gap, a token or slot that does not exist.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hearthd.bundle import NO_PLACES, AdapterPlaces
from hearthd.runtime.interface import LOGIT_MARGIN, NO_TOKEN
from tests.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from hearthd.runtime.interface import Reader, Rows, TowerKind

_SAVED, _STATES, _PADDING = 0x5A4ED, 0x57A7E, -1


def open_gate() -> threading.Event:
    """An event that is set."""
    gate = threading.Event()
    gate.set()
    return gate


@dataclass(kw_only=True)
class FakeRuntime:
    """Logits (vocab_size,) with standard deviation `spread`; hidden states with 1.

    A call waits until the `gate` is set, and takes `delay` seconds; one that reads the token
    `poison` raises RuntimeError. The larger `habit`, the more the logits depend on the latest token
    alone, and the more the text repeats.
    The `drafter` drafts the tokens with the largest logits, or those with the smallest.
    """

    vocab_size: int
    context: int
    slots: int = 1
    chunk: int = 8
    long_prefill: int = 0
    batch: int = 1
    hidden: int = 4
    spread: float = 3.0
    delay: float = 0.0
    gate: threading.Event = field(default_factory=open_gate)
    poison: int | None = None
    habit: float = 0.0
    verify_tokens: tuple[int, ...] = ()
    pair_tokens: int = 0
    drafter: Literal["", "right", "wrong"] = ""
    adapters: AdapterPlaces = NO_PLACES
    reads_rows: bool = True
    image_rows: int = 3
    image_slices: int = 1
    images_read: int = 0
    prefill_sizes: list[int] = field(default_factory=list)  # tokens of each prefill
    state_bytes: int = 0
    _factors: dict[int, int] = field(default_factory=dict)  # a digest of each place
    _marks: dict[int, int] = field(default_factory=dict)  # by slot, a digest of its adapter
    _prefilled: dict[int, tuple[int, int]] = field(default_factory=dict)  # the latest one, by slot
    _decoded: set[int] = field(default_factory=set)  # slots whose latest call gave logits
    _read: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))

    def prefill(
        self,
        slot: int,
        tokens: Sequence[int],
        start: int,
        rows: NDArray[np.float32] | None = None,
        *,
        causal: bool = True,
    ) -> None:
        most = self.image_rows
        if causal:
            most = self.longest_prefill if rows is None else self.chunk
        assert 0 < len(tokens) <= most, f"prefill of {len(tokens)} tokens"
        assert causal or len(tokens) == most, f"a block of {len(tokens)} rows"
        self._wait()
        self._append(slot, self._embedded(tokens, rows), start)
        self._prefilled[slot] = (start, start + len(tokens))
        self.prefill_sizes.append(len(tokens))
        self._decoded.discard(slot)

    def _wait(self) -> None:
        assert self.gate.wait(PATIENCE)
        time.sleep(self.delay)

    @property
    def row_width(self) -> int:
        return self.hidden

    @property
    def longest_prefill(self) -> int:
        return self.long_prefill or self.chunk

    def tower_sizes(self, kind: TowerKind) -> tuple[int, ...]:
        return (self.image_rows,) if kind == "image" else ()

    def read_media(
        self, pixels: NDArray[np.uint8], size: int = 0
    ) -> Iterator[NDArray[np.float32] | None]:
        """`image_rows` rows that stand for tokens, which depend on the pixels."""
        assert size <= self.image_rows, "a larger entry point"
        for _ in range(self.image_slices - 1):
            yield None
        self.images_read += 1
        numbers = np.random.default_rng(zlib.crc32(pixels.tobytes())).integers(
            self.vocab_size, size=(self.image_rows, self.hidden)
        )
        yield numbers.astype(np.float32)

    def save(self, slot: int, start: int, stop: int) -> Rows:
        """The block holds all tokens that were read before its end."""
        first, last = self._prefilled.get(slot, (0, 0))
        if 0 < self.long_prefill == last - first:  # it wrote several blocks
            assert stop == start + self.chunk, f"{start} to {stop} is no block"
            assert start in range(first, last, self.chunk), f"no block begins at {start}"
        else:
            assert (first, last) == (start, stop), f"no prefill wrote {start} to {stop}"
        block = np.full(self.context + 3, _PADDING, np.int32)
        block[: stop + 3] = _SAVED, start, stop, *self._read[slot][:stop]
        return block.view(np.uint8)

    def save_states(self, slot: int, stop: int) -> Rows:
        """The snapshot holds all tokens that were read."""
        assert self.state_bytes, "there are no states"
        assert self._prefilled.get(slot, (0, 0))[1] == stop, f"no prefill ended at {stop}"
        return np.array([_STATES, *self._read[slot]], np.int32).view(np.uint8)

    def restore(
        self, slot: int, start: int, blocks: Sequence[Rows], states: Rows | None = None
    ) -> None:
        """A block must continue the tokens that the slot has read, and states the last one."""
        assert (states is not None) == (self.state_bytes > 0), (
            "states, and only where there are some"
        )
        for block in blocks:
            magic, first, stop, *read = block.view(np.int32).tolist()
            assert magic == _SAVED, "restoring what was never saved"
            assert first == start, f"a block of position {first}, put elsewhere"
            assert read[:first] == self._read[slot][:first], "a block that follows something else"
            self._read[slot], start = read[:stop], stop
        if states is not None:
            assert states.view(np.int32).tolist() == [_STATES, *self._read[slot]], "other states"
        self._prefilled.pop(slot, None)
        self._decoded.discard(slot)

    def decode(
        self,
        slots: Sequence[int],
        tokens: Sequence[int],
        positions: Sequence[int],
        margins: Sequence[int] = (),  # noqa: ARG002 - all logits are exact
    ) -> NDArray[np.float32]:
        assert 0 < len(slots) <= self.batch, f"decode of {len(slots)} sequences"
        assert len(set(slots)) == len(slots), f"a slot twice in {slots}"
        self._wait()
        for slot in slots:
            self._prefilled.pop(slot, None)
            self._decoded.add(slot)
        rows = zip(slots, tokens, positions, strict=True)
        return np.stack([self._append(slot, [token], at) for slot, token, at in rows])

    def verify(
        self,
        slot: int,
        tokens: Sequence[int],
        start: int,
        *,
        margin: int = LOGIT_MARGIN,  # noqa: ARG002
    ) -> Iterator[NDArray[np.float32]]:
        assert 0 < len(tokens) <= max(self.verify_tokens), f"verify of {len(tokens)} tokens"
        self._wait()
        return self._verified(slot, tokens, start)

    def _verified(
        self, slot: int, tokens: Sequence[int], start: int
    ) -> Iterator[NDArray[np.float32]]:
        self._prefilled.pop(slot, None)
        self._decoded.add(slot)
        return iter(
            [self._append(slot, [token], start + ahead) for ahead, token in enumerate(tokens)]
        )

    def verify_pair(
        self,
        slots: Sequence[int],
        tokens: Sequence[Sequence[int]],
        starts: Sequence[int],
        margins: Sequence[int] = (),  # noqa: ARG002
    ) -> list[Iterator[NDArray[np.float32]]]:
        assert len(set(slots)) == len(slots) == 2, f"a pair in the slots {slots}"
        assert {len(read) for read in tokens} == {self.pair_tokens}, f"a pair reads {tokens}"
        self._wait()
        return [self._verified(*each) for each in zip(slots, tokens, starts, strict=True)]

    @property
    def has_drafter(self) -> bool:
        return bool(self.drafter)

    def draft(self, slot: int, token: int, position: int) -> Iterator[tuple[int, float]]:
        """Nothing unless the latest call for the slot was a decode or a verify."""
        if slot not in self._decoded:
            return
        read = self._read[slot][:position]
        assert len(read) == position, f"position {position} of {len(read)} tokens read"
        while True:
            read.append(token + self._mark(slot))
            logits = self._logits(read)
            token = int(logits.argmax() if self.drafter == "right" else logits.argmin())
            yield token, 0.9

    def embed(self, slot: int, tokens: Sequence[int], start: int) -> NDArray[np.float32]:
        self.prefill(slot, tokens, start)
        read = self._read[slot]
        states = [_draw(read[:end], self.hidden) for end in range(start + 1, len(read) + 1)]
        total: NDArray[np.float32] = np.sum(states, axis=0)
        return total

    def set_adapter(self, slot: int, place: int, scale: float) -> None:
        """Every token that the slot reads becomes another one."""
        assert 0 <= place <= self.adapters.count, f"place {place}"
        mark = zlib.crc32(np.float64(scale).tobytes(), self._factors.get(place, 0)) % 1000 + 1
        self._marks[slot] = mark if place else 0

    def set_rotary_positions(self, slot: int, positions: NDArray[np.int32] | None) -> None:
        """Nothing: its rows have no positions of their own."""

    def write_adapter(self, place: int, factors: Sequence[NDArray[Any]]) -> None:
        for array, values in zip(self.adapters.arrays, factors, strict=True):
            assert values.shape == array.shape[1:], f"factors {values.shape} of {array}"
        self._factors[place] = zlib.crc32(b"".join(values.tobytes() for values in factors))

    def variants(self) -> Mapping[str, Reader]:
        """Only this runtime."""
        return {"fake": self}

    def _embedded(self, tokens: Sequence[int], rows: NDArray[np.float32] | None) -> Sequence[int]:
        """The tokens, with the tokens of rows in place of NO_TOKEN."""
        if rows is None:
            return tokens
        assert self.reads_rows, "no entry point for rows"
        assert rows.shape == (list(tokens).count(NO_TOKEN), self.hidden), f"rows {rows.shape}"
        numbers = iter(rows[:, 0].astype(int).tolist())
        return [next(numbers) if token == NO_TOKEN else token for token in tokens]

    def _append(self, slot: int, tokens: Sequence[int], start: int) -> NDArray[np.float32]:
        assert 0 <= slot < self.slots, f"slot {slot} of {self.slots}"
        assert 0 <= start <= len(self._read[slot]), f"position {start} leaves a gap"
        assert start + len(tokens) <= self.context, f"position {start} is beyond the context"
        assert all(0 <= token < self.vocab_size for token in tokens), f"a bad id in {tokens}"
        if self.poison in tokens:
            raise RuntimeError(f"token {self.poison} is poison")
        read = self._read[slot]
        read[start:] = [token + self._mark(slot) for token in tokens]
        return self._logits(read)

    def _mark(self, slot: int) -> int:
        return self._marks.get(slot, 0) * self.vocab_size

    def _logits(self, read: Sequence[int]) -> NDArray[np.float32]:
        logits = _draw(read, self.vocab_size) * np.float32(self.spread)
        return logits + _draw(read[-1:], self.vocab_size) * np.float32(self.habit)


def _draw(read: Sequence[int], count: int) -> NDArray[np.float32]:
    """Numbers with a standard deviation of 1 that depend on the tokens read, f32 (count,)."""
    # Integers by themselves take ten times as long.
    generator = np.random.default_rng(np.random.SeedSequence(np.array(read, np.uint32)))
    return generator.standard_normal(count, np.float32)
