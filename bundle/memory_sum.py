"""The memory that serving takes: one formula for `hearth bake`, `inspect` and `serve`.

    needed = process + text + grammars + requests + images + weights + adapters + step
             + slots x slot + prefix cache

The sum counts memory that the system cannot take back while a bundle is served. It does not count
pages of params.irpa that are read when the program rearranges weights at its start, nor pages where
single rows are looked up: the system may drop these at any time and read them again.

The library of --require-signature and the downloads of --fetch-images are not in the sum either:
server/open_service.py subtracts SIGNATURE_MEMORY and FETCHED_MEMORY from the limit. The sum knows
sizes and no machine; benchmarks/memory_contract.py measures what a process takes.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hearthd.bundle.bundle_errors import BundleError, NotABundle
from hearthd.bundle.provenance import OMITTED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "AUTO_CONTEXT_STEP",
    "CONNECTION_MEMORY",
    "CONTEXTS_PER_TEXT",
    "DEFAULT_PREFIX_CACHE",
    "FETCHED_MEMORY",
    "GRAMMAR_MEMORY",
    "MAX_FETCHED_BYTES",
    "MAX_PIXELS",
    "MIN_AUTO_CONTEXT",
    "MIN_CONTEXT",
    "MIN_IMAGE_ROWS",
    "PIXEL_MEMORY",
    "REQUEST_MEMORY",
    "SHARED_MEMORY",
    "SIGNATURE_MEMORY",
    "TEXT_BYTES_PER_TOKEN",
    "Admitted",
    "Footprint",
    "Memory",
    "NotEnoughMemory",
    "longest_context",
    "megabytes",
]

# Python with the server's libraries and IREE, connections and threads.
PROCESS_MEMORY = 122_000_000
# Of these, connections; more of them take a part of REQUEST_MEMORY:
# server/process/connection_memory.py.
CONNECTION_MEMORY = 1_000_000
# The library that checks signatures, with `hearth serve --require-signature`.
SIGNATURE_MEMORY = 11_000_000
# Bytes per token of the vocabulary: 255 of the tokenizer, 130 of grammars.
TEXT_PER_TOKEN = 385
# The compiled grammars of clients, by text/grammars/compiled_grammars.py: tools of an agent take up
# to 8 MB.
GRAMMAR_MEMORY = 32_000_000
# All request bodies and the objects parsed from them: server/api/middleware/body_limits.py. And the
# streams that are kept for their clients: server/api/resumable/streams.py. And connections.
REQUEST_MEMORY = 32_000_000
# Pixels of an image in a request: more are refused before memory for them is allocated.
MAX_PIXELS = 2**24
# Bytes per pixel of the image that is decoded, and its copies: an image that is turned takes most,
# and a progressive JPEG of four colors.
_DECODING_BYTES = 12
# The squares of images of all requests, until the model has read them: server/images.
PIXEL_MEMORY = 64_000_000
# Image files that --fetch-images downloads: the longest, and all of them until they are decoded.
MAX_FETCHED_BYTES = 8_000_000
FETCHED_MEMORY = 64_000_000
_IMAGE_MEMORY = _DECODING_BYTES * MAX_PIXELS + PIXEL_MEMORY
# The least memory for the rows of embeddings of the latest images: server/engine/image_rows.py.
MIN_IMAGE_ROWS = 16_000_000
# The golden prompts and their continuations must fit.
MIN_CONTEXT = 64
# What all models of a process share.
SHARED_MEMORY = PROCESS_MEMORY + REQUEST_MEMORY
# Limits of a text that is tokenized: bytes of UTF-8 per token of the context (prose has 4), and
# contexts that its tokens fill.
TEXT_BYTES_PER_TOKEN = 16
CONTEXTS_PER_TEXT = 4
# Memory for the longest text, in bytes per byte. The tokenizer takes up to 165 for a text with few
# tokens, and up to 414 where each byte is a token. It reads one text at a time.
_TOKENIZING_BYTES = 230
# The default size of the prefix cache is one context, and at least this.
DEFAULT_PREFIX_CACHE = 256 * 2**20
# Snapshots that are counted with the blocks of a context: two of each of two turns. If the memory
# allows it, there are more: of each turn of a chat, as prompts that edit one go on from there.
CONTEXT_SNAPSHOTS = 4
_TURN_SNAPSHOTS, _TURN_TOKENS = 8, 1024
# What `--context auto` chooses is at least this, or all that the model has, and a multiple of the
# step.
MIN_AUTO_CONTEXT, AUTO_CONTEXT_STEP = 2048, 256


class NotEnoughMemory(BundleError):
    """The memory is not enough for one slot; the message has the parts of the sum."""


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """The memory of a traced program, in bytes; weights are counted by how they are used.

    laid_out   weights that the program copies, rearranged for its kernels, when it is loaded
    read       weights that every step reads in place from params.irpa
    looked_up  weights in params.irpa that a step looks up single rows of
    calls      by entry point: intermediate values and results of one call
    experts    of `read`, the experts of a model whose kernels read them from params.irpa, so that
               they may be larger than memory; 0 of other models
    token_experts  of those, what one token is routed to
    expert_arrays  the arrays of those in params.irpa, with the number of experts in each;
               None of other models
    """

    laid_out: int
    read: int
    looked_up: int
    calls: dict[str, int]
    experts: int = field(default=0, metadata=OMITTED)
    token_experts: int = field(default=0, metadata=OMITTED)
    expert_arrays: dict[str, int] | None = field(default=None, metadata=OMITTED)

    def __post_init__(self) -> None:
        """Raises NotABundle for sizes that cannot be."""
        sizes = {
            name: getattr(self, name)
            for name in ("laid_out", "read", "looked_up", "experts", "token_experts")
        }
        for name, size in (*sizes.items(), *self.calls.items()):
            if size < 0:
                raise NotABundle(f"footprint.{name}: got {size}, expected a size")
        if not self.token_experts <= self.experts <= self.read:
            raise NotABundle(
                f"footprint.experts: got {self.experts}, expected at least token_experts "
                f"({self.token_experts}) and at most read ({self.read})"
            )
        for name, count in (self.expert_arrays or {}).items():
            if count < 1:
                raise NotABundle(f"footprint.expert_arrays.{name}: got {count}, expected a number")

    @property
    def resident(self) -> int:
        """Bytes of weights that must be in memory; of streamed experts only one token's."""
        return self.laid_out + self.read - self.experts + self.token_experts

    def missed(self, memory: int) -> int:
        """Bytes of experts that a token reads from the file, on average.

        `memory` is the size of the memory for experts. All experts are taken to be equally likely,
        which is the worst case.
        """
        if not self.experts:
            return 0
        return self.token_experts * max(0, self.experts - memory) // self.experts


