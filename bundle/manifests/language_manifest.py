"""The manifest of a language model, and the ABI of its entry points.

Besides model.vmfb and params.irpa its bundle holds

    tokenizer.json        as the `tokenizers` library reads it
    chat_template.jinja   if the weights came with one

Every entry point has one of these signatures. `CACHES` are the KV cache buffers of one slot, in the
order of `LanguageManifest.caches`; they are updated in place and returned.

    prefill       (tokens i32[T], start i32[1], CACHES) -> CACHES
    prefill_rows  (tokens i32[T], start i32[1], rows f32[T, W], CACHES) -> CACHES
    prefill_block  (tokens i32[T], start i32[1], rows f32[T, W], CACHES) -> CACHES
    decode        (tokens i32[B], positions i32[B], exact i32[B], CACHES of slot 0, ... of slot B-1)
                  -> (logits f32[B, V], CACHES of slot 0, ...)
    verify        (tokens i32[T], start i32[1], exact i32[1], CACHES) -> (logits f32[T, V], CACHES)
    embed         (tokens i32[T], start i32[1], count i32[1], CACHES) -> (sum f32[E], CACHES)
    image         (pixels f32[3, S, S]) -> rows f32[T, W]
    image         (patches f32[N, 3 * P * P], places i32[2, N], grid i32[2]) -> rows f32[T, W]
    sound         (frames f32[F * T, width], count i32[1]) -> rows f32[T, E]
    draft         (token i32[1], state f32[1, E]) -> (logits f32[1, D], state f32[1, E])
                  or (token i32[1], state f32[1, E], position i32[1], CACHES of the drafter)
                  -> (logits f32[1, V], state f32[1, E], CACHES of the drafter)
                  or (token i32[1], state f32[1, E], position i32[1], CACHES that are lent)
                  -> (logits f32[1, V], state f32[1, E])
                  or (tokens i32[T], start i32[1], count i32[1], CACHES of the drafter)
                  -> (logits f32[1, D], CACHES of the drafter)

A prefill reads T tokens at positions start, start + 1, ... The last tokens may be padding: the rows
that padding leaves in the caches are never used. In a bundle with states among its caches, padding
is PADDING; elsewhere it can be any token. The last token of a prompt is read by a decode,
which returns the logits after it.

A prefill_rows reads as the prefill of its size does, but where a token is -1 the first layer reads
the row of that position instead of a token's embedding, after any scaling by the model. A row that
equals the embedding of a token gives the bits of the token. In a model with an embedding for each
layer, the layers read the embeddings of token 0 at such a position. A bundle has a prefill_rows for
each prefill, or none. The width W of a row is E, or E times the `parts` of rows of an `image_grid`.

A prefill_block reads the rows of an image, which see each other in some layers, as a prefill_rows
does. Its padding is PADDING. A model whose images are read so has one for each of a few T.

A verify reads T tokens as T decodes at positions start, start + 1, ... do, and returns their
logits; the logits of a token depend on no later token. Rejected tokens are overwritten: the rows
that they leave in the caches are never used. A bundle may have no verify.

Where `exact` is 0, logits too low to be sampled may be approximate.

An embed reads tokens as a prefill does, and returns the sum of the hidden states, after the last
norm, of its first `count` tokens; the others are padding. There is one, of the largest prefill's
size.

An image computes the rows of embeddings that a prefill_rows reads for a square image, or for a tile
of one. The pixels of its channels red, green and blue are normalized as the model was trained. A
bundle has at most one. With `slices`, the functions image_0, image_1, ... compute it one after the
other: the first one takes the pixels, each other one the results of the one before it, and the last
one returns the rows.

A bundle with an `image_grid` has the second form, for images of at most T rows and any shape, and
one for each of a few T. It reads N = T * merged^2 patches of P x P pixels: the patches of each
square of `merged` x `merged` follow each other, and a square gives a row. `places` are the row and
the column of each patch, and `grid` how many of both there are; the patches after these are
padding.

`sound` computes the rows of some frames. The first `count` frames are the sound, and the others
are padding. A bundle that reads sound has a `sound` for each of a few T.

If the rows of such images have rotary positions of several axes, the entry points have one more
argument, after the other integers. Of a prefill, a decode and a verify it is i32[B]: what is added
to the positions of each sequence to rotate by. Of a prefill_rows it is i32[axes, T]: the positions
to rotate by. An embed has no such argument, because its texts have no images.

A bundle with a drafter has one entry point `draft`. Its decodes and verifies return one more result
after the logits, the normalized hidden state of each token: states f32[B, E] or f32[T, E]. A draft
reads the state of a token and the token after it. It returns the logits of the token after that,
and a state that takes the place of the model's in a draft after this one. The file
drafter.safetensors (runtime/drafter_file.py) of a tuned drafter names the D tokens that can be
drafted. A drafter that came with the weights has caches, which are marked `drafts`; all entry
points write them, and only a draft reads them. Its `position` is the token's.

An assistant, which can be a bundle's `draft_model`, has no caches: a draft reads the caches of
some layers of the model, which are marked `lent`. All drafts that follow each other have the
`position` of the first token.

The drafter of a bundle with another `draft_model` is a small language model, and no states are
returned. Its caches are also marked `lazy`: only prefills and drafts take them. There is a
`draft_T` for one token and one for several. It reads `count` tokens, the others are padding, and
returns the logits after the last one for the first D ids. Before it drafts, it reads the tokens
that were accepted since the latest prefill or draft.

An entry point with `adapters` has more arguments, after the caches: the place of each sequence's
adapter, i32[B], from 1 on or 0 for none; the scale of its terms, f32[B]; and the arrays of
`LanguageManifest.adapters`. For sequences without an adapter it computes the bits that the entry
point without them computes.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from typing_extensions import override

from hearthd.bundle.bundle_errors import NotABundle
from hearthd.bundle.file_records import MANIFEST
from hearthd.bundle.manifests.adapter_places import NO_PLACES, AdapterPlaces
from hearthd.bundle.manifests.cache_specs import CacheSpec  # noqa: TC001 - typed_json reads it
from hearthd.bundle.manifests.entry_point import EntryPoint  # noqa: TC001  (pydantic)
from hearthd.bundle.manifests.golden import Golden, GoldenRow, GoldenState  # noqa: TC001  (pydantic)
from hearthd.bundle.manifests.image_input import GoldenImage, GridInput, ImageInput  # noqa: TC001  (pydantic)
from hearthd.bundle.manifests.language_memory import image_row_memory, language_memory
from hearthd.bundle.manifests.manifest import Manifest
from hearthd.bundle.manifests.preset import NO_PRESET, Preset
from hearthd.bundle.manifests.sound_input import GoldenSound, SoundInput  # noqa: TC001  (pydantic)
from hearthd.bundle.memory_sum import MIN_AUTO_CONTEXT, SHARED_MEMORY, Footprint, Memory
from hearthd.bundle.parsing.typed_json import typed
from hearthd.bundle.provenance import OMITTED, Activations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.bundle.provenance import Provenance

__all__ = [
    "CALIBRATION",
    "CHAT_TEMPLATE",
    "DRAFTER",
    "TOKENIZER",
    "DraftModelRecord",
    "LanguageManifest",
    "Serving",
    "SpecialTokens",
]

TOKENIZER = "tokenizer.json"
CHAT_TEMPLATE = "chat_template.jinja"
CALIBRATION = "calibration.txt"
DRAFTER = "drafter.safetensors"
_MAX_SIZE = 2**31 - 1
_MAX_SLOTS = 2**16


@dataclass(frozen=True, kw_only=True)
class SpecialTokens:
    """Ids with a meaning to the server: `bos` begins a prompt, each of `eos` ends an answer.

    `template_bos` is the token that the chat template calls bos_token, if it is not `bos`.
    """

    bos: int | None
    eos: tuple[int, ...]
    template_bos: int | None = field(default=None, metadata=OMITTED)


@dataclass(frozen=True, kw_only=True)
class Serving:
    """The options of a bake that hold while its programs run.

    activations   what products with matrices of integers round activations to
    max_memory    limit for the memory that serving takes, in bytes; None: no limit
    auto_context  whether a server may use less of the context, to fit into its memory
    """

    activations: Activations
    max_memory: int | None
    auto_context: bool = field(default=False, metadata=OMITTED)

    def __post_init__(self) -> None:
        """Raises NotABundle for a limit that is not a size."""
        if self.max_memory is not None and self.max_memory < 1:
            raise NotABundle(
                f"{MANIFEST}.serving.max_memory: got {self.max_memory}, expected a size"
            )


@dataclass(frozen=True, kw_only=True)
class DraftModelRecord:
    """A small language model that drafts tokens: an architecture and its configuration."""

    architecture: str
    config: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class LanguageManifest(Manifest):
    """The manifest of a language model.

    config         its "hidden" is the width of a hidden state, for every architecture
    storages       by parameter, the storage of matrices that are not stored as the precision says
    context        positions of a slot, in tokens
    draft_tokens   tokens that a drafter can draft, or 0
    images, image_grid  how a model reads images of one size, or of any size
    sampling       sampling parameters that the weights recommend
    suppressed_tokens  ids that the weights say are never sampled
    preset         settings of requests that a Modelfile puts beside the weights
    golden_image   what it computes of an image; golden_sound the same for sound
    golden_rows    of caches of i8 or f16: of the second layer, or of the first one with activations
                   of int8, and after its first experts
    golden_states  of the first layer

    `activations` and `max_memory` of older bundles, without `serving`, are in the provenance.
    """

    kind: Literal["language"] = "language"
    storages: dict[str, str]
    vocab_size: int
    context: int
    slots: int
    serving: Serving | None = field(default=None, metadata=OMITTED)
    special_tokens: SpecialTokens
    sampling: dict[str, int | float] = field(default_factory=dict, metadata=OMITTED)
    suppressed_tokens: tuple[int, ...] = field(default=(), metadata=OMITTED)
    preset: Preset = field(default=NO_PRESET, metadata=OMITTED)
    caches: tuple[CacheSpec, ...]
    entry_points: tuple[EntryPoint, ...]
    adapters: AdapterPlaces = NO_PLACES
    draft_tokens: int = field(default=0, metadata=OMITTED)
    draft_model: DraftModelRecord | None = field(default=None, metadata=OMITTED)
    images: ImageInput | None = field(default=None, metadata=OMITTED)
    image_grid: GridInput | None = field(default=None, metadata=OMITTED)
    sound: SoundInput | None = field(default=None, metadata=OMITTED)
    footprint: Footprint
    golden: tuple[Golden, ...]
    golden_rows: tuple[GoldenRow, ...] = field(default=(), metadata=OMITTED)
    golden_states: tuple[GoldenState, ...] = field(default=(), metadata=OMITTED)
    golden_image: GoldenImage | None = field(default=None, metadata=OMITTED)
    golden_sound: GoldenSound | None = field(default=None, metadata=OMITTED)

    @override
    def __post_init__(self) -> None:
        """Raises NotABundle for a size out of range, and as Manifest does."""
        super().__post_init__()
        sizes = {
            "vocab_size": self.vocab_size,
            "context": self.context,
            "slots": self.slots,
            **_sizes("caches", self.caches, ("rows", "width")),
            **_sizes("entry_points", self.entry_points, ("batch", "tokens", "keys")),
        }
        for where, size in sizes.items():
            if not 1 <= size <= _MAX_SIZE:
                raise NotABundle(f"{MANIFEST}.{where}: got {size}, expected 1 to {_MAX_SIZE}")
        if self.slots > _MAX_SLOTS:
            raise NotABundle(f"{MANIFEST}.slots: got {self.slots}, expected at most {_MAX_SLOTS}")

    @property
    def hidden(self) -> int:
        """E, the width of a hidden state; raises NotABundle."""
        hidden = self.config.get("hidden")
        if type(hidden) is not int or hidden < 1:
            raise NotABundle(f"{MANIFEST}.config.hidden: got {hidden!r:.80}, expected a size")
        return hidden

    @property
    def row_width(self) -> int:
        """W, the width of a row of embeddings; raises NotABundle."""
        return self.hidden * (1 if self.image_grid is None else self.image_grid.parts)

    @property
    def has_shifts(self) -> bool:
        """Whether rotary positions are not the positions in a slot, after an image."""
        return self.image_grid is not None and self.image_grid.axes > 1

    @property
    def image_settings(self) -> ImageInput | GridInput | None:
        """How the model reads images; None if it reads none."""
        return self.images or self.image_grid

    @property
    def pooling(self) -> Literal["mean", "last"]:
        """How an embedding is computed, see `hearthd.models.config`; raises NotABundle."""
        match self.config.get("pooling", "mean"):
            case "mean":
                return "mean"
            case "last":
                return "last"
            case other:
                raise NotABundle(
                    f"{MANIFEST}.config.pooling: got {other!r:.80}, expected mean or last"
                )

    @property
    def activations(self) -> Activations:
        """What products with matrices of integers round activations to; raises NotABundle."""
        return (self.serving or _recorded_serving(self.provenance)).activations

    @property
    def max_memory(self) -> int | None:
        """The memory in bytes that serving may take, if baked with a limit; raises NotABundle."""
        return (self.serving or _recorded_serving(self.provenance)).max_memory

    @property
    def memory(self) -> Memory:
        """`memory_of` the whole context; raises as it does."""
        return self.memory_of(self.context)

    def memory_of(self, context: int) -> Memory:
        """The memory that serving takes with a number of positions, at most `context`.

        Raises NotABundle if the footprint lacks a call.
        """
        functions = {name for point in self.entry_points for name in point.functions}
        if missing := functions - self.footprint.calls.keys():
            raise NotABundle(f"{MANIFEST}.footprint.calls.{min(missing)}: missing field")
        return language_memory(
            self.footprint,
            self.vocab_size,
            self.row_width,
            context,
            self.caches,
            self.entry_points,
            self.adapters,
        )

    @property
    def image_row_memory(self) -> int:
        """Bytes of the rows of the latest images and sounds; 0 if requests have none."""
        return image_row_memory(self.entry_points, self.row_width)

    @property
    def auto_context(self) -> bool:
        """Whether a server may use less of the context, to fit into its memory."""
        return self.serving is not None and self.serving.auto_context

    @property
    def min_context(self) -> int:
        """The shortest context that a server uses."""
        return min(self.context, MIN_AUTO_CONTEXT) if self.auto_context else self.context

    @property
    @override
    def own_memory(self) -> int:
        """Bytes that serving with all slots adds to SHARED_MEMORY, without a prefix cache.

        With `min_context`. Raises NotABundle as `memory` and `max_memory` do.
        """
        unshared, limit = self.memory_of(self.min_context).unshared(self.slots), self.max_memory
        return unshared if limit is None else min(unshared, limit - SHARED_MEMORY)

    def opened(self, *, slots: int, context: int) -> LanguageManifest:
        """This manifest with fewer slots and positions, and the entry points that fit the slots."""
        fitting = tuple(point for point in self.entry_points if point.batch <= slots)
        return dataclasses.replace(self, slots=slots, context=context, entry_points=fitting)


def _recorded_serving(origin: Provenance) -> Serving:
    """The options of a bundle whose manifest has no `serving`; raises NotABundle."""
    chosen = origin.tried[-1].activations if origin.tried else "int16"
    data = {
        "activations": origin.options.get("activations", chosen),
        "max_memory": origin.options.get("max_memory"),
    }
    where = f"{MANIFEST}.provenance.options"
    limit = data["max_memory"]
    if type(limit) is int and limit < 1:
        raise NotABundle(f"{where}.max_memory: got {limit}, expected a size")
    try:
        return typed(Serving, data, where)
    except ValueError as error:
        raise NotABundle(str(error)) from error


def _sizes(
    field: str, records: Sequence[CacheSpec] | Sequence[EntryPoint], names: Sequence[str]
) -> dict[str, int]:
    return {
        f"{field}[{i}].{name}": getattr(record, name)
        for i, record in enumerate(records)
        for name in names
    }
