"""Tools and items of /v1/responses that Codex sends, by the real `openai` client."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import openai
import pytest

from hearthd.server.app import Guards
from tests.server import fakes, templates
from tests.server.openai_servers import chatty, client_of, scripted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from openai.types.responses import ResponseStreamEvent

USER: Any = {"role": "user", "content": [{"type": "input_text", "text": "the dog"}]}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
FUNCTION = {"type": "function", "name": "f", "description": "d", "parameters": SCHEMA}
CUSTOM = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Patch files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: /[^x]*x[^x]*/"},
}
HOSTED: list[dict[str, Any]] = [
    {"type": "web_search"},
    {"type": "web_search_preview", "search_context_size": "low"},
    {"type": "local_shell"},
    {"type": "file_search", "vector_store_ids": ["v"]},
    {"type": "code_interpreter", "container": {"type": "auto"}},
    {"type": "image_generation"},
    {"type": "mcp", "server_label": "s", "server_url": "https://example.org"},
    {"type": "computer_use_preview", "display_width": 1, "display_height": 1, "environment": "mac"},
    {"type": "tool_search"},
]
GROUP = {
    "type": "namespace",
    "name": "mcp__files__",
    "description": "Files.",
    "tools": [FUNCTION, CUSTOM, {"type": "web_search"}],
}


SEARCH = {"type": "web_search_call", "id": "w", "status": "completed"}
RESULT = {"type": "function_call_output", "call_id": "c", "output": "x"}
NAMELESS = {"type": "function"}
UNENFORCEABLE = {"type": "object", "properties": {}, "not": {"required": ["a"]}}
STRICT_FUNCTION = {"name": "f", "strict": True, "parameters": UNENFORCEABLE}
STRICT = {"type": "function", **STRICT_FUNCTION}


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    with client_of(scripted("the fox runs")) as client:
        yield client


def calling(name: str, arguments: str) -> Any:
    call = json.dumps({"name": name, "arguments": json.loads(arguments)})
    return scripted(f"<tool_call>\n{call}\n</tool_call>")


def stream(client: openai.OpenAI, **fields: Any) -> list[ResponseStreamEvent]:
    """The events of a stream, which the client parses."""
    return list(client.responses.create(model="any", stream=True, **{"input": [USER], **fields}))


def prompt_tokens(client: openai.OpenAI, **fields: Any) -> int:
    count = client.responses.input_tokens.count(model="any", **{"input": [USER], **fields})
    return int(count.input_tokens)


@pytest.mark.parametrize("tool", HOSTED, ids=lambda tool: str(tool["type"]))
def test_tools_that_run_on_the_server_are_left_out(
    client: openai.OpenAI, tool: dict[str, Any]
) -> None:
    tools: Any = [FUNCTION, tool]
    raw = client.responses.with_raw_response.create(
        model="any", input=[USER], tools=tools, max_output_tokens=2
    )
    assert raw.headers["warning"] == '299 hearth "ignored: tools[1]"'
    response = raw.parse()
    assert [known.type for known in response.tools] == ["function"]
    alone: Any = [FUNCTION]
    assert prompt_tokens(client, tools=tools) == prompt_tokens(client, tools=alone)


def test_strict_mode_rejects_them() -> None:
    with fakes.running(chatty(), guards=Guards(strict_fields=True)) as client:
        body = {"input": "the dog", "tools": [{"type": "web_search"}]}
        refused = client.post("/v1/responses", json=body)
        assert refused.json()["error"]["param"] == "tools[0].type"


def test_the_other_routes_leave_them_out_too() -> None:
    talk = [{"role": "user", "content": "the dog"}]
    with fakes.running(chatty()) as client:
        for path, tools in {
            "/v1/chat/completions": [{"type": "web_search"}],
            "/v1/messages": [
                {"type": "web_search_20250305", "name": "web_search", "max_uses": 5},
                {"type": "computer_20250124", "name": "computer"},
            ],
        }.items():
            body = {"messages": talk, "max_tokens": 2, "tools": tools}
            answer = client.post(path, json=body)
            assert answer.status_code == 200, answer.text
            assert "ignored: tools[0]" in answer.headers["warning"]


@pytest.mark.parametrize(
    ("group", "seen"),
    [("mcp__files__", "mcp__files__f"), ("crm", "crm__f"), ("n" * 60, "n" * 60 + "__f")],
)
def test_a_namespace_is_a_prefix_for_the_model_only(group: str, seen: str) -> None:
    tools: Any = [{**GROUP, "name": group}]
    with client_of(calling(seen, '{"a": 1}')) as client:
        events = stream(client, tools=tools)
        last = events[-1]
        assert last.type == "response.completed"
        (echo,) = (tool.model_dump() for tool in last.response.tools)
        assert [tool["type"] for tool in echo["tools"]] == ["function", "custom"]
        (call,) = last.response.output
        assert call.type == "function_call"
        assert (call.name, call.namespace, call.arguments) == ("f", group, '{"a": 1}')
        # The history that Codex sends next.
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "x"}
        items: Any = [USER, call.model_dump(), result]
        again = client.responses.create(model="any", input=items, tools=tools)
        assert again.output
        rendered = prompt_tokens(client, input=items, tools=tools)
        flat = [USER, {**call.model_dump(exclude={"namespace"}), "name": seen}, result]
        if len(seen) <= 64:
            assert prompt_tokens(client, input=flat, tools=tools) == rendered


def test_a_custom_tool_is_a_function_with_one_text(client: openai.OpenAI) -> None:
    tools: Any = [CUSTOM]
    as_function: Any = [
        {
            "type": "function",
            "name": "apply_patch",
            "description": "Patch files.\n\nThe input matches this lark grammar:\n"
            "start: /[^x]*x[^x]*/",
            "parameters": {
                "type": "object",
                "properties": {"input": {"type": "string"}},
                "required": ["input"],
                "additionalProperties": False,
            },
        }
    ]
    assert prompt_tokens(client, tools=tools) == prompt_tokens(client, tools=as_function)
    patch = '*** Begin Patch\n"x"\n'
    with client_of(calling("apply_patch", json.dumps({"input": patch}))) as caller:
        events = stream(caller, tools=tools)
        kinds = [event.type.removeprefix("response.") for event in events[2:]]
        # The input arrives in several deltas.
        assert [kind for kind, _ in itertools.groupby(kinds)] == [
            "output_item.added",
            "custom_tool_call_input.delta",
            "custom_tool_call_input.done",
            "output_item.done",
            "completed",
        ]
        last = events[-1]
        assert last.type == "response.completed"
        (call,) = last.response.output
        assert call.type == "custom_tool_call"
        assert (call.name, call.input) == ("apply_patch", patch)
        output = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "ok"}
        items: Any = [USER, call.model_dump(), output]
        assert caller.responses.create(model="any", input=items, tools=tools).output
        forced: Any = {"type": "custom", "name": "apply_patch"}
        (item,) = caller.responses.create(
            model="any", input=[USER], tools=tools, tool_choice=forced
        ).output  # fmt: skip
        assert item.type == "custom_tool_call"


@pytest.mark.parametrize(
    ("syntax", "definition"), [("lark", 'start: "x" A\nA: /"+/'), ("regex", '^x"+$')]
)
def test_the_grammar_of_a_custom_tool_is_enforced(syntax: str, definition: str) -> None:
    format_ = {"type": "grammar", "syntax": syntax, "definition": definition}
    tools: Any = [{**CUSTOM, "format": format_}]
    with client_of(calling("apply_patch", '{"input": "yes"}')) as caller:
        answer = caller.responses.create(
            model="any", input=[USER], tools=tools, max_output_tokens=200, tool_choice="required"
        )
        (call,) = answer.output[:1]
        assert call.type == "custom_tool_call"
        assert call.input.startswith('x"')
        assert set(call.input) == {"x", '"'}
        assert answer.tools[0].model_dump()["format"] == format_
        tools[0]["format"]["definition"] = "start: ("
        with pytest.raises(openai.BadRequestError, match="valid grammar") as caught:
            caller.responses.create(model="any", input=[USER], tools=tools)
        assert caught.value.param == "tools[0].format.definition"


CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
SHELL = {
    "type": "local_shell_call",
    "id": "i",
    "call_id": "c",
    "status": "completed",
    "action": {"type": "exec", "command": ["ls"], "env": {}},
}


@pytest.mark.parametrize("call", [CALL, SHELL], ids=["function", "local_shell"])
def test_the_output_of_a_call_can_be_a_list_of_texts(
    client: openai.OpenAI, call: dict[str, Any]
) -> None:
    output = {"type": "function_call_output", "call_id": "c"}
    parts = [{"type": "input_text", "text": "the fox"}, {"type": "input_text", "text": "runs"}]
    listed: Any = [USER, call, {**output, "output": parts}]
    joined: Any = [USER, call, {**output, "output": "the fox\nruns"}]
    assert prompt_tokens(client, input=listed) == prompt_tokens(client, input=joined)
    picture = {"type": "input_image", "image_url": "data:image/png;base64,AA"}
    with pytest.raises(openai.BadRequestError, match="cannot read images") as caught:
        prompt_tokens(client, input=[USER, call, {**output, "output": [*parts, picture]}])
    assert caught.value.param == "input[2].output[2]"


def test_items_of_hosted_tools_are_left_out(client: openai.OpenAI) -> None:
    hosted = [
        {"type": "web_search_call", "id": "w", "status": "completed"},
        {"type": "mcp_list_tools", "id": "m", "server_label": "s", "tools": []},
        {"type": "image_generation_call", "id": "i", "status": "completed", "result": "AA"},
        {"type": "compaction", "encrypted_content": "x"},
    ]
    items: Any = [USER, *hosted]
    raw = client.responses.with_raw_response.create(model="any", input=items, max_output_tokens=2)
    ignored = ", ".join(f"input[{place}]" for place in range(1, 5))
    assert raw.headers["warning"] == f'299 hearth "ignored: {ignored}"'
    assert prompt_tokens(client, input=items) == prompt_tokens(client)


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("responses", {"input": [SEARCH, {"role": "user", "content": 5}]}, "input[1].content"),
        ("responses", {"input": [SEARCH, USER, {**CALL, "arguments": "x"}]}, "input[2].arguments"),
        ("responses", {"input": [SEARCH, RESULT]}, "input[1].call_id"),
        ("responses", {"input": "x", "tools": [HOSTED[0], STRICT]}, "tools[1].parameters"),
        (
            "responses",
            {"input": "x", "tools": [HOSTED[0], {**GROUP, "tools": [HOSTED[0], STRICT]}]},
            "tools[1].tools[1].parameters",
        ),
        ("responses", {"input": "x", "tools": [HOSTED[0], NAMELESS]}, "tools[1].name"),
        ("chat/completions", {"tools": [HOSTED[0], NAMELESS]}, "tools[1].function"),
        (
            "chat/completions",
            {"tools": [HOSTED[0], {"type": "function", "function": STRICT_FUNCTION}]},
            "tools[1].function.parameters",
        ),
        ("messages", {"tools": [HOSTED[0], {"input_schema": SCHEMA}]}, "tools[1].name"),
    ],
)
def test_errors_name_the_index_that_the_client_sent(
    path: str, fields: dict[str, Any], param: str
) -> None:
    talk = {} if path == "responses" else {"messages": [{"role": "user", "content": "the dog"}]}
    with fakes.running(chatty(template=templates.CHATML)) as client:
        answer = client.post(f"/v1/{path}", json={**talk, **fields})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith(f"{param}: ")


def test_a_conversation_of_ignored_items_is_empty(client: openai.OpenAI) -> None:
    items: Any = [SEARCH]
    with pytest.raises(openai.BadRequestError, match="at least 1 item") as caught:
        prompt_tokens(client, input=items)
    assert caught.value.param == "input"


@pytest.mark.parametrize("summary", ["auto", "concise", "detailed"])
def test_reasoning_is_a_summary_if_one_is_asked_for(summary: str) -> None:
    service = scripted("<think>\nthe fox\n</think>\n\nthe dog", template=templates.THINKING)
    with client_of(service) as client:
        events = stream(client, reasoning={"summary": summary})
        plain = client.responses.create(model="any", input=[USER])
    kinds = [event.type.removeprefix("response.") for event in events]
    reasoning = [kind for kind in kinds if kind.startswith("reasoning")]
    assert reasoning == [
        "reasoning_summary_part.added",
        *["reasoning_summary_text.delta"] * (len(reasoning) - 3),
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
    ]
    deltas = [e.delta for e in events if e.type == "response.reasoning_summary_text.delta"]
    assert "".join(deltas) == "the fox"
    assert {e.summary_index for e in events if hasattr(e, "summary_index")} == {0}
    last = events[-1]
    assert last.type == "response.completed"
    item, message = last.response.output
    assert item.type == "reasoning"
    assert message.type == "message"
    assert [part.model_dump() for part in item.summary] == [
        {"type": "summary_text", "text": "the fox"}
    ]
    assert not item.content
    first = plain.output[0]
    assert first.type == "reasoning"
    assert first.summary == []
    assert [part.text for part in first.content or []] == ["the fox"]
