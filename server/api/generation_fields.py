"""The fields of every request for text: sampling, constraints, and how the answer is sent.

Names and defaults are llama-server's.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from typing_extensions import override

from hearthd.server.api.fields import (
    MAX_NAMES,
    Fields,
    ModelFields,
    Text,
    encodable_json,
    limit_members,
)
from hearthd.server.api.grammar_fields import GrammarFields
from hearthd.text.text_request import (
    DRY_SEQUENCE_BREAKERS,
    SEED_COUNT,
    SamplingParameters,
    TextRequest,
)

_MAX_BIAS = 1e6
# The maximum length of an answer, as the surfaces call it; an older name comes after a newer one.
_LENGTHS = ("num_predict", "n_predict", "max_completion_tokens", "max_output_tokens", "max_tokens")


def _bias_pair(pair: list[Any]) -> list[Any]:
    match pair:
        case [int() | str() as token, int() | float() | False as bias]:
            if not isinstance(token, bool) and bias is not True and abs(bias) <= _MAX_BIAS:
                encodable_json(token)
                return pair
    raise ValueError("an id or a text, and a number up to 1e6 or false")


Bias = Annotated[float, Field(ge=-_MAX_BIAS, le=_MAX_BIAS)] | Literal[False]
LogitBias = Annotated[
    dict[Text, Bias] | list[Annotated[list[Any], AfterValidator(_bias_pair)]],
    Field(max_length=MAX_NAMES),
    BeforeValidator(limit_members),
]
Breaker = Annotated[Text, Field(min_length=1, max_length=40)]
StopString = Annotated[Text, Field(min_length=1, max_length=256)]


def without_empty(stop: Any) -> Any:
    """The stop strings of a request that are not empty: an empty one stops nothing."""
    if isinstance(stop, list):
        return [text for text in stop if text != ""]
    return [] if stop == "" else stop


class LoraScale(Fields):
    """An adapter, and how much it changes the model."""

    id: int = Field(ge=0, description="Number of the adapter in /lora-adapters.")
    scale: float = Field(
        1.0,
        ge=-_MAX_BIAS,
        le=_MAX_BIAS,
        description="Factor of the adapter's terms. 0 turns the adapter off.",
    )


class SamplingFields(Fields, SamplingParameters):
    """SamplingParameters as fields of a request, with the seed and the stop strings.

    Names, defaults, ranges and descriptions are the same.
    """

    seed: int = Field(
        -1,
        ge=-SEED_COUNT // 2,
        lt=SEED_COUNT,
        description="Seed of the random generator, of 64 bits. The same request with the same seed "
        "gives the same answer. -1 draws a random seed; another negative seed is the same as the "
        "seed 2^64 above it.",
    )
    stop: Annotated[
        StopString | Annotated[list[StopString], Field(max_length=16)],
        BeforeValidator(without_empty),
    ] = Field(
        default_factory=list,
        description="End the answer before any of these strings. Empty ones are ignored.",
    )

    def take_defaults(self, defaults: Mapping[str, Any]) -> None:
        """Set the fields that the request does not set to the model's defaults."""
        names = type(self).model_fields.keys()
        for name in (defaults.keys() & names) - self.model_fields_set:
            setattr(self, name, defaults[name])
        lengths = [name for name in _LENGTHS if name in names]
        if lengths and "num_predict" in defaults and self.model_fields_set.isdisjoint(lengths):
            setattr(self, lengths[0], defaults["num_predict"])


class RandomSeed(SamplingFields):
    """The seed, also by Mistral's name."""

    random_seed: int | None = Field(None, ge=0, lt=SEED_COUNT, description="Another name of seed.")

    @model_validator(mode="after")
    def _by_either_name(self) -> Self:
        if self.random_seed is not None:
            self.seed = self.random_seed
        return self


class GenerationFields(SamplingFields, GrammarFields, ModelFields):
    """The fields of every request for text, without its prompt and length."""

    logit_bias: LogitBias = Field(
        default_factory=list,
        description="Numbers to add to the logits of a token id, or of each token of a text. false "
        'forbids the tokens. Either pairs, [[15043, -1], ["Hello", false]], or an object, '
        '{"15043": -1, "Hello": false}.',
    )
    dry_sequence_breakers: Annotated[list[Breaker], Field(min_length=1, max_length=16)] = Field(
        default_factory=lambda: list(DRY_SEQUENCE_BREAKERS),
        description="DRY: texts that end a repetition.",
    )
    stop_token_ids: Annotated[list[int], Field(max_length=MAX_NAMES)] = Field(
        default_factory=list,
        description="End the answer before any of these token ids.",
    )
    timeout_ms: int | None = Field(
        None,
        ge=1,
        le=2**63 - 1,
        description="End the answer after this many milliseconds, time in the queue included. "
        "No limit by default.",
    )
    cache_prompt: bool = Field(
        True,
        description="Reuse the prefix cache for the prompt, and keep the prompt in it. The answer "
        "is the same either way.",
    )
    cache_salt: Annotated[Text, Field(min_length=1, max_length=256)] | None = Field(
        None,
        description="Share the prefix cache only with requests that have the same salt, as in vLLM."
        " Requests with different API keys share nothing, unless `hearth serve --share-cache` "
        "allows it.",
    )
    timings_per_token: bool = Field(
        False, description="Report the timings so far in each event of a stream."
    )
    return_progress: bool = Field(
        False,
        description="With `stream`: report how much of the prompt has been read, in events with "
        "`prompt_progress` before the answer.",
    )
    lora: Annotated[list[LoraScale], Field(max_length=MAX_NAMES)] | None = Field(
        None,
        description="The LoRA adapter of this request, at most one with a scale other than 0. By "
        "default the adapter that the model's name or POST /lora-adapters chooses.",
    )
    stream: bool = Field(False, description="Send the answer as server-sent events.")

    @property
    @override
    def adapter_scales(self) -> dict[int, float] | None:
        return None if self.lora is None else {adapter.id: adapter.scale for adapter in self.lora}

    def completion(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int | None,
        logprobs: int | None,
        choice: int = 0,
    ) -> TextRequest:
        """The text layer's request; raises InvalidRequest.

        Choice 0 has the seed of the request, and each further choice the next seed.
        """
        return TextRequest(
            prompt=prompt if isinstance(prompt, str) else tuple(prompt),
            max_tokens=max_tokens,
            stop=(self.stop,) if isinstance(self.stop, str) else tuple(self.stop),
            stop_token_ids=frozenset(self.stop_token_ids),
            sampling=self,
            seed=None if self.seed == -1 else (self.seed + choice) % SEED_COUNT,
            logprobs=logprobs,
            timeout_ms=self.timeout_ms,
            cache_prompt=self.cache_prompt,
            cache_salt=self.cache_salt or "",
            timings_per_token=self.timings_per_token and self.stream,
            return_progress=self.return_progress and self.stream,
            grammar=self.rules(),
            logit_bias=self.biases(),
            dry_sequence_breakers=tuple(self.dry_sequence_breakers),
        )

    def biases(self) -> tuple[tuple[int | str, float], ...]:
        """(token id or text, number) pairs; as in llama-server, a key of digits is an id."""
        biases = self.logit_bias
        if isinstance(biases, dict):
            pairs = [(int(key) if key.isdecimal() else key, bias) for key, bias in biases.items()]
        else:
            pairs = [(token, bias) for token, bias in biases]
        return tuple((token, -math.inf if bias is False else float(bias)) for token, bias in pairs)
