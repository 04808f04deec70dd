"""The manifest of a language model, and the ABI of its entry points.

Besides model.vmfb and params.irpa its bundle holds

    tokenizer.json        as the `tokenizers` library reads it
    chat_template.jinja   only when the weights came with one
    prefix.txt            only when asked for: the text that prompts begin with
    prefix.kv             and the KV rows of it, for runtime/kv_blocks.py

Its entry points all have one of four forms. `CACHES` stands for the KV cache buffers of one slot,
in the order of `LanguageManifest.caches`; they are updated in place and returned again.

    prefill   (tokens i32[T], start i32[1], CACHES) -> CACHES
    decode    (tokens i32[B], positions i32[B], exact i32[B], CACHES of slot 0, ... of slot B-1)
              -> (logits f32[B, V], CACHES of slot 0, ...)
    verify    (tokens i32[T], start i32[1], exact i32[1], CACHES) -> (logits f32[T, V], CACHES)
    embed     (tokens i32[T], start i32[1], count i32[1], CACHES) -> (sum f32[E], CACHES)

A prefill reads T tokens at positions start, start + 1, ... of which the last may be padding: what
they leave in the caches is never seen. The last token of a prompt is read by a decode, which gives
the logits after it.

A verify reads as T decodes at positions start, start + 1, ... do, and gives their logits, of which
each depends on the tokens up to its own only. Tokens that turn out wrong are read over: what they
left in the caches is never seen. A bundle may have none.

Where `exact` is 0, logits that are far below the best one may be coarse, if that is faster.

An embed reads as a prefill does, and gives the sum of the hidden states, after the last norm, of
its first `count` tokens; the others are padding. There is one, of the largest prefill's size.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from models.bundle.bundle_errors import NotABundle
from models.bundle.file_records import MANIFEST
from models.bundle.manifest import Manifest
from models.bundle.memory_sum import Footprint, Memory

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "CHAT_TEMPLATE",
    "PREFIX",
    "PREFIX_TEXT",
    "TOKENIZER",
    "CacheSpec",
    "EntryPoint",
    "Golden",
    "GoldenStep",
    "LanguageManifest",
    "SpecialTokens",
    "language_memory",
]

TOKENIZER = "tokenizer.json"
CHAT_TEMPLATE = "chat_template.jinja"
PREFIX = "prefix.kv"
PREFIX_TEXT = "prefix.txt"
_LARGEST = 2**31 - 1
_MOST_SLOTS = 2**16
# What choosing a token takes, in rows of logits, besides a copy of every row that came.
_SAMPLING = 8


@dataclass(frozen=True, kw_only=True)
class CacheSpec:
    """One KV cache buffer of one slot: `rows` positions of `width` values of `dtype`."""

    name: str
    rows: int
    width: int
    dtype: Literal["f32"]

    @property
    def bytes(self) -> int:
        """The size of the buffer."""
        return self.rows * self.width * 4


@dataclass(frozen=True, kw_only=True)
class EntryPoint:
    """A compiled function: `decode` takes `batch` x 1 tokens, the others 1 x `tokens`.

    It looks at positions below `keys` only, so all that it reads must lie there.
    """

    name: str
    kind: Literal["prefill", "decode", "embed", "verify"]
    batch: int
    tokens: int
    keys: int


@dataclass(frozen=True, kw_only=True)
class SpecialTokens:
    """The ids that the server must know: `bos` goes in front, `eos` ends an answer."""

    bos: int | None
    eos: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class GoldenStep:
    """The largest logits after one position, best first, as NumPy computed them."""

    token_ids: tuple[int, ...]
    logits: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Golden:
    """A prompt and its greedy continuation: step k holds the best logits before token k.

    The answer of a right bundle is `steps[k].token_ids[0]` at each step k.
    """

    prompt: str
    prompt_ids: tuple[int, ...]
    steps: tuple[GoldenStep, ...]


@dataclass(frozen=True, kw_only=True)
class LanguageManifest(Manifest):
    """What the server must know of a language model.

    `config` has with every architecture `hidden`, the width of a hidden state; `context` is in
    tokens.
    """

    kind: Literal["language"] = "language"
    vocab_size: int
    context: int
    slots: int
    special_tokens: SpecialTokens
    caches: tuple[CacheSpec, ...]
    entry_points: tuple[EntryPoint, ...]
    footprint: Footprint
    golden: tuple[Golden, ...]

    def __post_init__(self) -> None:
        """Raises NotABundle for a size that cannot be."""
        sizes = {
            "vocab_size": self.vocab_size,
            "context": self.context,
            "slots": self.slots,
            **_sizes("caches", self.caches, ("rows", "width")),
            **_sizes("entry_points", self.entry_points, ("batch", "tokens", "keys")),
        }
        for where, size in sizes.items():
            if not 1 <= size <= _LARGEST:
                raise NotABundle(f"{MANIFEST}.{where}: expected 1 to {_LARGEST}, got {size}")
        if self.slots > _MOST_SLOTS:
            raise NotABundle(f"{MANIFEST}.slots: expected {_MOST_SLOTS} at most, got {self.slots}")

    @property
    def hidden(self) -> int:
        """E, the width of a hidden state; raises NotABundle."""
        found = self.config.get("hidden")
        if type(found) is not int or found < 1:
            raise NotABundle(f"{MANIFEST}.config.hidden: expected a size, got {found!r:.80}")
        return found

    @property
    def block_bytes(self) -> int:
        """What reading the largest prefill's tokens leaves in the caches of a slot."""
        return block_bytes(self.caches, self.entry_points)

    @property
    def max_memory(self) -> int | None:
        """The bytes that serving may take, if the baker was told; raises NotABundle."""
        found = self.provenance.options.get("max_memory")
        if found is not None and (type(found) is not int or found < 1):
            raise NotABundle(
                f"{MANIFEST}.provenance.options.max_memory: expected a size, got {found!r:.80}"
            )
        return found

    @property
    def memory(self) -> Memory:
        """What serving the bundle takes; raises NotABundle for an entry point of no size."""
        if missing := {point.name for point in self.entry_points} - self.footprint.calls.keys():
            raise NotABundle(f"{MANIFEST}.footprint.calls.{min(missing)}: missing field")
        return language_memory(
            self.footprint, self.vocab_size, self.context, self.caches, self.entry_points
        )

    def with_slots(self, slots: int) -> LanguageManifest:
        """The same bundle, as if it had been baked for fewer slots, at least one."""
        fitting = tuple(point for point in self.entry_points if point.batch <= slots)
        return dataclasses.replace(self, slots=slots, entry_points=fitting)


