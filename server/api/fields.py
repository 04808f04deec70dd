"""The base of every request body, and the types of its fields.

A wrong type and a value out of range are rejected by name. null is the same as an absent field.
inert_fields.py decides about fields that are in no schema.
"""

import functools
from collections.abc import Mapping
from typing import Annotated, Any

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
from typing_extensions import override

from hearthd.server.api.inert_fields import MAX_METADATA, without_inert

MAX_NAMES = 1024  # members of an object with free names
_MAX_DEPTH = 64  # of nested JSON
_MAX_FIELDS = 256  # of an object with fixed names, known or not


def _encodable(text: str) -> str:
    """Reject half a surrogate pair: JSON can hold one, UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("text without lone surrogates") from error
    return text


def encodable_json(value: Any, *, depth: int = _MAX_DEPTH) -> Any:
    """The JSON value, unchanged; raises ValueError for lone surrogates and too deep nesting."""
    if depth == 0:
        raise ValueError(f"JSON that is nested less than {_MAX_DEPTH} deep")
    if isinstance(value, str):
        _encodable(value)
    elif isinstance(value, list):
        for item in value:
            encodable_json(item, depth=depth - 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            _encodable(key)
            encodable_json(item, depth=depth - 1)
    return value


def limit_members(data: Any, limit: int = MAX_NAMES) -> Any:
    """Reject a large object before its members are validated: each could be an error."""
    if isinstance(data, dict) and len(data) > limit:
        raise ValueError(f"at most {limit} members")
    return data


def _unlimited(value: Any) -> Any:
    return None if type(value) is int and value in (-1, -2) else value


MAX_LOGPROBS = 20  # alternatives of a token, as in OpenAI's API
Text = Annotated[str, AfterValidator(_encodable)]
JsonObject = Annotated[dict[str, Any], AfterValidator(encodable_json)]
ToolName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
# As in OpenAI's API.
Metadata = Annotated[
    dict[Annotated[Text, Field(max_length=64)], Annotated[Text, Field(max_length=512)]],
    Field(max_length=MAX_METADATA),
    BeforeValidator(lambda data: limit_members(data, MAX_METADATA)),
]
Logprobs = Annotated[int, Field(ge=0, le=MAX_LOGPROBS)]
# -1 and -2 are llama-server's words for no limit besides the context.
MaxTokens = Annotated[Annotated[int, Field(ge=1)] | None, BeforeValidator(_unlimited)]


def with_integers(data: Any) -> Any:
    """Turn members of an object such as 40.0 into integers, in place.

    Clients in JavaScript, and those that have such a number as a float, send it that way.
    """
    if isinstance(data, dict):
        for name, value in data.items():
            if isinstance(value, float) and value.is_integer():
                data[name] = int(value)
    return data


NamedPrompt = tuple[str, str | tuple[int, ...]]


def prompts(value: Any, name: str) -> list[NamedPrompt]:
    """The prompts of a field that takes one or many, each with its path (`prompt[3]`)."""
    if isinstance(value, list) and value and not isinstance(value[0], int):
        named = [(f"{name}[{index}]", prompt) for index, prompt in enumerate(value)]
    else:
        named = [(name, value)]
    return [(path, p if isinstance(p, str) else tuple(p)) for path, p in named]


def _fail_fast(schema: Any) -> None:
    """Make each list and tuple in a core schema stop at its first invalid item."""
    if isinstance(schema, list | tuple):
        for part in schema:
            _fail_fast(part)
    elif isinstance(schema, dict):
        if schema.get("type") in ("list", "tuple"):
            schema["fail_fast"] = True
        for part in schema.values():
            _fail_fast(part)


class Fields(BaseModel):
    """A request body, or an object in one: no conversion of types, no unknown fields."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @classmethod
    @override
    def __get_pydantic_core_schema__(
        cls, source: type[BaseModel], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Make lists stop at the first invalid item: each reported problem takes 1.4 KB."""
        schema = handler(source)
        _fail_fast(schema)
        return schema

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        if len(data) > _MAX_FIELDS:
            raise ValueError(f"at most {_MAX_FIELDS} fields")
        return without_inert(data, _names(cls))


class ModelFields(Fields):
    """The body of a request to a language model."""

    model: Text = Field(
        "",
        description="Name of a model in /v1/models; the first one by default. A server with one "
        "model ignores it.",
    )

    @property
    def adapter_scales(self) -> dict[int, float] | None:
        """The scales of the LoRA adapters that the request chooses, by number; None for none."""
        return None

    def take_defaults(self, defaults: Mapping[str, Any]) -> None:
        """Set the fields that the request does not set to the model's defaults."""

    @property
    def idle_timeout(self) -> float | None:
        """Seconds that the model stays loaded after the request; None to change nothing."""
        return None


@functools.cache
def _names(schema: type[Fields]) -> frozenset[str]:
    """The names of a schema's fields in JSON."""
    return frozenset(field.alias or name for name, field in schema.model_fields.items())
