"""The runtime of a language model: the entry points of a bundle, and the KV caches of its slots.

It knows the ABI of bundle/manifests/language_manifest.py and nothing about what the model computes.
The KV caches of a slot are allocated when the slot is first used. Calls update them in place.
"""

from __future__ import annotations

import copy
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from hearthd.bundle import PADDING, padding_of
from hearthd.runtime.interface import LOGIT_MARGIN, NO_LOGITS, NO_TOKEN, Runtime
from hearthd.runtime.iree.device import CannotLoad, Device, logits_of, result
from hearthd.runtime.iree.device_adapters import DeviceAdapters
from hearthd.runtime.iree.device_draft_model import opened_drafter
from hearthd.runtime.iree.device_drafter import ReadToken
from hearthd.runtime.iree.device_towers import DeviceTowers
from hearthd.runtime.iree.entry_calls import Call, calls_of, of_kind, padded_rows
from hearthd.runtime.kv_ring import restore_rows, save_rows
from hearthd.runtime.rotary_positions import RotaryPositions
from hearthd.runtime.streamed_experts import streamed_experts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import iree.runtime as rt
    from numpy.typing import NDArray

    from hearthd.bundle import AdapterPlaces, CacheSpec, EntryPoint, LanguageManifest, ProgramFile
    from hearthd.runtime.interface import Rows, TowerKind


