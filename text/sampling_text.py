"""Translate the sampling options that are text into token ids: logit biases and DRY's breakers."""

from __future__ import annotations

import functools
import json
from collections import defaultdict
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from hearthd.bundle.parsing.validation import expected
from hearthd.sampling.options import SamplingOptions, SamplingParameters
from hearthd.text.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hearthd.sampling.options import Breakers
    from hearthd.text.tokenizer import Tokenizer

_MAX_BREAKER_BYTES = 40
_MAX_TAIL_TOKENS = 20
_MAX_PARAMETER = 2**31  # llama.cpp's integers have 32 bits


def valid_parameters(values: Mapping[str, Any]) -> dict[str, int | float]:
    """The sampling parameters among some values that are numbers in their range."""
    return {name: value for name, value in values.items() if not expected_parameter(name, value)}


def expected_parameter(name: str, value: Any) -> str | None:
    """What is expected in place of a sampling parameter's value; None if that is valid."""
    if name not in SamplingParameters.__dataclass_fields__:
        return "the name of a parameter"
    if type(value) not in (int, float) or not abs(value) < _MAX_PARAMETER:  # nor NaN
        return "a number"
    try:
        _parameters().validate_json(json.dumps({name: value}), strict=True)
    except ValidationError as error:
        return expected(error.errors()[0])
    return None


@functools.cache
def _parameters() -> TypeAdapter[SamplingParameters]:
    return TypeAdapter(SamplingParameters)


class SamplingText:
    """Makes a sampler's options from a request's, for a model with `vocab_size` ids."""

    def __init__(self, tokenizer: Tokenizer, *, vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        # A search through the vocabulary takes a tenth of a second.
        self._breakers_of = functools.lru_cache(maxsize=16)(self._find_breakers)

    def resolve(
        self,
        parameters: SamplingParameters,
        *,
        logprobs: int | None = None,
        logit_bias: Sequence[tuple[int | str, float]],
        dry_sequence_breakers: tuple[str, ...],
    ) -> SamplingOptions:
        """The sampler's options for a request's parameters, with texts as token ids.

        A text biases each of its tokens, as in llama-server. Breakers are resolved only when DRY is
        on. For any thread. Raises InvalidRequest for an id that the model does not have.
        """
        same = {name.name: getattr(parameters, name.name) for name in fields(SamplingParameters)}
        options = SamplingOptions(
            **same,
            logprobs=logprobs,
            logit_bias=tuple(
                (id_, bias) for token, bias in logit_bias for id_ in self._biased(token)
            ),
        )
        if options.dry_multiplier:
            options = replace(options, dry_breakers=self._breakers_of(dry_sequence_breakers))
        return options

    def _biased(self, token: int | str) -> tuple[int, ...]:
        ids = (token,) if isinstance(token, int) else self._tokenizer.read(token, special=False)
        for id_ in ids:
            if not 0 <= id_ < self._vocab_size:
                expected = f"texts, or token ids from 0 to {self._vocab_size - 1}"
                raise InvalidRequest(field="logit_bias", got=token, expected=expected)
        return ids

    def _find_breakers(self, texts: tuple[str, ...]) -> Breakers:
        sequences: dict[int, set[tuple[int, ...]]] = defaultdict(set)
        for text in texts:
            for id_, tail in self._sequences(_cut(text)):
                sequences[id_].add(tail)
        return {id_: tuple(sorted(tails)) for id_, tails in sequences.items()}

    def _sequences(self, breaker: bytes) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Tokens that contain the breaker, and tokens that begin it with those that complete it.

        As get_overlapping_token_sequences in llama.cpp's llama-sampler.cpp.
        """
        cuts = range(1, len(breaker))
        tails = {breaker[:cut]: self._tail(breaker[cut:])[:_MAX_TAIL_TOKENS] for cut in cuts}
        for id_, word in enumerate(self._tokenizer.words.resized(self._vocab_size)):
            if breaker in word:
                yield id_, ()
                continue
            for beginning, tail in tails.items():
                if word.endswith(beginning):
                    yield id_, tail

    def _tail(self, rest: bytes) -> tuple[int, ...]:
        """The tokens of the rest of a text, whose first bytes may be the end of a character."""
        text = rest.decode(errors="ignore")
        ends = rest[: len(rest) - len(text.encode())]
        words = self._tokenizer.words
        bytes_ = tuple(words.index(bytes([byte])) for byte in ends if bytes([byte]) in words)
        return (*bytes_, *self._tokenizer.read(text, special=False, position="inside"))


def _cut(text: str) -> bytes:
    """The part of a text that llama.cpp considers, in whole characters."""
    return text.encode()[:_MAX_BREAKER_BYTES].decode(errors="ignore").encode()