def language_memory(
    footprint: Footprint,
    vocab_size: int,
    context: int,
    caches: Sequence[CacheSpec],
    entry_points: Sequence[EntryPoint],
) -> Memory:
    """What serving a program takes; its entry points are those of the footprint."""
    steps: dict[int, int] = {}
    for point in entry_points:
        size = footprint.calls[point.name]
        if point.kind in ("decode", "verify"):
            size += (point.batch * point.tokens + _SAMPLING) * 4 * vocab_size
        steps[point.batch] = max(size, steps.get(point.batch, 0))
    return Memory(
        vocab_size=vocab_size,
        context=context,
        weights=footprint.laid_out + footprint.read,
        slot=sum(cache.bytes for cache in caches),
        block=block_bytes(caches, entry_points),
        steps=steps,
    )


def block_bytes(caches: Sequence[CacheSpec], entry_points: Sequence[EntryPoint]) -> int:
    """What reading the largest prefill's tokens leaves in the caches of a slot."""
    chunk = max((e.tokens for e in entry_points if e.kind == "prefill"), default=0)
    return chunk * sum(cache.bytes // cache.rows for cache in caches)


def _sizes(
    field: str, records: Sequence[CacheSpec] | Sequence[EntryPoint], names: Sequence[str]
) -> dict[str, int]:
    return {
        f"{field}[{i}].{name}": getattr(record, name)
        for i, record in enumerate(records)
        for name in names
    }