class IreeRuntime(Runtime):
    """A bundle loaded on this machine's CPU. See runtime/interface.py for the contract."""

    def __init__(
        self,
        bundle: Path,
        manifest: LanguageManifest,
        *,
        threads: int | None,
        program: ProgramFile | None = None,
        mapped: bool = True,
        huge_pages: bool = True,
        expert_memory: int | None = None,
    ) -> None:
        """Load a program of a bundle, None for model.vmfb. Raises CannotLoad.

        `threads` as in start_threads; `expert_memory` as in streamed_experts; others as in Device.
        """
        self.program = program or manifest.programs[0]
        self.device = Device(
            bundle,
            threads=threads,
            program=self.program.file,
            lays_out=manifest.footprint.laid_out > 0,
            mapped=mapped,
            experts=streamed_experts(bundle, manifest, expert_memory),
            huge_pages=huge_pages,
        )
        self._manifest = manifest
        self._caches: dict[int, list[tuple[CacheSpec, rt.HalBufferView]]] = {}
        # By slot, the position after the latest one; rows from there on are never read.
        self._ends = [0] * manifest.slots
        self._adapters = DeviceAdapters(self.device, manifest.adapters)
        self._always_adapted = False
        calls = calls_of(manifest, self.device)
        self._prefills = of_kind("prefill", calls)
        self._row_prefills = of_kind("prefill_rows", calls)
        self._blocks = of_kind("prefill_block", calls)
        self._decodes = of_kind("decode", calls)
        verifies = of_kind("verify", calls)
        self._verifies = [call for call in verifies if call.entry.batch == 1]
        self._pair = next((call for call in verifies if call.entry.batch == 2), None)
        self._towers = DeviceTowers(manifest, self.device)
        self._rotary = RotaryPositions(has_axes=manifest.has_shifts)
        embeds = of_kind("embed", calls)
        batches = [call.entry.batch for call in self._decodes]
        if not self._prefills or not embeds or 1 not in batches:
            raise CannotLoad(
                f"{bundle}: missing entry point: expected a prefill, an embed and a decode of "
                "batch 1; bake it again"
            )
        self._embed = embeds[0]
        self._drafting = opened_drafter(bundle, manifest, self.device)

    @property
    @override
    def vocab_size(self) -> int:
        return self._manifest.vocab_size

    @property
    @override
    def row_width(self) -> int:
        return self._manifest.row_width

    @property
    @override
    def context(self) -> int:
        return self._manifest.context

    @property
    @override
    def slots(self) -> int:
        return self._manifest.slots

    @property
    @override
    def chunk(self) -> int:
        return min(self.longest_prefill, self._embed.entry.tokens)

    @property
    @override
    def longest_prefill(self) -> int:
        return self._prefills[-1].entry.tokens

    @property
    @override
    def batch(self) -> int:
        return self._decodes[-1].entry.batch

    @property
    @override
    def verify_tokens(self) -> tuple[int, ...]:
        return tuple(call.entry.tokens for call in self._verifies)

    @property
    @override
    def reads_rows(self) -> bool:
        return bool(self._row_prefills)

    @override
    def prefill(
        self,
        slot: int,
        tokens: Sequence[int],
        start: int,
        rows: NDArray[np.float32] | None = None,
        *,
        causal: bool = True,
    ) -> None:
        """Use the smallest entry point that fits."""
        self._drafting.forget(slot)
        calls = self._blocks
        if causal:
            calls = self._prefills if rows is None else self._row_prefills
        largest = calls[-1].entry.tokens
        assert 0 < len(tokens) <= largest, f"prefill of {len(tokens)} tokens, of {largest}"
        self._check(slot, tokens, start, reads_rows=rows is not None)
        end = start + len(tokens)
        call = next(
            call for call in calls if call.entry.tokens >= len(tokens) and call.entry.keys >= end
        )
        rotary = self._rotary.of_prefill(slot, start, len(tokens), call.entry)
        numbers = [self._padded(tokens, call.entry), (start,), *rotary]
        read_rows = padded_rows(call.entry, tokens, rows, self.row_width)
        self._invoke(call, numbers, (slot,), rows=read_rows)
        self._ends[slot] = end

    def _padded(self, tokens: Sequence[int], entry: EntryPoint) -> list[int]:
        # The rings of a slot have no rows for the padding of a long prefill.
        is_long = entry.kind == "prefill" and entry.tokens > self.chunk
        assert not is_long or len(tokens) == entry.tokens, f"prefill of {len(tokens)} tokens"
        padding = PADDING if entry.kind == "prefill_block" else padding_of(self._manifest.caches)
        return [*tokens, *[padding] * (entry.tokens - len(tokens))]

    @override
    def tower_sizes(self, kind: TowerKind) -> tuple[int, ...]:
        return self._towers.sizes(kind)

    @override
    def read_media(
        self, media: NDArray[Any], size: int = 0
    ) -> Iterator[NDArray[np.float32] | None]:
        return self._towers.read(media, size)

    @override
    def set_rotary_positions(self, slot: int, positions: NDArray[np.int32] | None) -> None:
        self._rotary.set(slot, positions)

    @override
    def decode(
        self,
        slots: Sequence[int],
        tokens: Sequence[int],
        positions: Sequence[int],
        margins: Sequence[int] = (),
    ) -> NDArray[np.float32]:
        """Use the smallest entry point that fits.

        Unused rows of the batch go to other slots, at the position after their latest one, where
        rows are overwritten before they are read.
        """
        assert 0 < len(slots) <= self.batch, f"decode of {len(slots)} sequences, of {self.batch}"
        assert len(set(slots)) == len(slots), f"a slot twice in {slots}"
        for slot, token, position in zip(slots, tokens, positions, strict=True):
            self._check(slot, (token,), position)
            self._ends[slot] = position + 1
        call = next(call for call in self._decodes if call.entry.batch >= len(slots))
        batch = call.entry.batch
        fill = [slot for slot in range(self.slots) if slot not in slots][: batch - len(slots)]
        numbers = [
            [*tokens, *[0] * len(fill)],
            [*positions, *(self._ends[slot] for slot in fill)],
            [*(margins or [LOGIT_MARGIN] * len(slots)), *[NO_LOGITS] * len(fill)],
            *self._rotary.shifts(slots, positions, unused=len(fill)),
        ]
        results = self._invoke(call, numbers, slots, fill)
        self._drafting.keep(results, list(map(ReadToken, slots, tokens, positions)), batch)
        return logits_of(results, (batch, self.vocab_size))[: len(slots)]

    @override
    def verify(
        self, slot: int, tokens: Sequence[int], start: int, *, margin: int = LOGIT_MARGIN
    ) -> Iterator[NDArray[np.float32]]:
        """Use the smallest entry point that fits."""
        assert 0 < len(tokens) <= max(self.verify_tokens), f"verify of {len(tokens)} tokens"
        call = next(call for call in self._verifies if call.entry.tokens >= len(tokens))
        return self._verified(call, (slot,), (tokens,), (start,), (margin,))[0]

    @property
    @override
    def pair_tokens(self) -> int:
        return 0 if self._pair is None else self._pair.entry.tokens

    @override
    def verify_pair(
        self,
        slots: Sequence[int],
        tokens: Sequence[Sequence[int]],
        starts: Sequence[int],
        margins: Sequence[int] = (),
    ) -> list[Iterator[NDArray[np.float32]]]:
        assert self._pair is not None, "the bundle has no entry point for pairs"
        assert len(set(slots)) == len(slots) == 2, f"a pair in the slots {slots}"
        assert {len(read) for read in tokens} == {self.pair_tokens}, f"a pair reads {tokens}"
        return self._verified(self._pair, slots, tokens, starts, margins or (LOGIT_MARGIN,) * 2)

    def _verified(
        self,
        call: Call,
        slots: Sequence[int],
        tokens: Sequence[Sequence[int]],
        starts: Sequence[int],
        margins: Sequence[int],
    ) -> list[Iterator[NDArray[np.float32]]]:
        """The logits after each token, by slot. Only the tokens of one slot are padded."""
        for slot, read, start in zip(slots, tokens, starts, strict=True):
            self._check(slot, read, start)
            self._ends[slot] = start + len(read)
        count, size = len(tokens[0]), call.entry.tokens
        padded = [token for read in tokens for token in self._padded(read, call.entry)]
        numbers = [padded, starts, margins, *self._rotary.shifts(slots, starts, tokens=count)]
        results = self._invoke(call, numbers, slots)
        read_tokens = [
            ReadToken(slot, token, position)
            for slot, read, start in zip(slots, tokens, starts, strict=True)
            for position, token in enumerate(read, start)
        ]
        self._drafting.keep(results, read_tokens, len(padded))
        logits = logits_of(results, (len(padded), self.vocab_size))
        return [iter(logits[first : first + count]) for first in range(0, len(padded), size)]

    @property
    @override
    def has_drafter(self) -> bool:
        return self._drafting.exists

    @override
    def draft(self, slot: int, token: int, position: int) -> Iterator[tuple[int, float]]:
        caches = [cache for spec, cache in self._slot_caches(slot) if spec.is_argument("draft")]
        return self._drafting.draft(slot, token, position, caches)

    @property
    @override
    def state_bytes(self) -> int:
        return sum(spec.row_bytes for spec in self._manifest.caches if spec.state)

    @override
    def save(self, slot: int, start: int, stop: int) -> Rows:
        return save_rows(self._mapped(slot, states=False), start, stop)

    @override
    def save_states(self, slot: int, stop: int) -> Rows:
        return save_rows(self._mapped(slot, states=True), stop - 1, stop)

    @override
    def restore(
        self, slot: int, start: int, blocks: Sequence[Rows], states: Rows | None = None
    ) -> None:
        self._drafting.forget(slot)
        assert (states is not None) == (self.state_bytes > 0), "states where there are some"
        end = self._ends[slot] = restore_rows(self._mapped(slot, states=False), start, blocks)
        if states is not None:
            restore_rows(self._mapped(slot, states=True), end - 1, [states])

    @override
    def embed(self, slot: int, tokens: Sequence[int], start: int) -> NDArray[np.float32]:
        self._drafting.forget(slot)
        assert 0 < len(tokens) <= self.chunk, f"embed of {len(tokens)} tokens, of {self.chunk}"
        self._check(slot, tokens, start)
        numbers = (self._padded(tokens, self._embed.entry), (start,), (len(tokens),))
        results = self._invoke(self._embed, numbers, (slot,))
        self._ends[slot] = start + len(tokens)
        return result(results, 0, (self._manifest.hidden,))

    @property
    @override
    def adapters(self) -> AdapterPlaces:
        return self._manifest.adapters

    @override
    def set_adapter(self, slot: int, place: int, scale: float) -> None:
        assert 0 <= slot < self.slots, f"slot {slot}, of {self.slots}"
        self._adapters.choose(slot, place, scale)

    @override
    def write_adapter(self, place: int, factors: Sequence[NDArray[Any]]) -> None:
        self._adapters.write(place, factors)

    @override
    def variants(self) -> dict[str, IreeRuntime]:
        """By the name of the entry point."""
        short = (call for call in self._prefills if call.entry.tokens <= self.chunk)
        prefills = (*short, *self._row_prefills)
        count = max(len(prefills), len(self._decodes))
        pairs = zip(itertools.cycle(prefills), itertools.cycle(self._decodes), strict=False)
        return {
            f"{prefill.entry.name}, {decode.entry.name}{', adapted' * adapted}": self._variant(
                prefill, decode, adapted=adapted
            )
            for prefill, decode in itertools.islice(pairs, count)
            for adapted in ((False, True) if self.adapters.count else (False,))
        }

    def _variant(self, prefill: Call, decode: Call, *, adapted: bool) -> IreeRuntime:
        """This runtime on the same caches, with only these entry points."""
        variant = copy.copy(self)
        variant._prefills, variant._decodes, variant._always_adapted = [prefill], [decode], adapted
        return variant

    def _check(
        self, slot: int, tokens: Sequence[int], start: int, *, reads_rows: bool = False
    ) -> None:
        """Check the ranges: a compiled program clamps values out of range and computes nonsense."""
        assert 0 <= slot < self.slots, f"slot {slot}, of {self.slots}"
        end = start + len(tokens)
        assert 0 <= start < end <= self.context, f"positions {start} to {end} of {self.context}"
        first = NO_TOKEN if reads_rows else 0
        for token in tokens:
            assert first <= token < self.vocab_size, f"token {token}, of {self.vocab_size}"

    def _invoke(
        self,
        call: Call,
        inputs: Sequence[Any],
        slots: Sequence[int],
        fill: Sequence[int] = (),
        rows: NDArray[np.float32] | None = None,
    ) -> rt.VmVariantList:
        """Run an entry point on the caches of these slots; the results, the caches last.

        `fill` are slots whose results are not used. `prefill_rows` also has the argument `rows`.
        """
        pairs = [pair for slot in (*slots, *fill) for pair in self._slot_caches(slot)]
        caches = [cache for spec, cache in pairs if spec.is_argument(call.entry.kind)]
        arguments = [self.device.upload(np.asarray(values, np.int32), "i32") for values in inputs]
        if rows is not None:
            arguments.append(self.device.upload(rows, "f32"))
        arguments += caches
        function = call.function
        if call.adapted is not None and (self._always_adapted or self._adapters.used_by(slots)):
            function = call.adapted
            arguments += self._adapters.arguments(slots, unused=len(fill))
        results = 1 + len(caches) + self._drafting.results(call.entry.kind)
        return self.device.call(function, arguments, results=results)

    def _slot_caches(self, slot: int) -> list[tuple[CacheSpec, rt.HalBufferView]]:
        if slot not in self._caches:
            self._caches[slot] = [
                (spec, self.device.reserve(spec.shape, spec.stored_dtype))
                for spec in self._manifest.caches
            ]
        return self._caches[slot]

    def _mapped(self, slot: int, *, states: bool) -> list[NDArray[np.uint8]]:
        """The memory of a slot's states or other caches, mapped: each u8 (rows, bytes per row)."""
        return [
            view.map().asarray((spec.rows, spec.row_bytes), np.dtype(np.uint8))[
                : spec.rows - spec.behind
            ]
            for spec, view in self._slot_caches(slot)
            if spec.state == states
        ]
