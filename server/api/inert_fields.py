"""Fields of other servers' requests that Hearth does not act on, in one table.

A field that is in no schema is dropped, with its path in the `Warning` header of the answer. A row
of the table changes that: its neutral values are dropped without a warning, because they ask for
nothing, and `refused` says that other values would make the answer wrong.

With `--strict-fields` every value that is not neutral is an error.
"""

from __future__ import annotations

import contextlib
import functools
import re
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidatorFunctionWrapHandler, WrapValidator
from pydantic.json_schema import SkipJsonSchema

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

Ignored = SkipJsonSchema[None]  # an ignored item of a list; not in the OpenAPI document
MAX_METADATA = 16  # members, as in OpenAI's API
_MAX_WARNED = 16  # fields in one header
_MAX_NAME = 64  # characters of a name in the header


@dataclass(frozen=True)
class Inert:
    """A field without effect.

    neutral   whether a value asks for nothing
    refused   what a request can contain instead, where other values would make the answer wrong;
              "" if they can be ignored
    same_as   a field of the same object whose value asks for nothing, too
    """

    neutral: Callable[[Any], bool]
    refused: str = ""
    same_as: str = ""


def _any(_value: Any) -> bool:
    return True


def _none(_value: Any) -> bool:
    return False


def _is_metadata(value: Any) -> bool:
    return isinstance(value, dict) and len(value) <= MAX_METADATA


def _one_of(*values: Any) -> Callable[[Any], bool]:
    return lambda value: any(
        value == neutral and type(value) is type(neutral) for neutral in values
    )


_NOT_QUOTABLE = re.compile(r"[^ -~]|[\\\\\"]")  # in a quoted string of a header

_UNKNOWN = Inert(_none)
# null counts as an absent field, and is neutral everywhere.
FIELDS: dict[str, Inert] = {
    # Identify or bill the request, or change its speed.
    "user": Inert(_any),
    "safety_identifier": Inert(_any),
    "metadata": Inert(_is_metadata, f"an object of at most {MAX_METADATA} members"),
    "service_tier": Inert(_any),
    "prompt_cache_key": Inert(_any),
    "prompt_cache_retention": Inert(_any),
    "prediction": Inert(_any),
    "include_obfuscation": Inert(_any),
    "cache_control": Inert(_any),
    "n_cache_reuse": Inert(_any),
    "n_keep": Inert(_any),
    "id_slot": Inert(_any),  # every slot finds every cached prefix
    "slot_id": Inert(_any),
    "best_of": Inert(_one_of(1), "n, for several answers", same_as="n"),
    # Only /v1/responses stores answers.
    "store": Inert(_one_of(False)),
    "previous_response_id": Inert(_none, "null, and the whole conversation"),
    "conversation": Inert(_none, "null, and the whole conversation"),
    "background": Inert(_one_of(False), "false"),
    "truncation": Inert(_one_of("disabled")),
    # Ollama's: what a bundle or `hearth serve` fixes.
    "num_batch": Inert(_any),
    "num_gpu": Inert(_any),
    "main_gpu": Inert(_any),
    "num_thread": Inert(_any),
    "use_mmap": Inert(_any),
    "use_mlock": Inert(_any),
    "low_vram": Inert(_any),
    "f16_kv": Inert(_any),
    "numa": Inert(_any),
    "draft_num_predict": Inert(_any),
    "penalize_newline": Inert(_one_of(False)),
    "tfs_z": Inert(_one_of(1, 1.0)),
    "template": Inert(_one_of(""), "null; --chat-template of `hearth serve`"),
    # Gemini's: filters and files that only Google's servers have.
    "safetySettings": Inert(_any),
    "labels": Inert(_any),
    "serviceTier": Inert(_any),
    "mediaResolution": Inert(_any),
    "enableEnhancedCivicAnswers": Inert(_any),
    "behavior": Inert(_one_of("BLOCKING", "UNSPECIFIED")),
    "cachedContent": Inert(_none, "the contents: the server finds cached prompts by itself"),
    # Advice to models that vary their verbosity.
    "verbosity": Inert(_one_of("medium")),
    # Answers are text.
    "modalities": Inert(_one_of(["text"]), '["text"]'),
    "audio": Inert(_none, "null: answers are text"),
    "responseModalities": Inert(_one_of([], ["TEXT"]), '["TEXT"]'),
    "speechConfig": Inert(_none, "null: answers are text"),
    "imageConfig": Inert(_none, "null: answers are text"),
    "suffix": Inert(_one_of(""), "null; /v1/completions takes it"),
    "image_data": Inert(_one_of([]), "no images"),
    "multimodal_data": Inert(_one_of([]), "no images"),
    "web_search_options": Inert(_none, "null: the server cannot search"),
    "mcp_servers": Inert(_one_of([]), "no servers"),
    "lora": Inert(_one_of([]), "the model `name:adapter`"),
    "prompt": Inert(_none, "messages or input"),
    # Other ways to choose tokens.
    "use_beam_search": Inert(_one_of(False), "false"),
    "repetition_penalty": Inert(_one_of(1, 1.0), "repeat_penalty"),
    "bad_words": Inert(_one_of([]), "logit_bias"),
    # Other forms of the answer: of vLLM, SGLang, llama-server, TGI, TensorRT-LLM, Ollama, Gemini.
    "guided_json": Inert(_none, "json_schema"),
    "guided_json_object": Inert(_one_of(False), "response_format"),
    "guided_regex": Inert(_none, "regex"),
    "guided_choice": Inert(_none, "choice"),
    "guided_grammar": Inert(_none, "grammar"),
    "guided_decoding_backend": Inert(_any),
    "guided_decoding_params": Inert(_none, "response_format"),
    "guided_decoding": Inert(_none, "response_format"),
    "guided_whitespace_pattern": Inert(
        _none, "null: an answer has at most two line breaks in a row"
    ),
    "whitespace_pattern": Inert(_none, "null: an answer has at most two line breaks in a row"),
    "disable_any_whitespace": Inert(
        _one_of(False), "false: an answer has at most two line breaks in a row"
    ),
    "disable_additional_properties": Inert(
        _one_of(False), "additionalProperties in the schema: an object has no others by default"
    ),
    "disable_fallback": Inert(_any),
    "structural_tag": Inert(_none, "response_format, or tools"),
    "ebnf": Inert(_none, "grammar"),
    "grammar_lazy": Inert(_one_of(False), "false: a grammar applies from the first token"),
    "grammar_triggers": Inert(_one_of([]), "[]: a grammar applies from the first token"),
    "format": Inert(_one_of("", "text"), "response_format"),
    "output_format": Inert(_none, "response_format"),
    "output_config": Inert(_one_of({}), "response_format"),
    "response_schema": Inert(_none, "json_schema"),
    "responseSchema": Inert(_none, "json_schema"),
    "response_json_schema": Inert(_none, "json_schema"),
    "responseJsonSchema": Inert(_none, "json_schema"),
    "response_mime_type": Inert(_one_of("text/plain"), "response_format"),
    "responseMimeType": Inert(_one_of("text/plain"), "response_format"),
    "value": Inert(_none, "schema, regex or grammar"),
    # The older form of tools.
    "functions": Inert(_one_of([]), "tools"),
    "function_call": Inert(_one_of("none", "auto"), "tool_calls, or tool_choice"),
    # Parts of messages that clients send back as they got them.
    "annotations": Inert(_one_of([])),
    "refusal": Inert(_one_of("")),
}

