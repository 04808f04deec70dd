"""vLLM's field for constraints: the same as Hearth's own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from hearthd.server.api.generation_fields import GenerationFields
from hearthd.text.errors import InvalidRequest
from tests.server import fakes
from tests.server.openai_servers import scripted

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def rules(**fields: Any) -> Any:
    return GenerationFields.model_validate(fields).rules()


@pytest.mark.parametrize(
    ("constraint", "same"),
    [
        ({"json": SCHEMA}, {"json_schema": SCHEMA}),
        ({"json": '{"type": "object"}'}, {"json_schema": {"type": "object"}}),
        ({"json_object": True}, {"response_format": {"type": "json_object"}}),
        ({"regex": "a+", "choice": None, "json_object": False}, {"regex": "a+"}),
        ({"choice": ["the dog"], "disable_fallback": True}, {"choice": ["the dog"]}),
        ({"grammar": 'root ::= "a"'}, {"grammar": 'root ::= "a"'}),
    ],
)
def test_a_constraint_of_vllm_is_the_same_as_ours(
    constraint: dict[str, Any], same: dict[str, Any]
) -> None:
    stated, expected = rules(structured_outputs=constraint), rules(**same)
    assert stated == expected
    assert stated.field.startswith("structured_outputs")


@pytest.mark.parametrize(
    "value",
    [
        {}, {"regex": "a", "choice": ["a"]}, {"json": "a"}, {"json": "[" * 9999}, {"json": "3"},
        {"disable_any_whitespace": True, "json": {}}, {"structural_tag": "{}"}, "a",
    ],
)  # fmt: skip
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(ValidationError, match="structured_outputs"):
        rules(structured_outputs=value)


def test_a_schema_in_a_long_text_is_refused_before_it_is_parsed() -> None:
    long = json.dumps({"enum": ["a" * 2**16]})
    with pytest.raises(ValidationError, match=r"a JSON Schema of at most 65536 bytes"):
        rules(structured_outputs={"json": long})


def test_it_is_the_only_constraint() -> None:
    with pytest.raises(InvalidRequest, match=r"structured_outputs.*expected none beside regex"):
        rules(structured_outputs={"choice": ["a"]}, regex="a")


@pytest.mark.parametrize("path", ["/generate", "/v1/completions", "/v1/chat/completions"])
def test_an_answer_is_one_of_the_choices(path: str) -> None:
    body: dict[str, Any] = {"prompt": "the dog", "structured_outputs": {"choice": ["the fox"]}}
    if "chat" in path:
        body["messages"] = [{"role": "user", "content": body.pop("prompt")}]
    with fakes.running(scripted("the dog")) as client:
        assert '"the fox"' in client.post(path, json=body).text
