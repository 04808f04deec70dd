"""The manifest of a model of speech: it encodes a window of sound, and decodes its text.

Besides the files of array functions its bundle holds tokenizer.json. The compiled functions are

    encode   (spectrogram f32[mels, 2 S], heard...) -> heard...
    prefill  (tokens i32[T], start i32[1], caches..., heard...) -> caches...
    decode   (tokens i32[1], start i32[1], caches..., heard...) -> logits f32[1, V], caches...
    align    (tokens i32[T], start i32[1], caches..., heard...) -> scores f32[A, T, S], caches...

`heard` and `caches` are updated in place: keys and values of each layer of the decoder. `heard` has
a row for each of the S states of the encoder, `caches` a row for each token. `start` is the
position of the first token. The last tokens of a prefill and of `align` can be padding. The A
alignment heads have these `scores` in their cross attention, before the softmax; a bundle without
alignment heads has no `align`.

The manifest has one function, `listen`, for the golden values in golden.bin: a sequence of these
calls that returns the logits after each token of a text, and the scores of the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping  # noqa: TC003 - pydantic reads the annotations
from dataclasses import dataclass
from typing import Literal

from typing_extensions import override

from hearthd.bundle.bundle_errors import NotABundle
from hearthd.bundle.file_records import MANIFEST
from hearthd.bundle.manifests.array_manifest import (
    ArraysManifest,
    FunctionSpec,
    InputSpec,
    OutputSpec,
)
from hearthd.bundle.manifests.cache_specs import CacheSpec  # noqa: TC001 - pydantic reads the annotations
from hearthd.bundle.memory_sum import REQUEST_MEMORY, Footprint, Memory

__all__ = [
    "ALIGN",
    "DECODE",
    "ENCODE",
    "LISTEN",
    "PREFILL",
    "UPLOAD_BYTES_PER_BYTE",
    "SpeechManifest",
    "SpeechTokens",
    "listen_function",
    "speech_memory",
]

# Memory per byte of an uploaded file: what has arrived, and a copy where files are in memory.
UPLOAD_BYTES_PER_BYTE = 2
ENCODE, PREFILL, DECODE, ALIGN = "encode", "prefill", "decode", "align"
LISTEN = "listen"
# Of a request: a window of samples, its spectrum in f64, and logits in f64.
_WINDOW_MEMORY = 48 << 20
# While a text is aligned, for each of its tokens and states: scores of a head, and of their copies;
# filtered weights of one head. A text has at most half the context, and the tokens around it.
_SCORE_BYTES, _FILTER_BYTES, _AROUND_TEXT = 8, 64, 5


@dataclass(frozen=True, kw_only=True)
class SpeechTokens:
    """The special tokens of a model, by id.

    end            ends a text
    start          begins it
    languages      by their codes, such as `en`; none of a model of English alone
    translate      asks for English text, transcribe for the language of the sound; None: the model
                   has no such tokens
    previous       begins the text of the window before
    no_speech      is likely after `start` where nobody speaks
    no_timestamps  asks for a text without times; the next ids are times, 0.02 s apart
    suppressed     never sampled
    """

    end: int
    start: int
    languages: Mapping[str, int]
    translate: int | None
    transcribe: int | None
    previous: int
    no_speech: int
    no_timestamps: int
    suppressed: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class SpeechManifest(ArraysManifest):
    """The manifest of a model of speech.

    mels     rows of a spectrogram
    states   S
    context  positions of a text
    prefill  T
    alignment_heads  layer and head of the cross attentions that follow the sound, in the order of
             `scores`; bundles baked by versions without word times have none
    """

    kind: Literal["speech"] = "speech"
    vocab_size: int
    mels: int
    states: int
    context: int
    prefill: int
    heard: tuple[CacheSpec, ...]
    caches: tuple[CacheSpec, ...]
    tokens: SpeechTokens
    footprint: Footprint
    alignment_heads: tuple[tuple[int, int], ...] = ()

    @override
    def __post_init__(self) -> None:
        """Raises NotABundle for functions that a model of speech does not have."""
        names = [function.name for function in self.functions]
        if names != [LISTEN]:
            raise NotABundle(f"{MANIFEST}.functions: got {names!r:.80}, expected {[LISTEN]}")

    @override
    def added_request_memory(self, max_body_bytes: int) -> int:
        """So that one of the largest sound files fits."""
        return max(0, UPLOAD_BYTES_PER_BYTE * max_body_bytes - REQUEST_MEMORY)

    @property
    def memory(self) -> Memory:
        """The memory that serving takes."""
        return speech_memory(
            self.footprint,
            vocab_size=self.vocab_size,
            context=self.context,
            states=self.states,
            heads=len(self.alignment_heads),
            buffers=(*self.heard, *self.caches),
        )

    @property
    @override
    def own_memory(self) -> int:
        """Bytes that serving takes in addition to SHARED_MEMORY."""
        return self.memory.unshared(1)


def speech_memory(
    footprint: Footprint,
    *,
    vocab_size: int,
    context: int,
    states: int,
    heads: int,
    buffers: Iterable[CacheSpec],
) -> Memory:
    """The memory that serving takes, with the buffers of a window and its text.

    `heads` are the alignment heads, and the others as in SpeechManifest.
    """
    cells = (context // 2 + _AROUND_TEXT) * states
    alignment = cells * (_SCORE_BYTES * heads + _FILTER_BYTES) if heads else 0
    return Memory(
        vocab_size=vocab_size,
        context=context,
        weights=footprint.laid_out + footprint.read,
        slot=sum(spec.bytes for spec in buffers),
        block=0,
        steps={1: max(footprint.calls.values(), default=0) + max(_WINDOW_MEMORY, alignment)},
    )


def listen_function(
    mels: int, states: int, tokens: int, vocab_size: int, aligned: int = 0
) -> FunctionSpec:
    """The function that golden values are computed with; `aligned` is A."""
    scores = OutputSpec(name="scores", shape=(aligned, tokens, states), dtype="f32", takes=None)
    return FunctionSpec(
        name=LISTEN,
        inputs=(
            InputSpec(name="spectrogram", shape=(mels, 2 * states), dtype="f32", default="none"),
            InputSpec(name="tokens", shape=(tokens,), dtype="i32", default="none"),
        ),
        outputs=(
            OutputSpec(name="logits", shape=(tokens, vocab_size), dtype="f32", takes=None),
            *((scores,) if aligned else ()),
        ),
    )
