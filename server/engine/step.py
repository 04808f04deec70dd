"""One step of the engine: one token of every sequence that is ready, and one chunk of one prompt.

In place of the chunk, slices of the rows of one square of an image are computed, until the chunk
has all rows. Prompts take turns between them, but only one of them computes rows at a time, so that
the values between two slices are in memory once.

It calls the model, the sampler and the prefix cache, and delivers what they return. An error in one
of these calls ends the sequence that the call was for, and no other.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from typing import TYPE_CHECKING

import numpy as np

from hearthd.sampling.constraint import ConstraintFailed
from hearthd.server.engine.drafting.drafts import Drafts, Stopwatch
from hearthd.server.engine.drafting.model_drafts import ModelDrafts
from hearthd.server.engine.drafting.prompt_lookup import PromptLookup
from hearthd.server.engine.generation import Embedded, Failed, Finished
from hearthd.server.engine.image_rows import LatestImageRows
from hearthd.server.engine.prefixes.used_prompt import UsedPrompt
from hearthd.server.fault_isolation import STOPS, contained

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from collections.abc import Sequence as SequenceOf

    from numpy.typing import NDArray

    from hearthd.runtime.interface import Runtime
    from hearthd.server.engine.drafting.drafts import Costs, DraftSource
    from hearthd.server.engine.prefixes.prefix_cache import PrefixCache
    from hearthd.server.engine.prompt import ImageRows
    from hearthd.server.engine.scheduler import Scheduler
    from hearthd.server.engine.sequence import Sequence

log = logging.getLogger(__name__)

# Slices of an image in a step take at most this time, if each takes as long as the one before, or
# one slice does. Shorter steps would leave less of the time for images.
_IMAGE_SECONDS = 0.04
# A prefill of several chunks takes at most this time, at the speed of the latest prefill.
_LONG_PREFILL_SECONDS = 8.0


class StepRunner:
    """Runs steps of the sequences that the scheduler chooses.

    cache  the prefix cache; None for none
    costs  of the calls that verify drafted tokens, by their number of sequences; empty to draft
           nothing
    uses_drafter  whether the runtime's drafter is a source of drafts
    image_row_bytes  of rows of the latest images that are kept
    end    ends a sequence with its last event
    """

    def __init__(
        self,
        runtime: Runtime,
        scheduler: Scheduler,
        *,
        cache: PrefixCache | None,
        costs: Mapping[int, Costs],
        uses_drafter: bool,
        image_row_bytes: int,
        end: Callable[[Sequence, Finished | Failed], None],
    ) -> None:
        self._runtime = runtime
        self._scheduler = scheduler
        self._cache = cache
        self._costs = costs
        self._uses_drafter = uses_drafter
        self._end = end
        self._token_seconds = math.inf  # of the latest prefill of a chunk or more
        self._images = LatestImageRows(
            runtime, limit_bytes=image_row_bytes, store=cache.store if cache else None
        )

    def run(self) -> None:
        """One step."""
        for sequence in self._scheduler.admit():
            with self._failing(sequence):
                self._admit(sequence)
        for sequence in self._scheduler.prefilling():
            with self._failing(sequence):
                self._restore(sequence)
        ready = self._scheduler.ready()
        if drafts := self._drafts(ready):
            self._verify(ready, drafts)
        else:
            for first in range(0, len(ready), self._runtime.batch):
                self._decode(ready[first : first + self._runtime.batch])
        if (prompt := self._next_prompt()) is not None:
            with self._failing(prompt):
                if prompt.is_embedding:
                    self._embed(prompt)
                elif image := prompt.next_image(self._runtime.chunk):
                    self._read_image(prompt, image)
                else:
                    self._prefill(prompt)

    def _admit(self, sequence: Sequence) -> None:
        sequence.admitted_at = time.monotonic()
        adapter = sequence.adapter
        place, scale = (adapter.place, adapter.scale) if adapter else (0, 0.0)
        self._runtime.set_adapter(sequence.slot, place, scale)
        self._runtime.set_rotary_positions(sequence.slot, sequence.prompt.rotary_positions)
        if self._costs and not sequence.is_embedding:
            sequence.drafts = Drafts(sequence.tokens, self._sources(sequence))

    def _sources(self, sequence: Sequence) -> list[DraftSource]:
        sources: list[DraftSource] = [PromptLookup(sequence.tokens)]
        if self._uses_drafter:
            sources.append(ModelDrafts(self._runtime, sequence))
        return sources

    def _restore(self, sequence: Sequence) -> None:
        """Copy the next blocks of a prompt that the prefix cache holds.

        Before every step, not only when the prompt begins: of several prompts that begin alike,
        each may read blocks that the others then find.
        """
        if self._cache is None or not sequence.block_keys:
            return
        chunk = self._runtime.chunk
        first = sequence.chunks_before(sequence.position, chunk)
        if sequence.cached is None:
            sequence.cached = UsedPrompt(
                blocks=sequence.blocks(chunk), state_bytes=self._runtime.state_bytes
            )
        found = self._cache.find(sequence.cached, first)
        if found.blocks:
            self._runtime.restore(sequence.slot, sequence.position, found.blocks, found.states)
            end = sequence.prompt.chunk_ends(chunk)[first + len(found.blocks) - 1]
            tokens = min(end, sequence.prefill_tokens) - sequence.position
            self._scheduler.advance(sequence, tokens)
            sequence.cached_tokens += tokens

    def _next_prompt(self) -> Sequence | None:
        """The first prompt in line that does not wait for the rows of another one's image."""
        prompts = self._scheduler.prefilling()
        if all(sequence.reading is None for sequence in prompts):
            return next(iter(prompts), None)
        return next(
            sequence
            for sequence in prompts
            if sequence.reading is not None or sequence.next_image(self._runtime.chunk) is None
        )

    def _read_image(self, sequence: Sequence, image: ImageRows) -> None:
        """Compute slices of the rows of a square, at least one."""
        if sequence.reading is None:
            sequence.reading = self._images.reading(image)
        rows, now = None, time.monotonic()
        end = now + _IMAGE_SECONDS
        while rows is None:
            began = now
            rows = next(sequence.reading.steps)
            now = time.monotonic()
            if now + (now - began) > end:
                break
        if rows is not None:
            sequence.image_rows[sequence.reading.digest] = rows
            sequence.reading = None
        self._scheduler.advance(sequence, 0)

    def _prefill(self, sequence: Sequence) -> None:
        """Read a chunk of a prompt or several, and add them to the prefix cache."""
        size, start = self._runtime.chunk, sequence.position
        chunk = sequence.next_chunks(size, self._prefill_limit())
        if start == sequence.cached_tokens:
            sequence.report()  # nothing has been read yet
        embedded, began = chunk.rows(sequence.image_rows), time.monotonic()
        self._runtime.prefill(
            sequence.slot, chunk.tokens, start, embedded, causal=not chunk.both_ways
        )
        if len(chunk) >= size:
            self._token_seconds = (time.monotonic() - began) / len(chunk)
        self._scheduler.advance(sequence, len(chunk))
        sequence.report()
        if self._cache is None or sequence.cached is None:
            return
        before = sequence.chunks_before(start, size)
        for count, end in enumerate(sequence.prompt.chunk_ends(size)[before:], before + 1):
            if start == sequence.position:
                break
            stop = min(end, sequence.position)
            rows = self._runtime.save(sequence.slot, start, stop)
            states, start = None, stop
            if self._cache.needs_states(sequence.cached, count):
                states = self._runtime.save_states(sequence.slot, stop)
            self._cache.add(sequence.cached, count, rows, states=states)

    def _prefill_limit(self) -> int:
        """How many tokens of whole chunks the next prefill may read.

        More than a chunk only if no other sequence has a slot, and if the call is short: a request
        that comes meanwhile waits for it.
        """
        longest = self._runtime.longest_prefill
        is_alone = len(self._scheduler.running()) == 1
        is_short = self._token_seconds * longest <= _LONG_PREFILL_SECONDS
        return longest if is_alone and is_short else self._runtime.chunk

    def _embed(self, sequence: Sequence) -> None:
        """Read a chunk of a text; after the last chunk, deliver its embedding."""
        tokens = sequence.next_chunk(self._runtime.chunk).tokens
        states = self._runtime.embed(sequence.slot, tokens, sequence.position)
        if sequence.is_mean and sequence.hidden_sum is not None:
            states = sequence.hidden_sum + states
        sequence.hidden_sum = states
        self._scheduler.advance(sequence, len(tokens))
        if sequence.ready:
            sequence.start()
            count = np.float32(sequence.prompt_tokens if sequence.is_mean else 1)
            sequence.deliver(Embedded(states / count))
            self._end(sequence, Finished("stop"))

    def _drafts(self, ready: tuple[Sequence, ...]) -> list[tuple[int, ...]]:
        """The tokens of each sequence that are worth verifying; none unless each has some.

        So no sequence waits while tokens of another one are verified.
        """
        costs = self._costs.get(len(ready))
        if costs is None:
            return []
        found: list[tuple[int, ...]] = []
        with contained("drafting tokens"):
            for sequence in ready:
                found.append(_drafts_of(sequence).best(sequence.remaining - 1, costs))
                if not found[-1]:
                    break
        if len(found) == len(ready) and all(found):
            return found
        for sequence in ready[: len(found)]:
            _drafts_of(sequence).discard()
        return []

    def _verify(self, batch: tuple[Sequence, ...], drafts: list[tuple[int, ...]]) -> None:
        """Read a token and the drafted ones of each sequence, and sample the next tokens."""
        pairs = list(zip(batch, drafts, strict=True))
        tokens = [(sequence.tokens[-1], *draft) for sequence, draft in pairs]
        watch = Stopwatch()
        verified = self._verified(batch, tokens)
        if verified is None:
            return
        self._costs[len(batch)].add(len(tokens[0]), watch.seconds, is_cold=watch.is_cold)
        for (sequence, draft), rows in zip(pairs, verified, strict=True):
            sequence.drafted += len(draft)
            self._accept(sequence, draft, rows)

    def _verified(
        self, batch: tuple[Sequence, ...], tokens: list[tuple[int, ...]]
    ) -> SequenceOf[Iterator[NDArray[np.float32]]] | None:
        """The logits after each token, by sequence; None if the call failed.

        If the call failed, a single sequence ends, and two sequences read one token each.
        """
        if len(batch) == 1:
            (sequence,) = batch
            with self._failing(sequence):
                rows = self._runtime.verify(
                    sequence.slot, tokens[0], sequence.position, margin=sequence.margin
                )
                return [rows]
            return None
        try:
            return self._runtime.verify_pair(
                [sequence.slot for sequence in batch],
                tokens,
                [sequence.position for sequence in batch],
                [sequence.margin for sequence in batch],
            )
        except STOPS:
            raise
        except BaseException:
            log.warning("verifying tokens of two sequences failed; reading one token of each")
        for sequence in batch:
            _drafts_of(sequence).discard()
        self._decode(batch)
        return None

    def _accept(
        self, sequence: Sequence, draft: tuple[int, ...], rows: Iterator[NDArray[np.float32]]
    ) -> None:
        """Sample after each token until one differs from the draft.

        The next step reads over the drafted tokens that were wrong.
        """
        for expected in (*draft, None):
            if sequence.ended:
                return
            with self._failing(sequence):
                row = next(rows)
            if sequence.ended or not self._sample(sequence, row, expected):
                return

    def _decode(self, batch: tuple[Sequence, ...]) -> None:
        """Read a token of each sequence, and sample the next one."""
        for sequence, row in self._rows(batch):
            self._sample(sequence, row, None)

    def _rows(self, batch: tuple[Sequence, ...]) -> list[tuple[Sequence, NDArray[np.float32]]]:
        """Read a token of each sequence; the sequences that did not fail, with logits (V,).

        When a batch fails, for example because one slot's caches cannot be allocated, each sequence
        is read alone: that gives the same bits, and reading a token again changes nothing.
        """
        if len(batch) > 1:
            try:
                return self._read(batch)
            except STOPS:
                raise
            except BaseException:
                log.warning("a step of %d sequences failed; reading each one alone", len(batch))
        rows: list[tuple[Sequence, NDArray[np.float32]]] = []
        for sequence in batch:
            with self._failing(sequence):
                rows += self._read((sequence,))
        return rows

    def _read(self, batch: tuple[Sequence, ...]) -> list[tuple[Sequence, NDArray[np.float32]]]:
        watch = Stopwatch()
        logits = self._runtime.decode(
            [sequence.slot for sequence in batch],
            [sequence.tokens[-1] for sequence in batch],
            [sequence.position for sequence in batch],
            [sequence.margin for sequence in batch],
        )
        if costs := self._costs.get(len(batch)):
            costs.add(1, watch.seconds, is_cold=watch.is_cold)
        return list(zip(batch, logits, strict=True))

    def _sample(
        self, sequence: Sequence, logits: NDArray[np.float32], expected: int | None
    ) -> bool:
        """Sample the next token from logits (V,) and deliver it.

        Returns whether it is the expected token and the sequence goes on.
        """
        assert sequence.sampler is not None, "an embedding is never ready"
        with self._failing(sequence):
            sample = sequence.sampler.sample(logits)
            accepted = sample.token == expected
            sequence.accepted += accepted
            finish = sequence.take(sample, at=time.monotonic())
            if finish is not None:
                self._end(sequence, Finished(finish))
        return not sequence.ended and accepted

    @contextlib.contextmanager
    def _failing(self, sequence: Sequence) -> Iterator[None]:
        """An error in this block ends the sequence, and no other."""
        try:
            yield
            return
        except ConstraintFailed as error:
            event = Failed(str(error), by_rules=True)
        except STOPS:
            raise
        except BaseException as error:
            log.exception("a step of the model failed")
            event = Failed(f"a step of the model failed: {type(error).__name__}: {error}")
        if not sequence.ended:
            self._end(sequence, event)


def _drafts_of(sequence: Sequence) -> Drafts:
    assert sequence.drafts is not None, "a sequence is admitted before it is ready"
    return sequence.drafts
