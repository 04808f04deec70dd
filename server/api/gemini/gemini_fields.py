"""The base of the objects in requests and answers of Gemini's API.

Google's servers accept the names of fields in camelCase and in snake_case.
"""

import functools
from collections.abc import Mapping
from typing import Annotated, Any, Self

from fastapi import Path
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel, to_snake

from hearthd.server.api.fields import Fields, ModelFields, Text
from hearthd.server.api.inert_fields import FIELDS

_COLLECTION = "models/"
MODELS = "/v1beta/models"
MODEL_PATH = f"{MODELS}/{{model:path}}"
ModelPath = Annotated[str, Path(description="Name of a model in /v1beta/models.")]

# Members that are lists, in place of which Google's servers accept one object.
_LISTS = ("contents", "parts", "tools", "functionDeclarations")


@functools.cache
def _camel_names(schema: type[Fields]) -> dict[str, str]:
    """The names of a schema's fields, and of those without effect, by their names in snake_case."""
    fields = (field.alias or name for name, field in schema.model_fields.items())
    return {snake: name for name in (*FIELDS, *fields) if (snake := to_snake(name)) != name}


def _normalize(data: dict[str, Any], names: Mapping[str, str]) -> None:
    """Rename members, and make lists of single objects.

    The object is changed itself, because errors and warnings look for its members in the body.
    Raises ValueError for a member with both names.
    """
    for name in names.keys() & data.keys():
        if names[name] in data:
            raise ValueError(f"{names[name]} once, not also {name}")
        data[names[name]] = data.pop(name)
    for name in _LISTS:
        if isinstance(data.get(name), dict):
            data[name] = [data[name]]


class GeminiFields(Fields):
    """An object in a request."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _normalized(cls, data: Any) -> Any:
        if isinstance(data, dict):
            _normalize(data, _camel_names(cls))
        return data


class GeminiModelFields(GeminiFields, ModelFields):
    """The body of a request to a model, which the path names."""

    model: Text = Field("", description="Accepted and ignored: the path has the model's name.")

    def of(self, model: str) -> Self:
        """This body for the model that the path names."""
        self.model = model.removeprefix(_COLLECTION)
        return self


class GeminiAnswer(BaseModel):
    """An object in an answer."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, serialize_by_alias=True
    )


def resource_name(name: str) -> str:
    """The name of a model with its collection."""
    return f"{_COLLECTION}{name}"


def _upper(word: Any) -> Any:
    return word.upper() if isinstance(word, str) else word


UpperCase = BeforeValidator(_upper)  # of words, which some clients send in lower case
