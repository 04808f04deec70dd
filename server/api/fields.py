"""The fields that requests share, whatever the route: names, ranges, defaults and what they mean.

The names and defaults are llama-server's. A field that is unknown, or of a wrong type or range, is
refused by name; null is the same as no field. It knows no route and no form of answer.
"""

import json
import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    model_validator,
)
from pydantic_core import CoreSchema

from server.errors import InvalidRequest
from server.sampling.chain import SAMPLERS
from server.sampling.sampler import SamplingOptions
from server.text.completion import SEEDS, CompletionRequest
from server.text.grammar import Grammar
from server.text.sampling_text import DRY_SEQUENCE_BREAKERS

_DEFAULT = SamplingOptions()
_DEPTH = 64  # of JSON in a request
_LARGEST_BIAS = 1e6
_MOST_FIELDS = 256  # of an object in a request, known or not
_MOST_NAMES = 1024  # of an object whose names are free


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


def _bias_pair(pair: list[Any]) -> list[Any]:
    match pair:
        case [int() | str() as token, int() | float() | False as bias]:
            if not isinstance(token, bool) and bias is not True and abs(bias) <= _LARGEST_BIAS:
                whole_json(token)
                return pair
    raise ValueError("an id or a text, and a number up to 1e6 or false")


def _few(data: Any) -> Any:
    """Before its members are looked at, each of which may be wrong."""
    if isinstance(data, dict) and len(data) > _MOST_NAMES:
        raise ValueError(f"at most {_MOST_NAMES} members")
    return data


Text = Annotated[str, AfterValidator(_whole)]
StopString = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_whole)]
JsonObject = Annotated[dict[str, Any], AfterValidator(whole_json)]
Choices = Annotated[list[Annotated[Text, Field(min_length=1)]], Field(min_length=1, max_length=512)]
Bias = Annotated[float, Field(ge=-_LARGEST_BIAS, le=_LARGEST_BIAS)] | Literal[False]
Breaker = Annotated[Text, Field(min_length=1, max_length=40)]
SamplerName = Annotated[
    str, AfterValidator(_known_sampler), Field(json_schema_extra={"enum": list(SAMPLERS)})
]
Logprobs = Annotated[int, Field(ge=0, le=20)]
LogitBias = Annotated[
    dict[Text, Bias] | list[Annotated[list[Any], AfterValidator(_bias_pair)]],
    Field(max_length=_MOST_NAMES),
    BeforeValidator(_few),
]
Metadata = Annotated[dict[str, Text], BeforeValidator(_few)]


def prompts(field: Any, name: str) -> list[tuple[str, str | tuple[int, ...]]]:
    """The texts or lists of ids of a field that takes one or many, each with its path."""
    if isinstance(field, list) and field and not isinstance(field[0], int):
        named = [(f"{name}[{place}]", one) for place, one in enumerate(field)]
    else:
        named = [(name, field)]
    return [(path, one if isinstance(one, str) else tuple(one)) for path, one in named]


def _fail_fast(schema: Any) -> None:
    """Have each list in a schema end at the first item that is wrong."""
    if isinstance(schema, list | tuple):
        for part in schema:
            _fail_fast(part)
    elif isinstance(schema, dict):
        if schema.get("type") == "list":
            schema["fail_fast"] = True
        for part in schema.values():
            _fail_fast(part)


class Fields(BaseModel):
    """A part of a request: no unknown field, no conversion of types."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[BaseModel], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Pydantic's, whose lists end at the first wrong item: each problem takes 1.4 KB."""
        schema = handler(source)
        _fail_fast(schema)
        return schema

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        if len(data) > _MOST_FIELDS:
            raise ValueError(f"at most {_MOST_FIELDS} fields")
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


