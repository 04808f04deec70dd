"""An encoder that is served: embeddings of texts, or scores of pairs of them. It knows no HTTP."""

from __future__ import annotations

import asyncio
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hearthd.bundle import ENCODER_INPUTS, ENCODER_OUTPUT, TOKENIZER, EncoderManifest
from hearthd.runtime.array_functions import ArraysRuntime
from hearthd.server.completions.completer import unit
from hearthd.server.engine.array_calls import Calls
from hearthd.server.metrics import EncoderMetrics
from hearthd.server.services.array_service import (
    ArrayService,
    FunctionsOptions,
    open_functions_service,
)
from hearthd.text.answer import EmbeddedText
from hearthd.text.errors import ContextExceeded, InvalidRequest
from hearthd.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.bundle import FunctionSpec, PairPrompt, ProgramFile
    from hearthd.runtime.checks.self_test import Level, Verdict
    from hearthd.server.services.array_service import CallsBackend

    # The field of a request, and the text or the token ids that it has.
    NamedText: TypeAlias = tuple[str, str | tuple[int, ...]]


@dataclass(frozen=True)
class TokenIds:
    """A text, or a pair of texts, as an encoder reads it: ids, and types: 1 in a second text."""

    ids: tuple[int, ...]
    types: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Score:
    """The model's score of a query and a document, and the tokens of both."""

    logit: float
    tokens: int

    @property
    def relevance(self) -> float:
        """The logistic function of the score, from 0 to 1."""
        return float(1 / (1 + np.exp(-self.logit)))


class EncoderService(ArrayService):
    """The encoder of one bundle: a tokenizer, and one function for each length of texts."""

    manifest: EncoderManifest
    metrics: EncoderMetrics
    metrics_type = EncoderMetrics

    def __init__(
        self,
        calls: CallsBackend,
        self_test: Callable[[], Verdict],
        manifest: EncoderManifest,
        tokenizer: Tokenizer,
        *,
        name: str | None = None,
        level: Level = "quick",
        program: ProgramFile | None = None,
    ) -> None:
        super().__init__(calls, self_test, manifest, name=name, level=level, program=program)
        self.tokenizer = tokenizer

    @property
    def embedding_width(self) -> int:
        """The number of values of an embedding."""
        return self.manifest.width

    async def embed_all(self, texts: Sequence[NamedText]) -> list[EmbeddedText]:
        """Embed texts; raises InvalidRequest and what `run` raises."""
        if self.manifest.scores:
            raise InvalidRequest(
                field="model", got=self.name, expected="a model that embeds texts, not a reranker"
            )
        encoded = [await self._text_ids(field, text) for field, text in texts]
        vectors = await self._encode(encoded)
        return [
            EmbeddedText(unit(vector), len(text.ids))
            for vector, text in zip(vectors, encoded, strict=True)
        ]

    async def score_all(self, query: str, documents: Sequence[str], field: str) -> list[Score]:
        """Score each document in the `field` for a query; raises as `embed_all`."""
        if not self.manifest.scores:
            raise InvalidRequest(
                field="model", got=self.name, expected="a reranker: a model that scores pairs"
            )
        pairs = [
            await self._pair_ids(f"{field}[{index}]", query, document)
            for index, document in enumerate(documents)
        ]
        logits = (await self._encode(pairs))[:, 0].astype(np.float64)
        return [
            Score(logit=float(logit), tokens=len(pair.ids))
            for logit, pair in zip(logits, pairs, strict=True)
        ]

    async def _text_ids(self, field: str, text: str | tuple[int, ...]) -> TokenIds:
        if len(text) == 0:
            raise InvalidRequest(field=field, got=text or "[]", expected="at least one token")
        if isinstance(text, str):
            return self._checked(field, *await asyncio.to_thread(self.tokenizer.pair_ids, text))
        for position, token in enumerate(text):
            if not 0 <= token < self.manifest.vocab_size:
                raise InvalidRequest(
                    field=f"{field}[{position}]",
                    got=token,
                    expected=f"token ids from 0 to {self.manifest.vocab_size - 1}",
                )
        return self._checked(field, text, (0,) * len(text))

    async def _pair_ids(self, field: str, query: str, document: str) -> TokenIds:
        prompt = self.manifest.pair_prompt
        encode = (
            self.tokenizer.pair_ids
            if prompt is None
            else functools.partial(_prompt_ids, self.tokenizer, prompt)
        )
        return self._checked(field, *await asyncio.to_thread(encode, query, document))

    def _checked(self, field: str, ids: tuple[int, ...], types: tuple[int, ...]) -> TokenIds:
        if len(ids) > (longest := self.manifest.context):
            raise ContextExceeded(field=field, tokens=len(ids), limit=longest, context=longest)
        return TokenIds(ids, types)

    async def _encode(self, texts: Sequence[TokenIds]) -> NDArray[np.float32]:
        """The vector of each text, f32 (len(texts), W): texts of similar length together."""
        result = np.zeros((len(texts), self.manifest.width), np.float32)
        for function, places in self._batches(texts):
            outputs = await self.run(
                function.name, _arrays(function, [texts[index] for index in places])
            )
            result[places] = outputs[ENCODER_OUTPUT][: len(places)]
            self.metrics.encoded(sum(len(texts[index].ids) for index in places))
        return result

    def _batches(self, texts: Sequence[TokenIds]) -> Iterator[tuple[FunctionSpec, list[int]]]:
        """Each text's place once, with the function of the shortest texts that it fits."""
        shorter = 0
        for function in self.manifest.by_length:
            batch, length = function.inputs[0].shape
            fitting = [i for i, text in enumerate(texts) if shorter < len(text.ids) <= length]
            for first in range(0, len(fitting), batch):
                yield function, fitting[first : first + batch]
            shorter = length


def _prompt_ids(
    tokenizer: Tokenizer, prompt: PairPrompt, query: str, document: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids of a prompt, and the types of its tokens: all of one text."""
    ids = (
        *tokenizer.read(prompt.before),
        *tokenizer.read(prompt.pair(query, document), special=False, position="inside"),
        *tokenizer.read(prompt.behind, position="inside"),
    )
    return ids, (0,) * len(ids)


def _arrays(function: FunctionSpec, texts: Sequence[TokenIds]) -> dict[str, NDArray[np.int32]]:
    """The inputs of a function; texts that are missing have one token."""
    batch, length = function.inputs[0].shape
    tokens, types = np.zeros((2, batch, length), np.int32)
    counts = np.ones(batch, np.int32)
    for row, text in enumerate(texts):
        tokens[row, : len(text.ids)], types[row, : len(text.ids)] = text.ids, text.types
        counts[row] = len(text.ids)
    return dict(zip(ENCODER_INPUTS, (tokens, types, counts), strict=True))


def open_encoder_service(bundle: Path, options: FunctionsOptions) -> EncoderService:
    """Open a bundle with an encoder; raises BundleError."""

    def service(
        calls: Calls, self_test: Callable[[], Verdict], manifest: EncoderManifest, **known: Any
    ) -> EncoderService:
        tokenizer = open_encoder_tokenizer(bundle, manifest)
        return EncoderService(calls, self_test, manifest, tokenizer, **known)

    return open_functions_service(bundle, EncoderManifest, ArraysRuntime, Calls, service, options)


def open_encoder_tokenizer(bundle: Path, manifest: EncoderManifest) -> Tokenizer:
    """The tokenizer of an encoder's bundle; raises BundleError."""
    return Tokenizer.from_file(
        bundle / TOKENIZER, bos=None, context=manifest.context, whole_texts=True
    )
