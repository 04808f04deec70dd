"""/v1/messages: its events, blocks and errors, without a client library."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.server.app import Guards
from tests.server import fakes, templates
from tests.server.openai_servers import LIBRARY, TOKENIZER, chatty, scripted

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

    from hearthd.server.services.language_service import LanguageService

HELLO: list[Any] = [{"role": "user", "content": "the dog"}]
TOOLS = [{"name": "f", "description": "d", "input_schema": {"type": "object"}}]
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
KEY = "a long enough key"


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with fakes.running(chatty(template=templates.CHATML)) as client:
        yield client


def ask(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    response = client.post("/v1/messages", json={"max_tokens": 8, "messages": HELLO, **fields})
    assert response.status_code == 200, response.text
    message: dict[str, Any] = response.json()
    return message


def events(client: httpx.Client, **fields: Any) -> list[tuple[str, dict[str, Any]]]:
    """The events of a stream as (name, data)."""
    body = {"max_tokens": 8, "messages": HELLO, "stream": True, **fields}
    blocks = client.post("/v1/messages", json=body).text.strip().split("\n\n")
    pairs = [dict(line.split(": ", 1) for line in block.splitlines()) for block in blocks]
    return [(pair["event"], json.loads(pair["data"])) for pair in pairs]


def free() -> LanguageService:
    """A service whose model says anything, and can end its answers."""
    script = fakes.Script(cue=(0, 0, 0, 0), answer=(), end=fakes.EOS)
    return fakes.fake_service(LIBRARY, template=templates.CHATML, context=1024, script=script)


def test_an_answer_has_every_field(client: httpx.Client) -> None:
    message = ask(client, cache_prompt=False)
    assert message["id"].startswith("msg_")
    assert (message["type"], message["role"], message["model"]) == (
        "message",
        "assistant",
        "fake-model",
    )
    assert [block["type"] for block in message["content"]] == ["text"]
    assert (message["stop_reason"], message["stop_sequence"]) == ("max_tokens", None)
    rendered = client.post("/apply-template", json={"messages": HELLO}).json()["prompt"]
    assert message["usage"] == {
        "input_tokens": len(TOKENIZER.encode(rendered)),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 8,
    }
    assert "timings" not in message


def test_cached_tokens_are_counted_apart(client: httpx.Client) -> None:
    long = [{"role": "user", "content": "the dog jumps over the fox " * 4}]
    ask(client, messages=long)
    usage = ask(client, messages=long)["usage"]
    counted = client.post("/v1/messages/count_tokens", json={"messages": long}).json()
    assert usage["cache_read_input_tokens"] > 0
    assert counted == {"input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]}


def test_a_stream_has_anthropics_events() -> None:
    with fakes.running(scripted(f"I look.\n{CALL}\n{CALL}")) as client:
        streamed = events(client, tools=TOOLS, max_tokens=500)
        whole = ask(client, tools=TOOLS, max_tokens=500)
    names = [name for name, _ in streamed]
    assert names == [data["type"] for _, data in streamed]
    assert names[:2] == ["message_start", "ping"]
    assert names[-2:] == ["message_delta", "message_stop"]
    starts = [data for name, data in streamed if name == "content_block_start"]
    stops = [data["index"] for name, data in streamed if name == "content_block_stop"]
    assert [data["index"] for data in starts] == stops == [0, 1, 2]
    assert [data["content_block"]["type"] for data in starts] == ["text", "tool_use", "tool_use"]
    assert [data["content_block"]["input"] for data in starts[1:]] == [{}, {}]
    deltas = [data for name, data in streamed if name == "content_block_delta"]
    text = "".join(d["delta"]["text"] for d in deltas if d["delta"]["type"] == "text_delta")
    inputs = ["", ""]
    for data in deltas:
        if data["delta"]["type"] == "input_json_delta":
            inputs[data["index"] - 1] += data["delta"]["partial_json"]
    assert len(deltas) > 6  # the arguments arrive as the model writes them
    assert [json.loads(text) for text in inputs] == [{"a": 1}] * 2
    assert text == "I look."
    assert whole["content"][0] == {"type": "text", "text": text}
    assert [block["input"] for block in whole["content"][1:]] == [{"a": 1}] * 2
    assert whole["stop_reason"] == streamed[-2][1]["delta"]["stop_reason"] == "tool_use"
    assert streamed[-2][1]["usage"]["output_tokens"] == whole["usage"]["output_tokens"]


def test_stop_reasons() -> None:
    with fakes.running(scripted("the dog jumps")) as client:
        ended = ask(client, max_tokens=500)
        assert (ended["stop_reason"], ended["stop_sequence"]) == ("end_turn", None)
        stopped = ask(client, max_tokens=500, stop_sequences=["fox", " jumps"])
        assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", " jumps")
        assert stopped["content"] == [{"type": "text", "text": "the dog"}]


def test_thinking_gets_a_block_of_its_own() -> None:
    answer = "<think>\nthe fox\n</think>\n\nthe dog"
    with fakes.running(scripted(answer, template=templates.THINKING)) as client:
        thinking = {"type": "enabled", "budget_tokens": 1024}
        message = ask(client, max_tokens=500, thinking=thinking)
        assert message["content"] == [
            {"type": "thinking", "thinking": "the fox", "signature": ""},
            {"type": "text", "text": "the dog"},
        ]
        streamed = events(client, max_tokens=500, thinking=thinking)
        kinds = [data["delta"]["type"] for name, data in streamed if name == "content_block_delta"]
        assert list(dict.fromkeys(kinds)) == ["thinking_delta", "signature_delta", "text_delta"]
        short = ask(client, max_tokens=500, thinking={**thinking, "budget_tokens": 4})
        assert "the fox".startswith(short["content"][0]["thinking"])
        plain = ask(client, max_tokens=500, reasoning_format="none")
        assert plain["content"] == [{"type": "text", "text": answer}]


def test_system_tools_and_results_reach_the_template(client: httpx.Client) -> None:
    conversation = {
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "tools": TOOLS,
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "the"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "t", "signature": "s"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "42"},
                    {"type": "text", "text": "go on"},
                ],
            },
        ],
    }
    in_openais_form = {
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
                "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": '{"a": 1}'}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "42"},
            {"role": "user", "content": "go on"},
        ],
    }
    rendered = client.post("/apply-template", json=in_openais_form).json()["prompt"]
    counted = client.post("/v1/messages/count_tokens", json=conversation)
    assert "warning" not in counted.headers
    assert counted.json() == {"input_tokens": len(TOKENIZER.encode(rendered))}


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "f"}])
def test_a_call_can_be_required(choice: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    tools = [{"name": "f", "input_schema": {**schema, "additionalProperties": False}}]
    choice = {**choice, "disable_parallel_tool_use": True}
    with fakes.running(free()) as client:
        message = ask(client, tools=tools, tool_choice=choice, max_tokens=200, seed=1)
    (block,) = message["content"]
    assert (block["type"], block["name"]) == ("tool_use", "f")
    assert set(block["input"]) == {"ok"}
    assert message["stop_reason"] == "tool_use"


def test_an_answer_matches_a_schema() -> None:
    schema = {"enum": ["yes", "no"]}
    form = {"format": {"type": "json_schema", "schema": schema}}
    with fakes.running(free()) as client:
        for fields in ({"output_config": form}, {"output_format": form["format"]}):
            message = ask(client, **fields, max_tokens=100)
            assert json.loads(message["content"][0]["text"]) in schema["enum"]
        body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 9}
        both = {"output_config": form, "output_format": form["format"]}
        for others in (
            both,
            {**both, "regex": "a"},
            {"output_format": form["format"], "regex": "a"},
        ):
            assert client.post("/v1/messages", json={**body, **others}).status_code == 400


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"messages": []}, "messages: "),
        ({"max_tokens": 0}, "max_tokens: "),
        (
            {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
            "messages[0].content",
        ),
        ({"messages": [{"role": "user", "content": "the dog " * 300}]}, "prompt is too long: "),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "tool_use", "id": "x", "name": "f", "input": {}}],
                    }
                ]
            },
            "messages[0].content[0].type",
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x"}]}
                ]
            },
            "messages[0].content[0].tool_use_id",
        ),
        ({"tool_choice": {"type": "any"}}, 'tool_choice: got "any", expected auto or none'),
        ({"tools": TOOLS, "tool_choice": {"type": "tool"}}, "tool_choice.name: "),
        ({"tools": TOOLS, "tool_choice": {"type": "tool", "name": "g"}}, "tool_choice: "),
        ({"mcp_servers": [{}]}, "mcp_servers: "),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors_have_anthropics_form(
    client: httpx.Client, fields: dict[str, Any], problem: str, stream: bool
) -> None:
    body = {"max_tokens": 8, "messages": HELLO, "stream": stream, **fields}
    refused = client.post("/v1/messages", json=body)
    assert refused.status_code == 400
    error = refused.json()
    assert error["type"] == "error"
    assert error["error"]["type"] == "invalid_request_error"
    assert error["error"]["message"].startswith(problem)
    assert error["request_id"] == refused.headers["request-id"]


def test_other_statuses_have_anthropics_form_too() -> None:
    guards = Guards(api_keys=(KEY,))
    with fakes.running(fakes.pool(chatty(), max_body_bytes=1000), guards=guards) as client:
        expected = {"x" * 2000: (413, "request_too_large"), "{": (400, "invalid_request_error")}
        for content, (status, type_) in expected.items():
            refused = client.post("/v1/messages", content=content, headers={"x-api-key": KEY})
            assert (refused.status_code, refused.json()["error"]["type"]) == (status, type_)
        assert client.post("/v1/messages").json()["error"]["type"] == "authentication_error"
        rejected = client.get("/v1/messages", headers={"x-api-key": KEY})
        assert (rejected.status_code, rejected.headers["allow"]) == (405, "POST")
        assert rejected.json()["type"] == "error"
        elsewhere = client.post("/v1/completions")
        assert "param" in elsewhere.json()["error"]
        assert "request-id" not in elsewhere.headers


def test_a_failed_stream_ends_with_anthropics_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> str:
        raise ZeroDivisionError("a secret")

    with fakes.running(chatty()) as client:
        monkeypatch.setattr("hearthd.text.detokenize.Detokenizer.push", broken)
        name, data = events(client)[-1]
    assert (name, data["type"], data["error"]["type"]) == ("error", "error", "api_error")
    assert "secret" not in str(data)


def test_a_thread_that_continues_is_not_found(client: httpx.Client) -> None:
    ask(client, thread={"type": "create"})
    results = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"}]
    body = {"max_tokens": 8, "messages": [{"role": "user", "content": results}]}
    thread = {"type": "continue", "previous_message_id": "msg_1"}
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        response = client.post(path, json={**body, "thread": thread})
        assert response.status_code == 404
        error = response.json()["error"]
        assert error["type"] == "not_found_error"
        assert error["message"].startswith('"msg_1": not stored')
        assert error["details"] == {"error_code": "thread_not_found"}
    assert "details" not in client.get("/v1/messages/batches/msgbatch_1").json()["error"]
