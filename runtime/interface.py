"""What the layers above need from a device, and nothing more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# What one `prefill` of a whole chunk wrote, as u8 (n,): for the runtime that saved it, and for the
# same bundle on another day. To everyone else these are only bytes.
Rows: TypeAlias = NDArray[np.uint8]


class Reader(Protocol):
    """A loaded model that gives logits, with `slots` KV caches of `context` positions each.

    A slot needs no reset: writing at position 0 begins a new sequence, and what lies behind the
    newest position is never read.
    """

    @property
    def vocab_size(self) -> int:
        """The length of a row of logits."""

    @property
    def context(self) -> int:
        """The number of positions of a slot, in tokens."""

    @property
    def slots(self) -> int:
        """The number of sequences that can be held at once."""

    @property
    def chunk(self) -> int:
        """The most tokens that one `prefill` takes."""

    @property
    def batch(self) -> int:
        """The most sequences that one `decode` takes."""

    def prefill(self, slot: int, tokens: Sequence[int], start: int) -> None:
        """Read 1 to `chunk` tokens at positions start, start + 1, ... of a slot.

        The last token of a prompt is left to `decode`, which gives the logits after it.
        """

    def decode(
        self,
        slots: Sequence[int],
        tokens: Sequence[int],
        positions: Sequence[int],
        exact: Sequence[bool] = (),
    ) -> NDArray[np.float32]:
        """Read one token in each of 1 to `batch` different slots, at the given positions.

        Returns the logits after each, f32 (len(slots), vocab_size), owned by the caller. Where not
        `exact`, which is nowhere if it is empty, those far below the best one may be coarse.
        """


class Runtime(Reader, Protocol):
    """A reader that can be served: what it reads can be kept, or be had as an embedding."""

    @property
    def hidden(self) -> int:
        """The width of a hidden state."""

    @property
    def verify_tokens(self) -> tuple[int, ...]:
        """The sizes of a `verify`, rising; none if there is no such call."""

    def verify(
        self, slot: int, tokens: Sequence[int], start: int, *, exact: bool = False
    ) -> Iterator[NDArray[np.float32]]:
        """Read tokens, no more than the largest size, at positions start, start + 1, ... of a slot.

        Gives the logits after each, f32 (vocab_size,), owned by the caller, with the same bits as
        by decodes of one token after the other. Those that nobody asks for are not copied. Tokens
        that turn out to be wrong are read over: the next call starts where the first of them is.
        """

    def save(self, slot: int, start: int, stop: int) -> Rows:
        """A copy of what the latest prefill of a slot, of positions start to stop - 1, wrote."""

    def restore(self, slot: int, start: int, blocks: Sequence[Rows]) -> None:
        """Write consecutive blocks of `chunk` positions each, the first of them at `start`.

        Afterwards the slot is as if the blocks had been read there, bit for bit.
        """

    def embed(self, slot: int, tokens: Sequence[int], start: int) -> NDArray[np.float32]:
        """Read 1 to `chunk` tokens as `prefill` does.

        Returns the sum of their hidden states after the last norm, f32 (hidden,), owned by the
        caller: the sums of the chunks of a text, divided by its tokens, are its mean.
        """

    def ways(self) -> Mapping[str, Reader]:
        """This runtime by a prefill and a decode of all that it has, whatever fits best, by name.

        Together they have all of them. They share the slots.
        """


def read_prompt(
    runtime: Reader,
    tokens: Sequence[int],
    *,
    slot: int = 0,
    start: int = 0,
    exact: bool = False,
) -> NDArray[np.float32]:
    """Read tokens at positions start, start + 1, ... of a slot, in as few calls as can be.

    Returns the logits after the last of them, f32 (vocab_size,); see Reader.decode for `exact`.
    """
    *before, last = tokens
    for first in range(0, len(before), runtime.chunk):
        chunk = before[first : first + runtime.chunk]
        runtime.prefill(slot, chunk, start + first)
    rows = runtime.decode([slot], [last], [start + len(before)], [exact])
    logits: NDArray[np.float32] = rows[0]
    return logits
