"""Contents and tools in Gemini's form: what of them reaches the chat template."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.server.api.conversations.open_calls import OpenCalls
from hearthd.server.api.gemini.json_schemas import json_schema
from tests.server import fakes, templates
from tests.server.api.gemini.ask import (
    CALL,
    DECLARATION,
    HELLO,
    MODEL,
    TOOLS,
    answer,
    free,
    parts,
    refusal,
)
from tests.server.openai_servers import TOKENIZER, chatty, scripted

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

TALK: dict[str, Any] = {
    "system_instruction": {"parts": {"text": "Be brief."}},
    "tools": {"function_declarations": [DECLARATION]},
    "contents": [
        {"parts": [{"text": "the"}]},
        {
            "role": "model",
            "parts": [
                {"text": "t", "thought": True, "thoughtSignature": "s"},
                {"text": "I look."},
                {"functionCall": {"name": "f", "args": {"a": 1}}},
                {"functionCall": {"name": "g", "args": {}}},
                {"functionCall": {"id": "c3", "name": "f", "args": {"a": 3}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "g", "response": {"result": "é"}}},
                {"functionResponse": {"name": "f", "response": {"output": "42"}}},
                {"functionResponse": {"id": "c3", "name": "f", "response": {"output": {"b": 1}}}},
                {"text": "go on"},
            ],
        },
    ],
}
IN_OPENAIS_FORM: dict[str, Any] = {
    "tools": [
        {
            "type": "function",
            "function": {"name": "f", "description": "d", "parameters": {"type": "object"}},
        }
    ],
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "the"},
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "t",
            "tool_calls": [
                {"id": "c1", "function": {"name": "f", "arguments": '{"a": 1}'}},
                {"id": "c2", "function": {"name": "g", "arguments": "{}"}},
                {"id": "c3", "function": {"name": "f", "arguments": '{"a": 3}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "c2", "content": '{"result": "é"}'},
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
        {"role": "tool", "tool_call_id": "c3", "content": '{"b": 1}'},
        {"role": "user", "content": "go on"},
    ],
}
# With everything that a conversation has.
TEMPLATE = """{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}
{%- for m in messages %}[{{ m.role }}:{{ m.name }}:{{ m.reasoning_content }}:{{ m.content }}
{%- for call in m.tool_calls %}{{ call.function | tojson }}{% endfor %}]{% endfor %}"""


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with fakes.running(chatty(template=TEMPLATE, context=2048)) as client:
        yield client


def total(client: httpx.Client, **fields: Any) -> int:
    response = client.post(f"{MODEL}:countTokens", json=fields)
    assert response.status_code == 200, response.text
    assert "warning" not in response.headers
    count: int = response.json()["totalTokens"]
    return count


def test_everything_reaches_the_template(client: httpx.Client) -> None:
    """Responses without an id belong to the oldest open call of their name."""
    rendered = client.post("/apply-template", json=IN_OPENAIS_FORM).json()["prompt"]
    assert "[assistant::t:I look." in rendered
    assert '"tool": "g"' in rendered
    count = len(TOKENIZER.encode(rendered))
    assert total(client, generateContentRequest={"model": "models/x", **TALK}) == count


def test_count_tokens_takes_contents_or_a_request(client: httpx.Client) -> None:
    request = {"contents": HELLO}
    assert total(client, contents=HELLO) == total(client, generate_content_request=request)
    assert total(client, contents=HELLO[0]) == total(client, contents=HELLO)
    for fields in ({}, {"contents": HELLO, "generateContentRequest": request}):
        assert refusal(client, "countTokens", **fields).startswith("contents: got ")
    for contents in ([], [{"parts": []}, {"role": "user"}]):
        assert "contents" in refusal(client, "countTokens", contents=contents)


def test_a_response_without_an_id_belongs_to_the_oldest_open_call() -> None:
    calls = OpenCalls()
    first, other, last = (
        calls.add(name, {}, id_) for name, id_ in (("f", ""), ("g", ""), ("f", "x"))
    )
    assert len({first.id, other.id, last.id}) == 3
    assert calls.take("g", "unknown") == other
    assert calls.take("f", "x") == last
    assert calls.take("h") is None
    assert calls.take() == first
    assert calls.take() is None


def test_a_response_answers_one_call(client: httpx.Client) -> None:
    """Other roles than user are accepted for responses, as the documentation has them."""
    called = {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]}
    answered = {"role": "tool", "parts": [{"functionResponse": {"name": "f", "response": {}}}]}
    assert total(client, contents=[*HELLO, called, answered]) > 0
    assert total(client, contents=[*HELLO, called, {**answered, "role": "function"}]) > 0
    again = refusal(client, "countTokens", contents=[*HELLO, called, answered, answered])
    assert again.startswith('contents[3].parts[0].functionResponse.name: got "f"')


def test_the_answer_continues_the_last_text_of_the_model() -> None:
    with fakes.running(chatty(template=templates.CHATML)) as client:
        begun = [*HELLO, {"role": "model", "parts": [{"text": "the fox"}]}]
        messages = [
            {"role": "user", "content": "the dog"},
            {"role": "assistant", "content": "the fox"},
        ]
        rendered = client.post("/apply-template", json={"messages": messages}).json()["prompt"]
        assert rendered.endswith("the fox")
        assert total(client, contents=begun) == len(TOKENIZER.encode(rendered))


@pytest.mark.parametrize(
    "config", [{"mode": "ANY"}, {"mode": "any", "allowedFunctionNames": ["f"]}], ids=str
)
def test_a_call_can_be_required(config: dict[str, Any]) -> None:
    schema = {"type": "OBJECT", "properties": {"ok": {"type": "BOOLEAN"}}, "required": ["ok"]}
    in_json = {"type": "object", "properties": {"ok": {"enum": [1]}}, "required": ["ok"]}
    for parameters in ({"parameters": schema}, {"parametersJsonSchema": in_json}):
        declarations = [{"name": "f", **parameters}]
        fields: dict[str, Any] = {
            "tools": [{"functionDeclarations": declarations}],
            "toolConfig": {"functionCallingConfig": config},
        }
        with fakes.running(free()) as client:
            read = answer(client, fields, maxOutputTokens=400, seed=1)
        calls = [part["functionCall"] for part in parts(read)]
        assert {call["name"] for call in calls} == {"f"}
        assert all(set(call["args"]) == {"ok"} for call in calls)
        if "parameters" not in parameters:
            assert calls[0]["args"] == {"ok": 1}


def test_none_forbids_calls_and_keeps_the_prompt() -> None:
    with fakes.running(scripted(f"I look.\n{CALL}")) as client:
        for mode, calls in (("NONE", 0), ("AUTO", 1), ("VALIDATED", 1), ("MODE_UNSPECIFIED", 1)):
            config = {"functionCallingConfig": {"mode": mode}}
            fields = {"tools": TOOLS, "toolConfig": config}
            read = answer(client, fields, maxOutputTokens=500)
            assert ["functionCall" in part for part in parts(read)].count(True) == calls
            count = read["usageMetadata"]["promptTokenCount"]
            assert count == total(client, generateContentRequest={"contents": HELLO, **fields})
            assert count == total(
                client, generateContentRequest={"contents": HELLO, "tools": TOOLS}
            )


@pytest.mark.parametrize(
    ("schema", "converted"),
    [
        ({"type": "STRING", "format": "enum", "enum": ["a"]}, {"type": "string", "enum": ["a"]}),
        ({"type": "INTEGER", "format": "int32", "minimum": 1}, {"type": "integer", "minimum": 1}),
        ({"type": "STRING", "format": "date-time"}, {"type": "string", "format": "date-time"}),
        ({"type": "TYPE_UNSPECIFIED", "example": 1, "title": "t"}, {"title": "t"}),
        (
            {"type": "ARRAY", "items": {"type": "NUMBER"}, "minItems": "2", "max_items": 3},
            {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 3},
        ),
        ({"type": "STRING", "nullable": True}, {"type": ["string", "null"]}),
        (
            {"type": "STRING", "enum": ["a"], "nullable": True},
            {"type": ["string", "null"], "enum": ["a", None]},
        ),
        (
            {"any_of": [{"type": "STRING"}, {"type": "NULL"}], "nullable": True},
            {"anyOf": [{"anyOf": [{"type": "string"}, {"type": "null"}]}, {"type": "null"}]},
        ),
        (
            {"type": ["STRING", "NULL"], "additionalProperties": {"type": "STRING"}},
            {"type": ["string", "null"], "additionalProperties": {"type": "string"}},
        ),
        (
            {"defs": {"a": {"type": "STRING"}}, "properties": {"b_c": {"ref": "#/$defs/a"}}},
            {"$defs": {"a": {"type": "string"}}, "properties": {"b_c": {"$ref": "#/$defs/a"}}},
        ),
        (
            {"oneOf": [{"not": {"type": "OBJECT"}}], "$defs": {"a": {"type": "NULL"}}},
            {"oneOf": [{"not": {"type": "object"}}], "$defs": {"a": {"type": "null"}}},
        ),
        ({"type": 1, "properties": 2, "propertyOrdering": [3]}, {"type": 1, "properties": 2}),
    ],
)
def test_schemas_become_json_schemas(schema: dict[str, Any], converted: dict[str, Any]) -> None:
    assert json_schema(schema) == converted


def test_properties_have_the_order_of_the_schema() -> None:
    properties = {name: {"type": "STRING"} for name in "abcd"}
    schema = {"properties": properties, "property_ordering": ["c", "a", "z"]}
    assert json.dumps([*json_schema(schema)["properties"]]) == '["c", "a", "b", "d"]'