class SchemaFormat(Fields):
    """A JSON Schema as OpenAI's clients send it. It is always followed to the letter."""

    model_config = ConfigDict(populate_by_name=True)

    name: Text | None = None
    description: Text | None = None
    schema_: JsonObject = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(Fields):
    """The form of the answer: `type`, and the field that says more of it."""

    model_config = ConfigDict(populate_by_name=True)

    type: Literal["text", "json_object", "json_schema", "regex", "grammar", "choice"] = "text"
    json_schema: SchemaFormat | None = None
    schema_: JsonObject | None = Field(
        None, alias="schema", description="With json_object, as in llama-server."
    )
    regex: Text | None = None
    grammar: Text | None = Field(None, description="In llguidance's variant of Lark.")
    choice: Choices | None = None

    @model_validator(mode="after")
    def _with_what_it_needs(self) -> Self:
        for name in ("json_schema", "regex", "grammar", "choice"):
            if (getattr(self, name) is not None) != (self.type == name):
                raise ValueError(f"the field of its type {self.type}, and no field of another")
        if self.schema_ is not None and self.type != "json_object":
            raise ValueError("schema only with the type json_object")
        return self

    def rules(self) -> Grammar | None:
        """What the answer must be; None for anything."""
        at = f"response_format.{self.type}"
        match self.type:
            case "text":
                return None
            case "json_object":
                if self.schema_ is not None:
                    return _schema_rules(self.schema_, "response_format.schema")
                return Grammar("json_object", field="response_format")
            case "json_schema":
                assert self.json_schema is not None
                return _schema_rules(self.json_schema.schema_, f"{at}.schema")
            case "choice":
                return Grammar("choice", json.dumps(self.choice), at)
            case "grammar":
                return Grammar("lark", self.grammar or "", at)
            case "regex":
                return Grammar("regex", self.regex or "", at)


class RulesFields(Fields):
    """What the answer must be: at most one of these."""

    response_format: ResponseFormat | None = Field(
        None, description="As OpenAI's, and with a type for each of the other fields here."
    )
    json_schema: JsonObject | None = Field(
        None, description="JSON that is valid by this schema; what cannot be checked is refused."
    )
    regex: Text | None = Field(None, description="A text that this matches as a whole.")
    grammar: Text | None = Field(None, description="A text of this grammar, in llguidance's Lark.")
    choice: Choices | None = Field(None, description="One of these texts.")

    def rules(self) -> Grammar | None:
        """What the answer must be; None for anything. Raises InvalidRequest for two of them."""
        given = [
            None if self.response_format is None else self.response_format.rules(),
            None if self.json_schema is None else _schema_rules(self.json_schema, "json_schema"),
            None if self.regex is None else Grammar("regex", self.regex, "regex"),
            None if self.grammar is None else Grammar("lark", self.grammar, "grammar"),
            None if self.choice is None else Grammar("choice", json.dumps(self.choice), "choice"),
        ]
        found = [grammar for grammar in given if grammar is not None]
        if len(found) > 1:
            first, second = found[0].field, found[1].field
            raise InvalidRequest(field=second, got=found[1].kind, wanted=f"none beside {first}")
        return found[0] if found else None


def _schema_rules(schema: dict[str, Any], field: str) -> Grammar:
    return Grammar("json_schema", json.dumps(schema, ensure_ascii=False), field)


class GenerationFields(SamplingFields, RulesFields):
    """What every request for text has besides its prompt and its length."""

    logit_bias: LogitBias = Field(
        default_factory=list,
        description="Added to the logits of an id, or of each token of a text; false bans them. "
        'As [[15043, -1], ["Hello", false]] or {"15043": -1, "Hello": false}.',
    )
    dry_sequence_breakers: Annotated[list[Breaker], Field(min_length=1, max_length=16)] = Field(
        default_factory=lambda: list(DRY_SEQUENCE_BREAKERS),
        description="Texts at which DRY's repetitions end.",
    )

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
            grammar=self.rules(),
            logit_bias=_biases(self.logit_bias),
            dry_sequence_breakers=tuple(self.dry_sequence_breakers),
        )


def _biases(given: dict[str, Bias] | list[list[Any]]) -> tuple[tuple[int | str, float], ...]:
    """Tokens, by id or text, and what is added; as in llama-server, a key of digits is an id."""
    if isinstance(given, dict):
        pairs = [(int(key) if key.isdecimal() else key, bias) for key, bias in given.items()]
    else:
        pairs = [(token, bias) for token, bias in given]
    return tuple((token, -math.inf if bias is False else float(bias)) for token, bias in pairs)
