"""The fields that requests share, whatever the route: names, ranges, defaults and what they mean.

The names and defaults are llama-server's. A field that is unknown, or of a wrong type or range, is
refused by name; null is the same as no field. It knows no route and no form of answer.
"""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from server.engine.sampler import SamplingOptions
from server.text.completion import SEEDS, CompletionRequest

_DEPTH = 64  # of JSON in a request


def _whole(text: str) -> str:
    """Half a surrogate pair can stand in JSON, and is no text."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("text without lone surrogates") from error
    return text


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
Logprobs = Annotated[int, Field(ge=0, le=20)]


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
    """How a token is chosen."""

    temperature: float = Field(0.8, ge=0, description="0 takes the most likely token every time.")
    top_k: int = Field(40, ge=0, description="Keep the k most likely tokens; 0 keeps all.")
    top_p: float = Field(
        0.95, ge=0, le=1, description="Keep the fewest tokens that together have this probability."
    )
    min_p: float = Field(
        0.05, ge=0, le=1, description="Keep tokens with this share of the best one's probability."
    )
    repeat_penalty: float = Field(
        1.0, ge=0.01, le=100, description="Weakens the last 64 tokens' logits; 1 is off."
    )

    def options(self, *, logprobs: int | None) -> SamplingOptions:
        """The sampler's options; `logprobs` as there, since each surface asks for them its way."""
        return SamplingOptions(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            repeat_penalty=self.repeat_penalty,
            logprobs=logprobs,
        )


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
