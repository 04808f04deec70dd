"""The fields of a request, as they are typed: in flags, and after /set."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

from pydantic import Field, ValidationError
from pydantic.fields import FieldInfo

from hearthd import flags
from hearthd.bundle.parsing.validation import expected
from hearthd.flag_names import flag
from hearthd.server.api.conversations.turn_fields import TemplateFields
from hearthd.server.api.fields import MaxTokens
from hearthd.server.api.generation_fields import GenerationFields

# Fields of an API request that have no use in a terminal.
NOT_HERE = frozenset(
    {
        "model",
        "stream",
        "cache_prompt",
        "cache_salt",
        "timeout_ms",
        "timings_per_token",
        "return_progress",
        "post_sampling_probs",
        "response_format",
        "structured_outputs",
        "lora",
        "add_generation_prompt",
        "continue_final_message",
    }
)
AnyFields = TypeVar("AnyFields", bound=GenerationFields)


class ChatFields(TemplateFields, GenerationFields):
    """The fields of each request of a chat."""

    max_tokens: MaxTokens = Field(
        None,
        description="Maximum number of tokens of an answer. Default: as many as fit into the "
        "context.",
    )


SETTABLE = tuple(name for name in ChatFields.model_fields if name not in NOT_HERE)


def fields_of(
    schema: type[AnyFields], options: Mapping[str, Any], called: Callable[[str], str] = flag
) -> AnyFields:
    """The fields that flags set; raises BadFlag, whose message has a field as it is `called`."""
    try:
        # A flag's value is text. Only an API request must have numbers as JSON numbers.
        return schema.model_validate(flags.typed_values(schema, options), strict=False)
    except ValidationError as error:
        problem = error.errors()[0]
        field = ".".join(map(str, problem["loc"][:1]))
        raise flags.BadFlag(
            f"{called(field)}: got {problem['input']!r}, expected {expected(problem)}"
        ) from error


def settable_field(name: str) -> FieldInfo:
    """The field of a chat that /set sets; raises BadFlag if there is none."""
    if name not in SETTABLE:
        near = get_close_matches(name, SETTABLE)
        raise flags.BadFlag(
            f"{name}: no field of this name; "
            f"{f'did you mean {near[0]}?' if near else '/set lists the fields'}"
        )
    return ChatFields.model_fields[name]