# The ignored fields of the current request, each with the object it was in; "" is the object
# itself. None in strict mode.
_ignored: ContextVar[list[tuple[object, str]] | None] = ContextVar("ignored", default=None)


@contextlib.contextmanager
def ignoring(*, strict: bool = False) -> Iterator[list[tuple[object, str]]]:
    """Ignore inert fields in the block; yields the (object, name) pairs that were ignored.

    With `strict` none are ignored.
    """
    ignored: list[tuple[object, str]] = []
    token = _ignored.set(None if strict else ignored)
    try:
        yield ignored
    finally:
        _ignored.reset(token)


def without_inert(data: dict[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """The fields of an object without null and inert ones; `known` are the names in its schema."""
    return {
        name: value
        for name, value in data.items()
        if value is not None and (name in known or _is_kept(data, name))
    }


def _is_kept(data: dict[str, Any], name: str) -> bool:
    """Whether a field that is not in the schema stays, so that validation rejects it."""
    row = FIELDS.get(name, _UNKNOWN)
    if row.neutral(data[name]) or (row.same_as and data[name] == data.get(row.same_as)):
        return False
    ignored = _ignored.get()
    if ignored is None or row.refused:
        return True
    ignored.append((data, name))
    return False


def or_ignored(
    form: Any,
    known: Collection[str],
    is_foreign: Callable[[dict[str, Any]], bool] = lambda _item: False,
) -> WrapValidator:
    """Validate an item of a list as `form`, or as None if its `type` is not in `known`.

    So are items of a known type that are `is_foreign`. Such items are ignored as fields are. The
    others keep their indices, which errors name.
    """
    adapter = functools.cache(lambda: TypeAdapter(form))  # lazy, as the models are

    def validate(item: Any, _: ValidatorFunctionWrapHandler) -> Any:
        kind = item.get("type") if isinstance(item, dict) else None
        ignored = _ignored.get()
        if ignored is None or not isinstance(kind, str) or (kind in known and not is_foreign(item)):
            return adapter().validate_python(item)
        ignored.append((item, ""))
        return None

    return WrapValidator(validate)


def warning(body: object, ignored: list[tuple[object, str]]) -> str:
    """The `Warning` header (RFC 7234) for ignored fields, with their paths in the body."""
    paths = dict(_paths(body))
    names = dict.fromkeys(_join(paths.get(id(owner), ""), name) for owner, name in ignored)
    more = " and others" if len(names) > _MAX_WARNED else ""
    text = f"ignored: {', '.join(list(names)[:_MAX_WARNED])}{more}"
    return f'299 hearth "{_NOT_QUOTABLE.sub("?", text)}"'


def _paths(body: object) -> Iterator[tuple[int, str]]:
    """(identity, path) of every object in a JSON value, which can be nested deeply."""
    values: list[tuple[object, str]] = [(body, "")]
    while values:
        value, path = values.pop()
        if isinstance(value, dict):
            yield id(value), path
            values += [(item, _join(path, key)) for key, item in value.items()]
        elif isinstance(value, list):
            values += [(item, f"{path}[{index}]") for index, item in enumerate(value)]


def _join(path: str, name: str) -> str:
    return f"{path}.{name[:_MAX_NAME]}" if path and name else path or name[:_MAX_NAME]


def instead(problem: Mapping[str, Any]) -> str | None:
    """The field to send in place of one that validation rejected, or None."""
    row = FIELDS.get(str(problem["loc"][-1])) if problem["type"] == "extra_forbidden" else None
    return row.refused if row and row.refused else None
