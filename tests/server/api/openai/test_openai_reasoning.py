"""Reasoning and continued messages, by the real `openai` client, on a fake model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import openai
import pytest

from tests.server import templates
from tests.server.openai_servers import TOKENIZER, client_of, scripted

if TYPE_CHECKING:
    from collections.abc import Iterator

TALK: list[Any] = [{"role": "user", "content": "the dog"}]
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
]
CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
ANSWER = "<think>\nthe fox\n</think>\n\nthe dog"


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    with client_of(scripted(ANSWER, template=templates.THINKING)) as client:
        yield client


def ask(client: openai.OpenAI, **fields: Any) -> Any:
    return client.chat.completions.create(**{"model": "any", "messages": TALK, **fields})


def extra(**fields: Any) -> Any:
    return {"extra_body": fields}


def prompt_of(client: openai.OpenAI, **fields: Any) -> str:
    body = {"messages": TALK, **fields}
    rendered: Any = client.post("/../apply-template", body=body, cast_to=object)
    return str(rendered["prompt"])


def test_reasoning_is_separated(client: openai.OpenAI) -> None:
    answer = ask(client)
    message = answer.choices[0].message
    assert (message.content, message.reasoning_content) == ("the dog", "the fox")
    count = answer.usage.completion_tokens_details.reasoning_tokens
    assert len(TOKENIZER.read("the fox")) <= count < answer.usage.completion_tokens
    plain = ask(client, **extra(reasoning_format="none")).choices[0].message
    assert plain.content == ANSWER
    assert getattr(plain, "reasoning_content", None) is None


def test_a_stream_has_the_reasoning_apart(client: openai.OpenAI) -> None:
    deltas = [c.choices[0].delta for c in ask(client, stream=True) if c.choices]
    reasoning = [getattr(delta, "reasoning_content", None) for delta in deltas]
    text = [delta.content for delta in deltas]
    assert "".join(filter(None, reasoning)) == "the fox"
    assert "".join(filter(None, text)) == "the dog"
    assert not any(a and b for a, b in zip(reasoning, text, strict=True))
    last_reasoning = max(i for i, part in enumerate(reasoning) if part)
    assert last_reasoning < min(i for i, part in enumerate(text) if part)


def test_reasoning_that_the_prompt_begins_needs_no_tag() -> None:
    service = scripted(
        "the fox\n</think>\n\nthe dog",
        template=templates.ALWAYS_THINKING,
        cue="<|im_start|>assistant\n<think>\n",
    )
    with client_of(service) as client:
        message = ask(client).choices[0].message
        assert (message.content, message.reasoning_content) == ("the dog", "the fox")
        cut = ask(client, max_tokens=2).choices[0]
        assert cut.finish_reason == "length"
        assert cut.message.content == ""
        assert "the fox".startswith(cut.message.reasoning_content)


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning_effort": "none"},
        extra(chat_template_kwargs={"enable_thinking": False}),
        extra(reasoning_budget_tokens=0),
    ],
)
def test_reasoning_can_be_turned_off(client: openai.OpenAI, fields: Any) -> None:
    expected = prompt_of(client, chat_template_kwargs={"enable_thinking": False})
    assert expected.endswith("<think>\n\n</think>\n\n")
    assert ask(client, **fields).usage.prompt_tokens == len(TOKENIZER.encode(expected))
    assert ask(client, reasoning_effort="high").usage.prompt_tokens < len(
        TOKENIZER.encode(expected)
    )


@pytest.mark.parametrize("name", ["reasoning_budget_tokens", "thinking_budget_tokens"])
def test_a_budget_ends_the_reasoning(client: openai.OpenAI, name: str) -> None:
    message = ask(client, max_tokens=40, **extra(**{name: 2})).choices[0].message
    assert len(TOKENIZER.read(message.reasoning_content)) <= 2
    assert "the fox".startswith(message.reasoning_content)
    assert message.content  # the model goes on after the forced end


def test_calls_and_formats_come_after_the_reasoning() -> None:
    thought = f"<think>{CALL} no</think>{CALL}"
    with client_of(scripted(thought, template=templates.THINKING)) as client:
        message = ask(client, tools=TOOLS).choices[0].message
        assert message.reasoning_content == f"{CALL} no"
        (call,) = message.tool_calls
        assert (call.function.name, message.content) == ("f", None)
    service = scripted(
        'the fox</think>{"a": 1}',
        template=templates.ALWAYS_THINKING,
        cue="<|im_start|>assistant\n<think>\n",
    )
    form: Any = {
        "type": "json_schema",
        "json_schema": {"name": "n", "schema": {"enum": [[True]]}, "strict": True},
    }
    with client_of(service) as client:
        message = ask(client, response_format=form).choices[0].message
        assert message.reasoning_content == "the fox"
        assert json.loads(message.content) == [True]


def test_responses_have_reasoning_items(client: openai.OpenAI) -> None:
    whole = client.responses.create(model="any", input=TALK, reasoning={"effort": "high"})
    reasoning, message = whole.output
    assert (reasoning.type, message.type) == ("reasoning", "message")
    assert reasoning.type == "reasoning"
    assert [part.text for part in reasoning.content or []] == ["the fox"]
    assert whole.output_text == "the dog"
    assert whole.usage is not None
    assert whole.usage.output_tokens_details.reasoning_tokens > 0
    with client.responses.stream(model="any", input=TALK) as stream:
        event_types = [event.type.removeprefix("response.") for event in stream]
        last = stream.get_final_response()
    order = [event_type for event_type in event_types if event_type.endswith(("done", "added"))]
    item = ["output_item.added", "content_part.added"], ["content_part.done", "output_item.done"]
    assert order == [
        *item[0], "reasoning_text.done", *item[1], *item[0], "output_text.done", *item[1]
    ]  # fmt: skip
    assert [part.type for part in last.output] == ["reasoning", "message"]
    told: Any = [one.model_dump(exclude_none=True) for one in whole.output]
    again = client.responses.create(model="any", input=[*TALK, *told, *TALK])
    assert again.output_text == "the dog"


def test_earlier_reasoning_reaches_the_template(client: openai.OpenAI) -> None:
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    said = {"role": "assistant", "content": "x", "reasoning_content": "the fox"}
    talk = [
        *TALK,
        {**said, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c", "content": ""},
    ]
    assert "<think>\nthe fox\n</think>\n\nx" in prompt_of(client, messages=talk)
    talk[len(TALK)]["reasoning"] = talk[len(TALK)].pop("reasoning_content")
    assert "<think>\nthe fox\n</think>\n\nx" in prompt_of(client, messages=talk)
    assert "the fox" not in prompt_of(client, messages=[*TALK, said, *TALK])


SAID: list[Any] = [*TALK, {"role": "assistant", "content": "It is "}]


def test_a_last_message_from_the_assistant_is_continued(client: openai.OpenAI) -> None:
    start = TOKENIZER.encode("<|im_start|>user\nthe dog<|im_end|>\n<|im_start|>assistant\nIt is ")
    ended = TOKENIZER.encode(
        "<|im_start|>user\nthe dog<|im_end|>\n<|im_start|>assistant\nIt is <|im_end|>\n"
    )
    prompt = TOKENIZER.encode("<|im_start|>assistant\n")[1:]
    for fields, expected in (
        ({}, start),
        (extra(continue_final_message=True), start),
        (extra(continue_final_message=True, add_generation_prompt=False), start),
        (extra(continue_final_message=False), ended + prompt),
        (extra(add_generation_prompt=True), ended + prompt),
        (extra(continue_final_message=False, add_generation_prompt=False), ended),
    ):
        answer = ask(client, messages=SAID, max_tokens=1, **fields)
        assert answer.usage.prompt_tokens == len(expected), fields


def test_the_model_continues_the_words_of_the_message() -> None:
    service = scripted(" the fox", cue="It is")
    with client_of(service) as client:
        answer = ask(client, messages=[*TALK, {"role": "assistant", "content": "It is"}])
        assert answer.choices[0].message.content == " the fox"
        items: Any = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "It is"}]
        assert client.responses.create(model="any", input=items).output_text == " the fox"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": TALK, **extra(continue_final_message=True)}, "continue_final_message"),
        (
            {"messages": SAID, **extra(continue_final_message=True, add_generation_prompt=True)},
            "add_generation_prompt",
        ),
        (extra(reasoning_budget_tokens=-2), "reasoning_budget_tokens"),
        (extra(reasoning_format="magic"), "reasoning_format"),
        ({"reasoning_effort": "enormous"}, "reasoning_effort"),
    ],
)
def test_an_invalid_field_is_rejected_by_name(
    client: openai.OpenAI, fields: Any, param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, **fields)
    assert caught.value.param == param