@dataclass(frozen=True, kw_only=True)
class Admitted:
    """The slots, the positions of each, and the bytes of prefix cache that fit into a limit."""

    slots: int
    context: int
    prefix_cache: int


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The parts of the memory that serving one bundle takes, in bytes.

    context  positions of a slot that are served
    image_rows  rows of embeddings of the latest images and sounds; 0 if requests have none
    has_grammars  whether requests can have grammars
    weights  weights that are rearranged or read in every step
    slot     the cache rows of this many positions of one slot, and the rows of images that it
             reads
    adapters the places for LoRA adapters
    steps    by batch size: the largest call of an entry point of that batch size
    block    one block of the prefix cache
    snapshot one snapshot of the prefix cache, which a model with states needs after a block. A
             cache that is smaller than both is useless
    """

    vocab_size: int
    context: int
    image_rows: int = 0
    has_grammars: bool = False
    weights: int
    slot: int
    adapters: int = 0
    block: int
    snapshot: int = 0
    chunk: int = 1
    steps: Mapping[int, int]

    @property
    def context_blocks(self) -> int:
        """Bytes of the blocks of the prefix cache that keep a whole context, with few snapshots."""
        return -(-self.context // self.chunk) * self.block + CONTEXT_SNAPSHOTS * self.snapshot

    @property
    def default_prefix_cache(self) -> int:
        """Bytes of the prefix cache unless a user sets them or memory is short."""
        snapshots = _TURN_SNAPSHOTS + self.context // _TURN_TOKENS - CONTEXT_SNAPSHOTS
        return max(DEFAULT_PREFIX_CACHE, self.context_blocks + snapshots * self.snapshot)

    def step(self, slots: int) -> int:
        """Bytes of the largest call with at most this number of slots."""
        return max((size for batch, size in self.steps.items() if batch <= slots), default=0)

    def parts(self, slots: int, prefix_cache: int = 0) -> tuple[tuple[str, int], ...]:
        """The parts of the sum, by name."""
        return (
            ("process", PROCESS_MEMORY),
            ("text", TEXT_PER_TOKEN * self.vocab_size),
            ("grammars", self.has_grammars * GRAMMAR_MEMORY),
            ("requests", REQUEST_MEMORY + _TOKENIZING_BYTES * TEXT_BYTES_PER_TOKEN * self.context),
            ("images", _IMAGE_MEMORY + self.image_rows if self.image_rows else 0),
            ("weights", self.weights),
            ("adapters", self.adapters),
            ("step", self.step(slots)),
            ("slots", slots * self.slot),
            ("prefix cache", prefix_cache),
        )

    def needed(self, slots: int, prefix_cache: int = 0) -> int:
        """The sum."""
        return sum(size for _, size in self.parts(slots, prefix_cache))

    def unshared(self, slots: int, prefix_cache: int = 0) -> int:
        """The sum without what all models of a process share."""
        return self.needed(slots, prefix_cache) - SHARED_MEMORY

    def formula(self, slots: int, prefix_cache: int = 0) -> str:
        """The sum and its parts in MB, as text."""
        words = (
            f"{name} {megabytes(size)}" for name, size in self.parts(slots, prefix_cache) if size
        )
        return f"{megabytes(self.needed(slots, prefix_cache))} MB = {' + '.join(words)}"

    def admit(self, limit: int, *, slots: int, prefix_cache: int) -> Admitted:
        """As many of the slots as fit into `limit` bytes, then as much of the prefix cache.

        Raises NotEnoughMemory.
        """
        fitting = [n for n in range(1, slots + 1) if self.needed(n) <= limit]
        if not fitting:
            raise NotEnoughMemory(
                f"{megabytes(limit)} MB of memory is not enough: one slot needs {self.formula(1)}"
            )
        remaining = limit - self.needed(fitting[-1])
        cache = min(prefix_cache, remaining)
        return Admitted(
            slots=fitting[-1],
            context=self.context,
            prefix_cache=cache if cache >= self.block + self.snapshot else 0,
        )


def longest_context(
    memory_of: Callable[[int], Memory], limit: int, *, slots: int, longest: int
) -> int:
    """The longest context whose slots and prefix cache fit into `limit` bytes.

    `memory_of` returns the sum for a context, and `longest` is the context of the model. The prefix
    cache keeps one context: without it, each turn of a long conversation would be read again.
    Returns `longest`, or a smaller multiple of AUTO_CONTEXT_STEP, and at least MIN_AUTO_CONTEXT or
    `longest` if even those do not fit.
    """

    def fits(context: int) -> bool:
        memory = memory_of(context)
        return memory.needed(slots, memory.context_blocks) <= limit

    shortest = min(MIN_AUTO_CONTEXT, longest)
    if fits(longest) or longest == shortest:
        return longest
    fitting = range(shortest, longest, AUTO_CONTEXT_STEP)
    return fitting[max(1, bisect_left(fitting, True, key=lambda n: not fits(n))) - 1]


def megabytes(size: int) -> str:
    """Bytes as MB of 10^6 bytes, rounded up to a tenth."""
    return f"{-(-size // 100_000) / 10:,.1f}"
