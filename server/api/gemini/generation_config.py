"""Gemini's generationConfig, and the turn that it asks for.

A turn has the fields of the other routes for conversations, so all of them share the code behind
it.
"""

import json
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import override

from hearthd.server.api.conversations.turn_fields import Effort, TurnFields
from hearthd.server.api.fields import JsonObject, Logprobs, MaxTokens, with_integers
from hearthd.server.api.gemini.gemini_fields import GeminiFields, UpperCase
from hearthd.server.api.gemini.json_schemas import json_schema
from hearthd.server.api.generation_fields import SamplingFields, StopString, without_empty
from hearthd.server.api.grammar_fields import schema_rules
from hearthd.text.errors import InvalidRequest
from hearthd.text.grammars.grammar import Grammar

_PATH = "generationConfig"
_ENUM = "text/x.enum"
_EFFORTS: dict[str, Effort] = {
    "MINIMAL": "minimal",
    "LOW": "low",
    "MEDIUM": "medium",
    "HIGH": "high",
    "XHIGH": "xhigh",
}


class ThinkingConfig(GeminiFields):
    """Whether the model reasons, for how long, and whether the answer has the reasoning."""

    include_thoughts: bool = Field(False, description="Send the reasoning as parts of the answer.")
    thinking_budget: int | None = Field(
        None,
        ge=-1,
        description="Number of tokens after which the reasoning is ended. -1 sets no limit. 0 sets "
        "the template's variable `enable_thinking` to false, another number to true.",
    )
    thinking_level: Annotated[
        Literal["THINKING_LEVEL_UNSPECIFIED", "MINIMAL", "LOW", "MEDIUM", "HIGH", "XHIGH"] | None,
        UpperCase,
    ] = Field(None, description="Passed to the chat template as `reasoning_effort`, in lower case.")

    _with_integers = model_validator(mode="before")(with_integers)

    @property
    def effort(self) -> Effort | None:
        """The effort of the reasoning, if the request sets one."""
        return _EFFORTS.get(self.thinking_level or "")

    @property
    def thinks(self) -> bool:
        """Whether the request asks for reasoning."""
        return bool(self.thinking_budget or self.effort)


class GenerationConfig(GeminiFields, SamplingFields):
    """How the answer is generated. All sampling fields of other routes are here, in camelCase."""

    stop: Annotated[list[StopString], Field(max_length=16), BeforeValidator(without_empty)] = Field(
        default_factory=list,
        alias="stopSequences",
        description="End the answer before any of these strings.",
    )
    max_output_tokens: MaxTokens = Field(
        None,
        description="Maximum number of tokens of each answer. By default, and with -1, the rest of "
        "the context.",
    )
    candidate_count: int = Field(
        1, ge=1, le=16, description="Number of answers. Their seeds are consecutive."
    )
    response_logprobs: bool = Field(
        False, description="Report the log-probability of each token of the answer."
    )
    logprobs: Logprobs | None = Field(
        None,
        description="With `responseLogprobs`: number of alternatives to report for each token. 0 "
        "by default.",
    )
    response_mime_type: Literal["text/plain", "application/json", "text/x.enum"] | None = Field(
        None,
        description="Form of the answer. text/plain: any text, the default without a schema. "
        "application/json: JSON that the schema allows, or any object without one. text/x.enum: "
        "one of the texts in `enum` of the schema.",
    )
    response_schema: JsonObject | None = Field(
        None, description="A schema of the answer in Gemini's form."
    )
    response_json_schema: JsonObject | None = Field(
        None, description="A JSON Schema of the answer, in place of `responseSchema`."
    )
    thinking_config: ThinkingConfig = Field(
        default_factory=lambda: ThinkingConfig.model_validate({}),
        description="Whether the model reasons, and for how long.",
    )

    _with_integers = model_validator(mode="before")(with_integers)

    @model_validator(mode="after")
    def _has_logprobs(self) -> Self:
        if self.logprobs is not None and not self.response_logprobs:
            raise ValueError("responseLogprobs with logprobs")
        return self

    @property
    def alternatives(self) -> int | None:
        """The number of alternatives to report for each token; None reports nothing."""
        return (self.logprobs or 0) if self.response_logprobs else None

    def rules(self) -> Grammar | None:
        """The grammar of the answer; None allows any text. Raises InvalidRequest."""
        schemas = self._schemas()
        if len(schemas) > 1:
            raise InvalidRequest(
                field=f"{_PATH}.responseJsonSchema",
                got="a schema",
                expected="none beside responseSchema",
            )
        if not schemas:
            if self.response_mime_type == _ENUM:
                raise _wrong_type(self.response_mime_type, "responseSchema with enum")
            return (
                Grammar("json_object", field=f"{_PATH}.responseMimeType")
                if self.response_mime_type == "application/json"
                else None
            )
        ((name, schema),) = schemas.items()
        if self.response_mime_type == "text/plain":
            raise _wrong_type(self.response_mime_type, f"application/json with {name}")
        if self.response_mime_type == _ENUM:
            return _choice(schema, f"{_PATH}.{name}")
        return schema_rules(schema, f"{_PATH}.{name}")

    def _schemas(self) -> dict[str, dict[str, Any]]:
        """The schemas of the answer, as JSON Schemas, by their fields."""
        schemas = {
            "responseSchema": self.response_schema,
            "responseJsonSchema": self.response_json_schema,
        }
        return {name: json_schema(schema) for name, schema in schemas.items() if schema is not None}

    def turn(self) -> "GeminiTurn":
        """The turn of a conversation that is generated this way."""
        sampling = {name: getattr(self, name) for name in SamplingFields.model_fields}
        return GeminiTurn(config=self, **sampling)


class GeminiTurn(TurnFields):
    """A turn with Gemini's fields for the reasoning and for the form of the answer."""

    config: GenerationConfig

    @property
    @override
    def effort(self) -> Effort | None:
        return self.config.thinking_config.effort

    @property
    @override
    def reasoning_budget(self) -> int | None:
        budget = self.config.thinking_config.thinking_budget
        return None if budget == -1 else budget

    @override
    def template_variables(self) -> dict[str, Any]:
        variables = super().template_variables()
        thinks = {"enable_thinking": True} if self.config.thinking_config.thinks else {}
        return {**thinks, **variables}

    @override
    def rules(self) -> Grammar | None:
        return self.config.rules()


def _wrong_type(mime_type: str, expected: str) -> InvalidRequest:
    return InvalidRequest(field=f"{_PATH}.responseMimeType", got=mime_type, expected=expected)


def _choice(schema: dict[str, Any], field: str) -> Grammar:
    """The grammar of one of the texts that a schema lists; raises InvalidRequest."""
    values = schema.get("enum")
    if not (isinstance(values, list) and values and all(map(_is_choice, values))):
        raise InvalidRequest(field=f"{field}.enum", got=None, expected="a list of texts")
    return Grammar("choice", json.dumps(values), field)


def _is_choice(value: object) -> bool:
    return isinstance(value, str) and value != ""
