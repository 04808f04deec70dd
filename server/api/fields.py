"""The fields that requests share, whatever the route: names, ranges, defaults and what they mean.

The names and defaults are llama-server's. A field that is unknown, or of a wrong type or range, is
refused by name; null is the same as no field. It knows no route and no form of answer.
"""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from server.engine.sampler import SamplingOptions
from server.engine.samplers import SAMPLERS
from server.text.completion import SEEDS, CompletionRequest

_DEFAULT = SamplingOptions()
_DEPTH = 64  # of JSON in a request


def _whole(text: str) -> str:
    """Half a surrogate pair can stand in JSON, and is no text."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("text without lone surrogates") from error
    return text


def _known_sampler(name: str) -> str:
    if name not in SAMPLERS:
        raise ValueError(f"one of {', '.join(SAMPLERS)}")
    return name


def whole_json(value: Any, *, depth: int = _DEPTH) -> Any:
    """The JSON value as it is; raises ValueError for what no template could write."""
    if depth == 0:
        raise ValueError(f"JSON that is nested less than {_DEPTH} deep")
    if isinstance(value, str):
        _whole(value)
    elif isinstance(value, list):
        for item in value:
            whole_json(item, depth=depth - 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            _whole(key)
            whole_json(item, depth=depth - 1)
    return value


Text = Annotated[str, AfterValidator(_whole)]
StopString = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_whole)]
JsonObject = Annotated[dict[str, Any], AfterValidator(whole_json)]
SamplerName = Annotated[
    str, AfterValidator(_known_sampler), Field(json_schema_extra={"enum": list(SAMPLERS)})
]
Logprobs = Annotated[int, Field(ge=0, le=20)]


def prompts(field: Any, name: str) -> list[tuple[str, str | tuple[int, ...]]]:
    """The texts or lists of ids of a field that takes one or many, each with its path."""
    if isinstance(field, list) and field and not isinstance(field[0], int):
        named = [(f"{name}[{place}]", one) for place, one in enumerate(field)]
    else:
        named = [(name, field)]
    return [(path, one if isinstance(one, str) else tuple(one)) for path, one in named]


class Fields(BaseModel):
    """A part of a request: no unknown field, no conversion of types."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {name: value for name, value in data.items() if value is not None}


class SamplingFields(Fields):
    """How a token is chosen: SamplingOptions, by the same names and with the same defaults."""

    temperature: float = Field(
        _DEFAULT.temperature, ge=0, description="0 takes the most likely token every time."
    )
    dynatemp_range: float = Field(
        _DEFAULT.dynatemp_range, ge=0, description="The temperature moves by so much with entropy."
    )
    dynatemp_exponent: float = Field(
        _DEFAULT.dynatemp_exponent, ge=0, description="How the temperature moves with entropy."
    )
    top_k: int = Field(_DEFAULT.top_k, ge=0, description="Keep the k most likely; 0 keeps all.")
    top_p: float = Field(
        _DEFAULT.top_p, ge=0, le=1, description="Keep the fewest with this probability together."
    )
    min_p: float = Field(
        _DEFAULT.min_p, ge=0, le=1, description="Keep those with this share of the best one's."
    )
    typical_p: float = Field(
        _DEFAULT.typical_p, ge=0, le=1, description="Keep those of typical surprise; 1 keeps all."
    )
    repeat_penalty: float = Field(
        _DEFAULT.repeat_penalty, ge=0.01, le=100, description="Weakens recent tokens; 1 is off."
    )
    repeat_last_n: int = Field(
        _DEFAULT.repeat_last_n, ge=-1, description="How many tokens are recent; -1: all of them."
    )
    presence_penalty: float = Field(
        _DEFAULT.presence_penalty, ge=-100, le=100, description="Taken from recent tokens' logits."
    )
    frequency_penalty: float = Field(
        _DEFAULT.frequency_penalty, ge=-100, le=100, description="Taken for each time one came."
    )
    dry_multiplier: float = Field(
        _DEFAULT.dry_multiplier, ge=0, le=100, description="Weakens repetitions (DRY); 0 is off."
    )
    dry_base: float = Field(_DEFAULT.dry_base, ge=1, le=100, description="DRY's growth.")
    dry_allowed_length: int = Field(
        _DEFAULT.dry_allowed_length, ge=0, description="Longer repetitions are weakened by DRY."
    )
    dry_penalty_last_n: int = Field(
        _DEFAULT.dry_penalty_last_n, ge=-1, description="How far DRY looks back; -1: all the way."
    )
    xtc_probability: float = Field(
        _DEFAULT.xtc_probability, ge=0, le=1, description="How often the likeliest are dropped."
    )
    xtc_threshold: float = Field(
        _DEFAULT.xtc_threshold, ge=0, le=1, description="Who is among the likeliest, for XTC."
    )
    min_keep: int = Field(
        _DEFAULT.min_keep, ge=0, description="The fewest tokens that a sampler leaves."
    )
    samplers: Annotated[list[SamplerName], Field(max_length=32)] = Field(
        default_factory=lambda: list(_DEFAULT.samplers),
        description="The samplers that run, in this order.",
    )
    ignore_eos: bool = Field(_DEFAULT.ignore_eos, description="The model cannot end its answer.")
    min_tokens: int = Field(
        _DEFAULT.min_tokens, ge=0, description="The model cannot end its answer before."
    )
    post_sampling_probs: bool = Field(
        _DEFAULT.post_sampling_probs,
        description="Report log-probabilities after the samplers, not the model's own.",
    )

    def options(self, *, logprobs: int | None) -> SamplingOptions:
        """The sampler's options; `logprobs` as there, since each surface asks for them its way."""
        same = {name: getattr(self, name) for name in SamplingFields.model_fields}
        return SamplingOptions(**{**same, "samplers": tuple(self.samplers)}, logprobs=logprobs)


class GenerationFields(SamplingFields):
    """What every request for text has besides its prompt and its length."""

    seed: int = Field(
        -1, ge=-1, lt=SEEDS, description="Equal seeds give equal answers; -1 draws one."
    )
    stop: StopString | Annotated[list[StopString], Field(max_length=16)] = Field(
        default_factory=list,
        description="End the answer before any of these strings, besides the model's own end.",
    )
    timeout_ms: int | None = Field(
        None, ge=1, description="End the answer after so many milliseconds, waiting included."
    )
    cache_prompt: bool = Field(
        True, description="Reuse, and keep, what was read of equal prompts. The answer is the same."
    )
    stream: bool = Field(False, description="Send the answer as server-sent events.")

    def completion(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int | None,
        logprobs: int | None,
        choice: int = 0,
    ) -> CompletionRequest:
        """The text layer's request; `logprobs` as in SamplingOptions.

        Of several choices, each has a seed of its own: the first one the request's, then the next.
        """
        return CompletionRequest(
            prompt=prompt if isinstance(prompt, str) else tuple(prompt),
            max_tokens=max_tokens,
            stop=(self.stop,) if isinstance(self.stop, str) else tuple(self.stop),
            sampling=self.options(logprobs=logprobs),
            seed=None if self.seed == -1 else (self.seed + choice) % SEEDS,
            timeout_ms=self.timeout_ms,
            cache_prompt=self.cache_prompt,
        )
