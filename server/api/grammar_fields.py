"""The fields that constrain an answer: a JSON Schema, regex, grammar or list of choices."""

import json
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from hearthd.server.api.fields import Fields, JsonObject, Text
from hearthd.text.errors import InvalidRequest
from hearthd.text.grammars.grammar import MAX_BYTES, Grammar

Choices = Annotated[list[Annotated[Text, Field(min_length=1)]], Field(min_length=1, max_length=512)]


class SchemaFormat(Fields):
    """A JSON Schema in OpenAI's form. It is always enforced."""

    model_config = ConfigDict(populate_by_name=True)

    name: Text | None = Field(None, description="Accepted and ignored.")
    description: Text | None = Field(None, description="Accepted and ignored.")
    schema_: JsonObject = Field(alias="schema", description="The JSON Schema.")
    strict: bool | None = Field(
        None, description="Accepted and ignored: the schema is always enforced."
    )


class ResponseFormat(Fields):
    """The format of the answer: `type`, and the field of that type."""

    model_config = ConfigDict(populate_by_name=True)

    type: Literal["text", "json_object", "json", "json_schema", "regex", "grammar", "choice"] = (
        Field(
            "text",
            description="text allows any answer; the other types constrain it. json is another "
            "name of json_object, as in Hugging Face's clients.",
        )
    )
    json_schema: SchemaFormat | None = Field(None, description="For json_schema: the schema.")
    schema_: JsonObject | None = Field(
        None, alias="schema", description="For json_object, optional, as in llama-server: a schema."
    )
    value: JsonObject | None = Field(
        None, description="For json_object: the schema, as Hugging Face's clients send it."
    )
    regex: Text | None = Field(
        None, description="For regex: the regular expression that the whole answer matches."
    )
    grammar: Text | None = Field(
        None, description="For grammar: a grammar in GBNF or llguidance's variant of Lark."
    )
    choice: Choices | None = Field(None, description="For choice: the allowed answers.")

    @model_validator(mode="after")
    def _fields_match_type(self) -> Self:
        for name in ("json_schema", "regex", "grammar", "choice"):
            if (getattr(self, name) is not None) != (self.type == name):
                raise ValueError(f"the field of type {self.type}, and no field of another type")
        schemas = {"schema": self.schema_, "value": self.value}
        present = [name for name, schema in schemas.items() if schema is not None]
        if present and self.type not in ("json_object", "json"):
            raise ValueError(f"{present[0]} only with type json_object")
        if len(present) > 1:
            raise ValueError("schema or value, not both")
        return self

    def rules(self) -> Grammar | None:
        """The grammar of the answer; None allows any text."""
        at = f"response_format.{self.type}"
        match self.type:
            case "text":
                return None
            case "json_object" | "json":
                if self.schema_ is not None:
                    return schema_rules(self.schema_, "response_format.schema")
                if self.value is not None:
                    return schema_rules(self.value, "response_format.value")
                return Grammar("json_object", field="response_format")
            case "json_schema":
                assert self.json_schema is not None
                return schema_rules(self.json_schema.schema_, f"{at}.schema")
            case "choice":
                return Grammar("choice", json.dumps(self.choice), at)
            case "grammar":
                return Grammar("lark", self.grammar or "", at)
            case "regex":
                return Grammar("regex", self.regex or "", at)


def _schema_object(schema: Any) -> Any:
    """A JSON Schema that may be a text, as vLLM takes it, as an object."""
    if not isinstance(schema, str):
        return schema
    if len(schema) > MAX_BYTES:  # its objects take many times its bytes
        raise ValueError(f"a JSON Schema of at most {MAX_BYTES} bytes")
    try:
        return json.loads(schema)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError("a JSON Schema as an object, or its text") from error


class StructuredOutputs(Fields):
    """A constraint in vLLM's form: one of these."""

    model_config = ConfigDict(populate_by_name=True)

    json_: Annotated[JsonObject, BeforeValidator(_schema_object)] | None = Field(
        None, alias="json", description="A JSON Schema, as an object or its text."
    )
    json_object: bool = Field(False, description="Answer with any JSON object.")
    regex: Text | None = Field(
        None, description="The regular expression that the whole answer matches."
    )
    choice: Choices | None = Field(None, description="The allowed answers.")
    grammar: Text | None = Field(
        None, description="A grammar in GBNF or llguidance's variant of Lark."
    )

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        constraints = (self.json_, self.json_object or None, self.regex, self.choice, self.grammar)
        if sum(constraint is not None for constraint in constraints) != 1:
            raise ValueError("one of json, json_object, regex, choice and grammar")
        return self

    def rules(self) -> Grammar:
        """The grammar of the answer."""
        at = "structured_outputs"
        if self.json_ is not None:
            return schema_rules(self.json_, f"{at}.json")
        if self.regex is not None:
            return Grammar("regex", self.regex, f"{at}.regex")
        if self.choice is not None:
            return Grammar("choice", json.dumps(self.choice), f"{at}.choice")
        if self.grammar is not None:
            return Grammar("lark", self.grammar, f"{at}.grammar")
        return Grammar("json_object", field=at)


class GrammarFields(Fields):
    """Constraints on the answer: at most one of these."""

    response_format: ResponseFormat | None = Field(
        None,
        description="The format of the answer, as in OpenAI's API, with a type for each of the "
        "other constraints.",
    )
    json_schema: JsonObject | None = Field(
        None,
        description="Answer with JSON that is valid under this JSON Schema. A schema with an "
        "unsupported keyword is rejected.",
    )
    regex: Text | None = Field(
        None, description="Answer with text that this regular expression matches as a whole."
    )
    grammar: Text | None = Field(
        None,
        description="Answer with text of this grammar: GBNF, as in llama.cpp, or llguidance's "
        "variant of Lark. An empty text sets no grammar.",
    )
    choice: Choices | None = Field(None, description="Answer with one of these texts.")
    structured_outputs: StructuredOutputs | None = Field(
        None, description="One of the other constraints, as vLLM's clients send it."
    )

    def rules(self) -> Grammar | None:
        """The grammar of the answer; None allows any text. Raises InvalidRequest for two."""
        schema, regex, grammar, choice = self.json_schema, self.regex, self.grammar, self.choice
        possible = (
            None if self.response_format is None else self.response_format.rules(),
            None if schema is None else schema_rules(schema, "json_schema"),
            None if regex is None else Grammar("regex", regex, "regex"),
            Grammar("lark", grammar, "grammar") if grammar else None,
            None if choice is None else Grammar("choice", json.dumps(choice), "choice"),
            None if self.structured_outputs is None else self.structured_outputs.rules(),
        )
        constraints = [constraint for constraint in possible if constraint is not None]
        if len(constraints) > 1:
            first, second = constraints[:2]
            raise InvalidRequest(
                field=second.field, got=second.type, expected=f"none beside {first.field}"
            )
        return constraints[0] if constraints else None


def schema_rules(schema: dict[str, Any], field: str) -> Grammar:
    """The grammar of a JSON Schema; `field` is its path in the request."""
    return Grammar("json_schema", json.dumps(schema, ensure_ascii=False), field)
