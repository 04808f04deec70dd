"""/v1/responses by the real `openai` client, on a fake model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import openai
import pytest

from tests.server.openai_servers import client_of, scripted

if TYPE_CHECKING:
    from openai.types.responses import Response, ResponseStreamEvent

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
OBJECT = {"type": "object"}
TOOLS: list[Any] = [{"type": "function", "name": "f", "description": "d", "parameters": OBJECT}]
TALK: list[Any] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "input_text", "text": "the dog"}]},
]


def ask(client: openai.OpenAI, **fields: Any) -> Response:
    answer: Response = client.responses.create(
        **{"model": "any", "input": TALK, "max_output_tokens": 12, **fields}
    )
    return answer


def events(client: openai.OpenAI, **fields: Any) -> list[ResponseStreamEvent]:
    return list(
        client.responses.create(
            **{"model": "any", "input": TALK, "max_output_tokens": 12, "stream": True, **fields}
        )
    )


def outline(response: Response) -> list[Any]:
    """The output without its ids."""
    return [item.model_dump(exclude={"id", "call_id"}, warnings=False) for item in response.output]


SEED = {"extra_body": {"seed": 3}}


def test_an_answer_equals_that_of_chat(client: openai.OpenAI) -> None:
    answer = ask(client, metadata={"a": "b"}, **SEED)
    chat = client.chat.completions.create(
        model="any",
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "the dog"},
        ],
        max_tokens=12,
        seed=3,
    )
    assert answer.output_text == chat.choices[0].message.content
    assert answer.id.startswith("resp_")
    assert answer.output[0].id is not None
    assert answer.output[0].id.startswith("msg_")
    assert answer.status == "incomplete"
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"
    assert answer.metadata == {"a": "b"}
    assert answer.usage is not None
    assert chat.usage is not None
    assert answer.usage.input_tokens == chat.usage.prompt_tokens
    assert answer.usage.output_tokens == 12
    assert answer.usage.total_tokens == chat.usage.total_tokens
    # Newer clients require it.
    assert answer.usage.model_dump()["input_tokens_details"]["cache_write_tokens"] == 0


def test_instructions_are_a_system_message(client: openai.OpenAI) -> None:
    short = ask(client, instructions="Be brief.", input="the dog", **SEED)
    assert outline(short) == outline(ask(client, **SEED))
    assert short.instructions == "Be brief."


LOGPROBS = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}


@pytest.mark.parametrize("fields", [{}, LOGPROBS])
def test_a_stream_joins_to_the_answer(client: openai.OpenAI, fields: dict[str, Any]) -> None:
    whole = ask(client, **SEED, **fields)
    streamed = events(client, **SEED, **fields)
    assert [event.sequence_number for event in streamed] == list(range(len(streamed)))
    kinds = [event.type.removeprefix("response.") for event in streamed]
    assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert set(kinds[4:-4]) == {"output_text.delta"}
    assert kinds[-4:] == ["output_text.done", "content_part.done", "output_item.done", "incomplete"]
    deltas = [event for event in streamed if event.type == "response.output_text.delta"]
    assert "".join(event.delta for event in deltas) == whole.output_text
    last = streamed[-1]
    assert last.type == "response.incomplete"
    assert outline(last.response) == outline(whole)
    assert last.response.usage is not None
    assert whole.usage is not None
    cached = {"input_tokens_details"}  # they depend on the requests before
    assert last.response.usage.model_dump(exclude=cached) == whole.usage.model_dump(exclude=cached)
    assert len({event.item_id for event in deltas}) == 1
    first = streamed[0]
    assert first.type == "response.created"
    assert first.response.id == last.response.id
    assert (first.response.status, first.response.output) == ("in_progress", [])
    if fields:
        parts: Any = [item["content"][0] for item in outline(whole)]
        sent = [one.model_dump() for event in deltas for one in event.logprobs]
        assert len(parts[0]["logprobs"]) == len(sent) > 0
        assert all(len(one["top_logprobs"]) == 2 for one in parts[0]["logprobs"])


def test_tool_calls_and_their_results_round_trip() -> None:
    with client_of(scripted(f"I look.\n{CALL}")) as client:
        answer = ask(client, tools=TOOLS, max_output_tokens=None)
        assert answer.status == "completed"
        text, call = answer.output
        assert (text.type, call.type) == ("message", "function_call")
        assert answer.output_text == "I look."
        assert call.type == "function_call"
        assert (call.name, json.loads(call.arguments)) == ("f", {"a": 1})
        streamed = events(client, tools=TOOLS, max_output_tokens=None)
        assert streamed[-1].type == "response.completed"
        assert outline(streamed[-1].response) == outline(answer)
        (done,) = [e for e in streamed if e.type == "response.function_call_arguments.done"]
        assert done.arguments == '{"a": 1}'
        told = [item.model_dump(exclude_none=True) for item in answer.output]
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "42"}
        again = ask(client, input=[*TALK, *told, result], tools=TOOLS, max_output_tokens=None)
        assert again.output_text == "I look."
        assert again.usage is not None
        assert answer.usage is not None
        assert again.usage.input_tokens > answer.usage.input_tokens
        untold = ask(client, tools=TOOLS, tool_choice="none", max_output_tokens=None)
        assert untold.output_text.startswith("I look.\n")
        assert "<tool_call>" not in untold.output_text


SCHEMA = {
    "type": "object",
    "properties": {"a": {"enum": [1]}},
    "required": ["a"],
    "additionalProperties": False,  # the model's words are random: it would make up some
}


def test_text_format_constrains_the_answer() -> None:
    form = {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}
    with client_of(scripted("no JSON")) as client:
        answer = ask(client, text={"format": form}, max_output_tokens=None)
    assert json.loads(answer.output_text) == {"a": 1}
    assert answer.text is not None
    assert answer.text.model_dump(by_alias=True, exclude_none=True) == {"format": form}


def test_an_empty_answer_is_an_empty_message() -> None:
    with client_of(scripted("")) as client:
        answer = ask(client)
        assert (answer.output_text, answer.status, len(answer.output)) == ("", "completed", 1)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"conversation": "c"}, "conversation"),
        ({"include": ["nonsense"]}, "include[0]"),
        ({"top_logprobs": 1}, "top_logprobs"),
        ({"text": {"format": {"type": "magic"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format"),
        (
            {
                "text": {"format": {"type": "json_object"}},
                "extra_body": {"regex": "a"},
            },
            "regex",
        ),
        ({"input": []}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
        ({"input": [{"role": "boss", "content": "x"}]}, "input[0].role"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input[0].content[0]",
        ),
        (
            {"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]},
            "input[0].call_id",
        ),
        ({"input": "the dog " * 400}, "input"),
        ({"input": [{"role": "assistant", "content": "the dog"}, TALK[1]]}, "input"),
        ({"input": [{"type": "reasoning", "id": "", "content": []}]}, "input"),
    ],
)
def test_an_invalid_request_is_rejected_by_field(
    client: openai.OpenAI, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, **fields)
    assert caught.value.param == param


def test_expected_literals_are_written_as_json(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="background: got true, expected false"):
        ask(client, background=True)
