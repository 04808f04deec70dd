"""The drafter of a bundle: a layer that reads hidden states, or a draft model."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple, Protocol

import iree.runtime as rt
import numpy as np
from typing_extensions import override

from hearthd.bundle import DRAFTER
from hearthd.runtime.drafter_file import read_drafter
from hearthd.runtime.iree.device import CannotLoad, logits_of, result

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.bundle import LanguageManifest
    from hearthd.runtime.iree.device import Device

# Kinds of entry points that also return the hidden states of their tokens.
_WITH_STATES = ("decode", "verify")
# Tokens this much less likely than the best one do not count, in nats: 262,144 of them have at most
# 0.0006 of its probability together.
_NEAR = 20.0


class ReadToken(NamedTuple):
    """A token that a decode or a verify has read."""

    slot: int
    token: int
    position: int


class BundleDrafter(Protocol):
    """Drafts tokens for a runtime.

    exists  whether the bundle has a drafter
    """

    exists: bool

    def results(self, entry_kind: str) -> int:
        """Results for the drafter that entry points of a kind return after the first one."""

    def forget(self, slot: int) -> None:
        """A call other than a decode or a verify reads tokens of a slot, or replaces its rows."""

    def keep(self, results: rt.VmVariantList, read: Sequence[ReadToken], rows: int) -> None:
        """A decode or verify of `rows` tokens, which start with `read`, has returned."""

    def draft(
        self, slot: int, token: int, position: int, caches: Sequence[rt.HalBufferView]
    ) -> Iterator[tuple[int, float]]:
        """See DraftingReader.draft. `caches` are the slot's caches that the drafter takes."""


class DeviceDrafter(BundleDrafter):
    """Drafts tokens from the hidden states that decodes and verifies return.

    function  None: the bundle has no drafter, and its programs return no states
    tokens    that can be drafted, i32 (D,)
    hidden    E, the width of a state
    writes    whether a draft writes its caches: it then reads the position of each of its tokens,
              otherwise the position of the first
    """

    def __init__(
        self,
        device: Device,
        function: rt.VmFunction | None,
        tokens: NDArray[np.int32],
        hidden: int,
        *,
        writes: bool = False,
    ) -> None:
        self._device, self._function, self._writes = device, function, writes
        self.exists = function is not None
        self._tokens, self._hidden = tokens, hidden
        # By slot, the state of each token that the latest call read, by position, f32 (E,).
        self._states: dict[int, dict[int, NDArray[np.float32]]] = {}

    @classmethod
    def opened(cls, bundle: Path, manifest: LanguageManifest, device: Device) -> DeviceDrafter:
        """The drafter of a bundle; raises CannotLoad."""
        names = [point.name for point in manifest.entry_points if point.kind == "draft"]
        if not names:
            return cls(device, None, np.empty(0, np.int32), 0)
        function, hidden = device.function(names[0]), manifest.hidden
        if any(spec.is_argument("draft") for spec in manifest.caches):
            tokens = np.arange(manifest.draft_tokens, dtype=np.int32)
            writes = any(spec.drafts for spec in manifest.caches)
            return cls(device, function, tokens, hidden, writes=writes)
        try:
            file = read_drafter(bundle / DRAFTER, vocab_size=manifest.vocab_size)
        except (ValueError, OSError) as error:
            raise CannotLoad(str(error)) from error
        return cls(device, function, file.head_tokens, hidden)

    @override
    def results(self, entry_kind: str) -> int:
        return int(self.exists and entry_kind in _WITH_STATES)

    @override
    def forget(self, slot: int) -> None:
        self._states.pop(slot, None)

    @override
    def keep(self, results: rt.VmVariantList, read: Sequence[ReadToken], rows: int) -> None:
        """Keep the states f32 (rows, E) that a call returned, as far as `read` goes."""
        if not self.exists:
            return
        for slot, _, _ in read:
            self._states[slot] = {}
        states = result(results, 1, (rows, self._hidden))
        for (slot, _, position), state in zip(read, states, strict=False):
            self._states[slot][position] = state

    @override
    def draft(
        self, slot: int, token: int, position: int, caches: Sequence[rt.HalBufferView]
    ) -> Iterator[tuple[int, float]]:
        """See DraftingReader.draft.

        A draft of an MTP layer writes its tokens' rows into the caches. A later call that reads
        these positions writes them again first.
        """
        first = self._states.get(slot, {}).get(position - 1)
        if first is None or self._function is None:
            return
        state = self._device.upload(first[np.newaxis], "f32")
        for at in itertools.count(position):
            arguments = [self._device.upload(np.array([token], np.int32), "i32"), state]
            if caches:
                token_position = at if self._writes else position
                place = self._device.upload(np.array([token_position], np.int32), "i32")
                arguments += [place, *caches]
            results = self._device.call(
                self._function, arguments, results=2 + len(caches) * self._writes
            )
            (logits,) = logits_of(results, (1, len(self._tokens)))
            index, probability = most_likely(logits)
            token = int(self._tokens[index])
            yield token, probability
            state = results.get_as_object(1, rt.HalBufferView)


def most_likely(logits: NDArray[np.float32]) -> tuple[int, float]:
    """The index of the largest logit of a row, and its probability."""
    best = int(logits.argmax())
    # Most of the 262,144 logits of a sketched head are very low.
    near = logits[logits > logits[best] - _NEAR]
    return best, 1 / float(np.exp(near - logits[best]).sum())
