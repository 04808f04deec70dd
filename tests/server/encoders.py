"""An encoder without a compiler, and a service on it.

The vector of a text is the counts of its tokens. The score of a pair is how many ids its texts have
in common, minus how many tokens the second one has.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import tokenizers
from tokenizers import models, pre_tokenizers, processors
from typing_extensions import override

from hearthd.bundle import (
    EncoderManifest,
    Footprint,
    FunctionSpec,
    InputSpec,
    OutputSpec,
    PairPrompt,
)
from hearthd.runtime.array_functions import Functions
from hearthd.runtime.checks.golden_arrays import GoldenExample
from hearthd.server.services.encoder_service import EncoderService
from hearthd.text.tokenizer import Tokenizer
from tests.server.fakes import MANIFEST_FIELDS
from tests.server.functions import local_calls

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hearthd.runtime.array_bytes import Arrays

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "dog", "fox", "runs", "sleeps", "fast"]
UNKNOWN, CLS, SEP = 1, 2, 3
# The number of texts and the length of each function.
SHAPES = ((3, 4), (2, 8), (1, 16))


def word_tokenizer() -> tokenizers.Tokenizer:
    """A tokenizer with a token per word, and BERT's tokens around texts."""
    vocabulary = {word: id_ for id_, word in enumerate(WORDS)}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", SEP), ("[CLS]", CLS))
    tokenizer.add_special_tokens(["[CLS]", "[SEP]"])
    return tokenizer


def _function(batch: int, length: int, width: int) -> FunctionSpec:
    shapes = {"tokens": (batch, length), "types": (batch, length), "counts": (batch,)}
    return FunctionSpec(
        name=f"encode_{batch}x{length}",
        inputs=tuple(
            InputSpec(name=name, shape=shape, dtype="i32", default="none")
            for name, shape in shapes.items()
        ),
        outputs=(OutputSpec(name="vectors", shape=(batch, width), dtype="f32", takes=None),),
    )


@dataclass(kw_only=True)
class FakeEncoder(Functions):
    """Computes the vectors or scores.

    calls  the function and the counts of each call
    texts  the tokens of each text
    """

    scores: bool
    calls: list[tuple[str, list[int]]] = field(default_factory=list)
    texts: list[list[int]] = field(default_factory=list)

    @override
    def run(self, function: str, inputs: Arrays) -> Arrays:
        """As strict as a real runtime."""
        assert all(array.dtype == np.int32 for array in inputs.values())
        tokens, types, counts = (inputs[name] for name in ("tokens", "types", "counts"))
        assert function == f"encode_{tokens.shape[0]}x{tokens.shape[1]}"
        assert types.shape == tokens.shape
        assert ((counts >= 1) & (counts <= tokens.shape[1])).all()
        self.calls.append((function, counts.tolist()))
        texts = [
            (row[:count], kinds[:count])
            for row, kinds, count in zip(tokens, types, counts, strict=True)
        ]
        self.texts += [ids.tolist() for ids, _ in texts]
        rows = [self._row(*text) for text in texts]
        return {"vectors": np.array(rows, np.float32)}

    def _row(self, ids: NDArray[np.int32], types: NDArray[np.int32]) -> NDArray[np.int32]:
        if not self.scores:
            return np.bincount(ids, minlength=len(WORDS)).astype(np.int32)
        first, second = set(ids[types == 0]) - {SEP}, ids[types == 1]
        return np.array([len(first & set(second)) - len(second)], np.int32)


def service(
    *, scores: bool, runtime: FakeEncoder | None = None, pair_prompt: PairPrompt | None = None
) -> EncoderService:
    """A service whose golden values a right runtime computed."""
    width = 1 if scores else len(WORDS)
    functions = tuple(_function(*shape, width) for shape in reversed(SHAPES))
    inputs = {
        "tokens": np.full((3, 4), CLS, np.int32),
        "types": np.zeros((3, 4), np.int32),
        "counts": np.ones(3, np.int32),
    }
    outputs = FakeEncoder(scores=scores).run("encode_3x4", inputs)
    manifest = EncoderManifest(
        **{**MANIFEST_FIELDS, "config": {"pooling": "rank" if scores else "mean"}},
        tolerance=1e-4,
        functions=functions,
        vocab_size=len(WORDS),
        footprint=Footprint(laid_out=0, read=0, looked_up=0, calls={"encode_3x4": 0}),
        pair_prompt=pair_prompt,
    )
    examples = [GoldenExample(function="encode_3x4", inputs=inputs, outputs=outputs)]
    return EncoderService(
        *local_calls(runtime or FakeEncoder(scores=scores), manifest, examples, queue_limit=8),
        manifest,
        Tokenizer(word_tokenizer(), bos=None, context=16),
        name="reranker" if scores else "embedder",
    )
