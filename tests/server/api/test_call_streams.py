"""Tool calls that arrive in pieces: the joined stream is the whole answer, on every route."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.server import fakes, templates
from tests.server.openai_servers import scripted

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

ARGUMENTS = {"path": 'a "b"\n\\ é {', "lines": [1, {"on": None}]}
ANY = {"type": "object"}
NAMES = ("write", "read")
CALL = json.dumps({"name": "write", "arguments": ARGUMENTS}, ensure_ascii=False)
OTHER = json.dumps({"name": "read", "arguments": {}})
GEMMA: dict[str, Any] = {
    "template": templates.GEMMA,
    "cue": "<start_of_turn>model\n",
    "end": "<end_of_turn>",
}
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "hermes": (
        f"I look.\n<tool_call>\n{CALL}\n</tool_call>\n<tool_call>\n{OTHER}\n</tool_call>",
        {},
    ),
    "generic": (f'{{"tool_calls": [{CALL}, {OTHER}]}}', GEMMA),
}
LENGTHS = (1, 7, 12, 30, 55, 400)


@pytest.fixture(scope="module", params=FORMS)
def client(request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    answer, fields = FORMS[request.param]
    with fakes.running(scripted(answer, **fields)) as client:
        yield client


def events(client: httpx.Client, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    answer = client.post(path, json={**body, "stream": True})
    assert answer.status_code == 200, answer.text
    for line in answer.text.splitlines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


def chat(client: httpx.Client, length: int, **fields: Any) -> tuple[Any, Any]:
    """(text, calls, reason) of a joined stream, and of a whole answer."""
    tools = [{"type": "function", "function": {"name": n, "parameters": ANY}} for n in NAMES]
    talk = [{"role": "user", "content": "the dog"}]
    body = {"messages": talk, "tools": tools, "max_tokens": length, **fields}
    text, calls, reason = "", list[Any](), None
    for event in events(client, "/v1/chat/completions", body):
        (choice,) = event["choices"]
        text += choice["delta"].get("content") or ""
        reason = choice["finish_reason"] or reason
        for call in choice["delta"].get("tool_calls", ()):
            if "id" in call:
                assert call["index"] == len(calls)
                calls.append([call["function"]["name"], ""])
            calls[call["index"]][1] += call["function"]["arguments"]
    (choice,) = client.post("/v1/chat/completions", json=body).json()["choices"]
    message = choice["message"]
    functions = [call["function"] for call in message.get("tool_calls", ())]
    whole = [[function["name"], function["arguments"]] for function in functions]
    return (text, calls, reason), (message["content"] or "", whole, choice["finish_reason"])


def responses(client: httpx.Client, length: int, **fields: Any) -> tuple[Any, Any]:
    tools = [{"type": "function", "name": n, "parameters": ANY} for n in NAMES]
    body = {"input": "the dog", "tools": tools, "max_output_tokens": length, **fields}
    items: dict[int, list[Any]] = {}
    reason = None
    for event in events(client, "/v1/responses", body):
        match event["type"].removeprefix("response."):
            case "output_item.added":
                items[event["output_index"]] = [event["item"].get("name"), ""]
            case "output_text.delta" | "function_call_arguments.delta":
                items[event["output_index"]][1] += event["delta"]
            case "completed" | "incomplete":
                reason = event["response"]["status"]
    whole = client.post("/v1/responses", json=body).json()
    calls = [item for item in items.values() if item[0]]
    text = "".join(text for name, text in items.values() if not name)
    output = [
        [item.get("name"), item["arguments"] if "arguments" in item else item["content"][0]["text"]]
        for item in whole["output"]
    ]
    whole_calls = [item for item in output if item[0]]
    return (text, calls, reason), (
        "".join(text for name, text in output if not name),
        whole_calls,
        whole["status"],
    )


def messages(client: httpx.Client, length: int, **fields: Any) -> tuple[Any, Any]:
    tools = [{"name": n, "input_schema": ANY} for n in NAMES]
    talk = [{"role": "user", "content": "the dog"}]
    body = {"messages": talk, "tools": tools, "max_tokens": length, **fields}
    blocks: list[list[Any]] = []
    reason = None
    for event in events(client, "/v1/messages", body):
        match event:
            case {"type": "content_block_start", "content_block": block}:
                blocks.append([block.get("name"), ""])
            case {"type": "content_block_delta", "delta": delta, "index": index}:
                assert index == len(blocks) - 1
                blocks[index][1] += delta.get("text", "") + delta.get("partial_json", "")
            case {"type": "message_delta", "delta": delta}:
                reason = delta["stop_reason"]
    whole = client.post("/v1/messages", json=body).json()
    calls = [[name, arguments] for name, arguments in blocks if name]
    if reason == "max_tokens" and calls:
        # The whole answer has the complete members of the call that was cut off.
        calls[-1][1] = ""
    whole_calls = [
        [block["name"], json.dumps(block["input"], ensure_ascii=False)]
        for block in whole["content"]
        if block["type"] == "tool_use"
    ]
    if whole["stop_reason"] == "max_tokens" and whole_calls:
        whole_calls[-1][1] = ""
    text = "".join(block["text"] for block in whole["content"] if block["type"] == "text")
    streamed = "".join(text for name, text in blocks if not name)
    return (streamed, calls, reason), (text, whole_calls, whole["stop_reason"])


def contents(client: httpx.Client, length: int) -> tuple[Any, Any]:
    declarations = [{"name": n, "parametersJsonSchema": ANY} for n in NAMES]
    body = {
        "contents": [{"parts": [{"text": "the dog"}]}],
        "tools": [{"functionDeclarations": declarations}],
        "generationConfig": {"maxOutputTokens": length},
    }
    path = "/v1beta/models/any"
    whole = client.post(f"{path}:generateContent", json=body).json()
    stream = [*events(client, f"{path}:streamGenerateContent?alt=sse", body)]

    def read(answers: list[dict[str, Any]]) -> tuple[str, list[list[Any]], str]:
        candidates = [answer["candidates"][0] for answer in answers]
        parts = [part for candidate in candidates for part in candidate["content"]["parts"]]
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        reason: str = candidates[-1]["finishReason"]
        text = "".join(part.get("text", "") for part in parts)
        given = [[c["name"], json.dumps(c["args"], ensure_ascii=False)] for c in calls]
        if reason == "MAX_TOKENS" and given:
            given[-1][1] = ""  # the complete members of the call that was cut off
        return text, given, reason

    return read(stream), read([whole])


ROUTES = {"chat": chat, "responses": responses, "messages": messages, "contents": contents}
EXPECTED = [[name, json.dumps(given, ensure_ascii=False)] for name, given in
            (("write", ARGUMENTS), ("read", {}))]  # fmt: skip


@pytest.mark.parametrize("route", ROUTES)
def test_a_joined_stream_is_the_whole_answer_at_every_length(
    client: httpx.Client, route: str
) -> None:
    cut = set()
    for length in LENGTHS:
        joined, whole = ROUTES[route](client, length)
        assert joined == whole
        text, calls, reason = whole
        # Nothing of a call is text.
        assert "I look.".startswith(text)
        for (name, arguments), (expected, given) in zip(calls, EXPECTED, strict=False):
            assert name == expected
            assert given.startswith(arguments.rstrip("\ufffd"))  # half of a character
        cut.add((len(calls), reason))
    assert {count for count, _ in cut} == {0, 1, 2}
    assert cut & {(1, "length"), (1, "incomplete"), (1, "max_tokens"), (1, "MAX_TOKENS")}
    ends = {
        "chat": "tool_calls", "responses": "completed", "messages": "tool_use", "contents": "STOP",
    }  # fmt: skip
    assert (2, ends[route]) in cut


def test_arguments_arrive_before_the_call_is_complete(client: httpx.Client) -> None:
    tools = [{"type": "function", "name": n, "parameters": ANY} for n in NAMES]
    body = {"input": "the dog", "tools": tools, "max_output_tokens": 400}
    deltas = [
        event
        for event in events(client, "/v1/responses", body)
        if event["type"] == "response.function_call_arguments.delta"
    ]
    assert (
        len([event for event in deltas if event["output_index"] == deltas[0]["output_index"]]) > 9
    )


def test_one_call_is_the_end_without_parallel_calls(client: httpx.Client) -> None:
    for route, name in {"chat": "parallel_tool_calls", "responses": "parallel_tool_calls"}.items():
        joined, whole = ROUTES[route](client, 400, **{name: False})
        assert joined == whole
        assert whole[1] == EXPECTED[:1]
        assert whole[2] in ("tool_calls", "completed")
