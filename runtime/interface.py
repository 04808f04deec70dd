"""The interface of a loaded language model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hearthd.bundle import AdapterPlaces

# The KV rows that one `prefill` wrote, u8 (n,). Only runtimes of the same bundle
# know the format.
Rows: TypeAlias = NDArray[np.uint8]

# The towers that a model may have, as kinds of entry points.
TowerKind: TypeAlias = Literal["image", "sound"]

# In the place of a token id: the position has a row of embeddings.
NO_TOKEN = -1

# How far below the largest of its row a logit may be that is computed exactly, in nats: as sampling
# at a temperature of 1 needs it, for every logit, and for none.
LOGIT_MARGIN, ALL_LOGITS, NO_LOGITS = 11, 2**20, -1


class Reader(Protocol):
    """A loaded model with logits as its output, and `slots` slots of `context` positions.

    A slot needs no reset: writing at position 0 begins a new sequence, and rows after the latest
    position are never read.
    """

    @property
    def vocab_size(self) -> int:
        """The length of a row of logits."""

    @property
    def context(self) -> int:
        """The number of positions of a slot."""

    @property
    def slots(self) -> int:
        """The number of slots."""

    @property
    def chunk(self) -> int:
        """The maximum number of tokens of one `prefill`, but for whole chunks."""

    @property
    def longest_prefill(self) -> int:
        """The tokens of whole chunks that one `prefill` without rows can read."""

    @property
    def batch(self) -> int:
        """The maximum number of sequences of one `decode`."""

    def prefill(self, slot: int, tokens: Sequence[int], start: int) -> None:
        """Read 1 to `chunk` or `longest_prefill` tokens at positions start, ... of a slot.

        The last token of a prompt is read by `decode`, which returns the logits after it.
        """

    def decode(
        self,
        slots: Sequence[int],
        tokens: Sequence[int],
        positions: Sequence[int],
        margins: Sequence[int] = (),
    ) -> NDArray[np.float32]:
        """Read one token in each of 1 to `batch` different slots, at these positions.

        Returns the logits after each token, f32 (len(slots), vocab_size), owned by the caller.
        Logits further below the largest of their row than its margin, in nats, may be approximate,
        and those more than 7 below may be rounded by about 0.05; with `ALL_LOGITS` none are.
        Without margins, each is `LOGIT_MARGIN`.
        """


class Verifier(Reader, Protocol):
    """A reader that also reads several tokens of one sequence at once."""

    @property
    def verify_tokens(self) -> tuple[int, ...]:
        """The sizes of `verify` in tokens, ascending; empty without verify."""

    def verify(
        self, slot: int, tokens: Sequence[int], start: int, *, margin: int = LOGIT_MARGIN
    ) -> Iterable[NDArray[np.float32]]:
        """Read tokens, at most the largest size, at positions start, start + 1, ... of a slot.

        Yields the logits after each token, f32 (vocab_size,), owned by the caller, as decodes of
        one token after the other return them. Rejected tokens are overwritten: the next call
        starts at the position of the first one.
        """


class DraftingReader(Verifier, Protocol):
    """A reader with a small model that drafts the next tokens."""

    @property
    def has_drafter(self) -> bool:
        """Whether the bundle has a drafter."""

    def draft(self, slot: int, token: int, position: int) -> Iterator[tuple[int, float]]:
        """Draft the tokens after `token` at `position`, without end, each when it is asked for.

        Yields each token with its probability among those that can be drafted. Yields nothing
        unless the latest call for the slot was a decode or a verify that read the token before.
        """


class Runtime(DraftingReader, Protocol):
    """A reader that can be served: it also saves, restores and embeds."""

    @property
    def row_width(self) -> int:
        """W, the width of a row of embeddings."""

    @property
    def reads_rows(self) -> bool:
        """Whether `prefill` can read rows of embeddings."""

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
        """Where a token is NO_TOKEN, read the next one of `rows`, f32 (n, W), in its place.

        The row of a token's embedding gives the bits that the token gives. Unless `causal`, these
        are the rows of an image, which see each other where layers look ahead.
        """

    def tower_sizes(self, kind: TowerKind) -> tuple[int, ...]:
        """The rows of each entry point of a tower, rising; empty if the model has none."""

    def read_media(
        self, media: NDArray[Any], size: int = 0
    ) -> Iterator[NDArray[np.float32] | None]:
        """Compute the rows of an image or a sound, a slice in each step.

        `media` is an image, or a square of one, u8 (H, W, 3), or the frames of a sound, f32
        (T, width).

        The last step yields the rows, f32 (n, W), owned by the caller; the others yield None.
        Other calls may come between two steps. The size of the image is one that the bundle's
        settings for images allow. The smallest entry point that fits is used, of at least `size`
        rows.
        """

    def set_rotary_positions(self, slot: int, positions: NDArray[np.int32] | None) -> None:
        """Have the next calls rotate by these in a slot: i32 (axes, n), of its first n positions.

        Later positions go on after the largest of them. None: all are the positions in the slot,
        which hold in a slot at first, and always in a model whose images have no grid.
        """

    @override
    def verify(
        self, slot: int, tokens: Sequence[int], start: int, *, margin: int = LOGIT_MARGIN
    ) -> Iterator[NDArray[np.float32]]:
        """The logits have the bits of decodes."""

    @property
    def pair_tokens(self) -> int:
        """The size of `verify_pair` in tokens of each slot; 0 if there is no such call."""

    def verify_pair(
        self,
        slots: Sequence[int],
        tokens: Sequence[Sequence[int]],
        starts: Sequence[int],
        margins: Sequence[int] = (),
    ) -> Sequence[Iterator[NDArray[np.float32]]]:
        """As `verify`, exactly `pair_tokens` in each of two different slots: the logits by slot."""

    @property
    def state_bytes(self) -> int:
        """Bytes of a snapshot; 0 if no layer keeps a state in place of a row of each position."""

    def save(self, slot: int, start: int, stop: int) -> Rows:
        """A copy of the rows of a slot at positions start to stop - 1: see kv_ring.save_rows.

        The latest prefill read them, or one of them was read by the latest decode or verify.
        """

    def save_states(self, slot: int, stop: int) -> Rows:
        """A copy of the states of a slot after the token at stop - 1, the latest one read."""

    def restore(
        self, slot: int, start: int, blocks: Sequence[Rows], states: Rows | None = None
    ) -> None:
        """Write consecutive blocks, the first of them at `start`.

        Where there are `state_bytes`, `states` are those after the last block.

        Afterwards the slot has the same bits as if it had read the tokens of the blocks.
        """

    def embed(self, slot: int, tokens: Sequence[int], start: int) -> NDArray[np.float32]:
        """Read 1 to `chunk` tokens as `prefill` does.

        Returns the sum of their hidden states after the last norm, f32 (hidden,), owned by the
        caller. The sums of all chunks of a text, divided by its number of tokens, are its mean. Of
        a model whose pooling is `last` it returns the hidden state of the last token instead.
        """

    @property
    def adapters(self) -> AdapterPlaces:
        """The places for LoRA adapters."""

    def set_adapter(self, slot: int, place: int, scale: float) -> None:
        """Have the next calls add the terms of a place's adapter, times `scale`, in a slot.

        Places count from 1. A slot starts with 0, which means without an adapter. An adapter gives
        the same bits alone and beside others; place 0 gives the bits of a program without places.
        """

    def write_adapter(self, place: int, factors: Sequence[NDArray[Any]]) -> None:
        """Fill a place, from 1 on, which no slot uses: an array for each of `adapters.arrays`."""

    def variants(self) -> Mapping[str, Reader]:
        """Readers on the same slots that use one prefill and one decode entry point each, by name.

        Together they use all entry points; the runtime itself uses the smallest that fits.
        """


def read_prompt(
    runtime: Reader,
    tokens: Sequence[int],
    *,
    slot: int = 0,
    start: int = 0,
    margin: int = LOGIT_MARGIN,
) -> NDArray[np.float32]:
    """Read tokens at positions start, start + 1, ... of a slot, in as few calls as possible.

    Returns the logits after the last token, f32 (vocab_size,); see Reader.decode for `margin`.
    """
    prefill_all_but_last(runtime, tokens, slot=slot, start=start)
    rows = runtime.decode([slot], [tokens[-1]], [start + len(tokens) - 1], [margin])
    logits: NDArray[np.float32] = rows[0]
    return logits


def prefill_all_but_last(
    runtime: Reader, tokens: Sequence[int], *, slot: int = 0, start: int = 0
) -> None:
    """Read all tokens except the last, whose `decode` gives the logits after the prompt."""
    before, first = tokens[:-1], 0
    while first < len(before):
        longest, rest = runtime.longest_prefill, len(before) - first
        size = longest if longest <= rest else runtime.chunk
        runtime.prefill(slot, before[first : first + size], start + first)
        first += size
