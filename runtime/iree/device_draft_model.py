"""The draft model of a bundle, and the tokens of each slot that it has read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from hearthd.runtime.iree.device import logits_of
from hearthd.runtime.iree.device_drafter import BundleDrafter, DeviceDrafter, most_likely

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import iree.runtime as rt
    from numpy.typing import NDArray

    from hearthd.bundle import LanguageManifest
    from hearthd.runtime.iree.device import Device
    from hearthd.runtime.iree.device_drafter import ReadToken


@dataclass
class _Followed:
    """The tokens of a slot after its latest prefill.

    start   the position of the first token; the draft model has read all tokens before it
    tokens  tokens that the model has read
    rows    tokens that the draft model has read; they are valid up to the first difference
    """

    start: int
    tokens: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)

    def unread(self, position: int) -> list[int]:
        """The tokens before a position that the draft model lacks; forgets rows of other tokens."""
        tokens = self.tokens[: position - self.start]
        pairs = zip(tokens, self.rows, strict=False)
        unequal = (i for i, (token, row) in enumerate(pairs) if token != row)
        valid = next(unequal, min(len(tokens), len(self.rows)))
        del self.rows[valid:]
        return tokens[valid:]


class DeviceDraftModel(BundleDrafter):
    """Drafts with a small language model, whose caches are in the slots.

    In a prefill, the draft model reads the tokens too. Tokens of later calls are kept here, and a
    draft first reads the tokens that the draft model has not read.
    """

    exists = True

    def __init__(self, device: Device, manifest: LanguageManifest) -> None:
        self._device, self._vocabulary = device, manifest.draft_tokens
        points = [point for point in manifest.entry_points if point.kind == "draft"]
        self._functions = {
            point.tokens: device.function(point.name)
            for point in sorted(points, key=lambda point: point.tokens)
        }
        self._followed: dict[int, _Followed] = {}

    @override
    def results(self, entry_kind: str) -> int:
        return 0

    @override
    def forget(self, slot: int) -> None:
        self._followed.pop(slot, None)

    @override
    def keep(self, results: rt.VmVariantList, read: Sequence[ReadToken], rows: int) -> None:
        for slot, token, position in read:
            followed = self._followed.get(slot)
            if followed is None or not 0 <= position - followed.start <= len(followed.tokens):
                followed = self._followed[slot] = _Followed(position)
            followed.tokens[position - followed.start :] = [token]

    @override
    def draft(
        self, slot: int, token: int, position: int, caches: Sequence[rt.HalBufferView]
    ) -> Iterator[tuple[int, float]]:
        followed = self._followed.get(slot)
        if followed is None or followed.start > position:
            followed = self._followed[slot] = _Followed(position)
        if followed.start + len(followed.tokens) < position:
            return
        unread, largest = [*followed.unread(position), token], max(self._functions)
        while True:
            tokens, unread = unread[:largest], unread[largest:]
            logits = self._read(tokens, followed.start + len(followed.rows), caches)
            followed.rows += tokens
            if not unread:
                token, probability = most_likely(logits)
                yield token, probability
                unread = [token]

    def _read(
        self, tokens: Sequence[int], start: int, caches: Sequence[rt.HalBufferView]
    ) -> NDArray[np.float32]:
        """Read tokens; the logits after the last one, f32 (D,)."""
        size = next(size for size in self._functions if size >= len(tokens))
        padded = [*tokens, *[0] * (size - len(tokens))]
        arguments = [
            self._device.upload(np.array(values, np.int32), "i32")
            for values in (padded, (start,), (len(tokens),))
        ]
        results = self._device.call(
            self._functions[size], [*arguments, *caches], results=1 + len(caches)
        )
        (logits,) = logits_of(results, (1, self._vocabulary))
        return np.asarray(logits, np.float32)


def opened_drafter(bundle: Path, manifest: LanguageManifest, device: Device) -> BundleDrafter:
    """The drafter of a bundle; raises CannotLoad."""
    if not any(spec.lazy for spec in manifest.caches):
        return DeviceDrafter.opened(bundle, manifest, device)
    return DeviceDraftModel(device, manifest)
