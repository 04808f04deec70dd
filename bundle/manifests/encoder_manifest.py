"""The manifest of an encoder: array functions of token ids, and a tokenizer.

Besides the files of array functions its bundle holds tokenizer.json. There is one function for each
length of texts; it reads B texts of T tokens:

    encode_BxT   (tokens i32[B, T], types i32[B, T], counts i32[B]) -> vectors f32[B, W]

`counts` are the tokens of each text, at least 1; the others are padding. `types` are 1 for the
second text of a pair, otherwise 0. Of a model that scores pairs, W is 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from typing_extensions import override

from hearthd.bundle.bundle_errors import NotABundle
from hearthd.bundle.file_records import MANIFEST
from hearthd.bundle.manifests.array_manifest import ArraysManifest, FunctionSpec
from hearthd.bundle.memory_sum import Footprint, Memory
from hearthd.bundle.provenance import OMITTED

__all__ = ["ENCODER_INPUTS", "ENCODER_OUTPUT", "EncoderManifest", "PairPrompt", "encoder_memory"]

ENCODER_INPUTS = ("tokens", "types", "counts")
ENCODER_OUTPUT = "vectors"
_RANK = "rank"


@dataclass(frozen=True, kw_only=True)
class PairPrompt:
    """The prompt that a decoder reads for a query and a document.

    before    text in front of the pair, with special tokens
    query     text in front of the query
    document  text between the query and the document
    behind    text behind the pair, with special tokens
    """

    before: str
    query: str
    document: str
    behind: str

    def pair(self, query: str, document: str) -> str:
        """The text between `before` and `behind`, in which no name is a special token."""
        return f"{self.query}{query}{self.document}{document}"


@dataclass(frozen=True, kw_only=True)
class EncoderManifest(ArraysManifest):
    """The manifest of an encoder.

    `config["pooling"]` is `rank` for a model that scores pairs of texts, which a `pair_prompt`
    joins, or else the tokenizer.
    """

    kind: Literal["encoder"] = "encoder"
    vocab_size: int
    footprint: Footprint
    pair_prompt: PairPrompt | None = field(default=None, metadata=OMITTED)

    @override
    def __post_init__(self) -> None:
        """Raises NotABundle for functions that an encoder does not have."""
        for function in self.functions:
            names = tuple(spec.name for spec in function.inputs)
            if names != ENCODER_INPUTS or len(function.inputs[0].shape) != len(("B", "T")):
                raise NotABundle(
                    f"{MANIFEST}.functions: {function.name}: got inputs {names!r:.80}, expected "
                    f"{ENCODER_INPUTS}"
                )
        if not self.functions:
            raise NotABundle(
                f"{MANIFEST}.functions: got none, expected the functions of an encoder"
            )

    @property
    def by_length(self) -> tuple[FunctionSpec, ...]:
        """The functions, by the length of their texts, the shortest first."""
        return tuple(sorted(self.functions, key=lambda function: function.inputs[0].shape[1]))

    @property
    def context(self) -> int:
        """The longest text, in tokens."""
        return self.by_length[-1].inputs[0].shape[1]

    @property
    def width(self) -> int:
        """W, the width of a vector."""
        return self.functions[0].outputs[0].shape[-1]

    @property
    def scores(self) -> bool:
        """Whether the model scores pairs of texts, and embeds none."""
        return self.config.get("pooling") == _RANK

    @property
    def memory(self) -> Memory:
        """The memory that serving takes."""
        return encoder_memory(self.footprint, self.vocab_size, self.context)

    @property
    @override
    def own_memory(self) -> int:
        """Bytes that serving takes in addition to SHARED_MEMORY."""
        return self.memory.unshared(1)


def encoder_memory(footprint: Footprint, vocab_size: int, context: int) -> Memory:
    """The memory that serving takes; the footprint has all of the functions."""
    return Memory(
        vocab_size=vocab_size,
        context=context,
        weights=footprint.laid_out + footprint.read,
        slot=0,
        block=0,
        steps={1: max(footprint.calls.values(), default=0)},
    )
