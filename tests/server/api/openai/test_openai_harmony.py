"""Answers in channels, as gpt-oss writes them, by the real `openai` client, on a fake model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hearthd.text.tokenizer import Tokenizer
from tests.server import fakes
from tests.server.openai_servers import client_of, scripted
from tests.text.later_templates import HARMONY

if TYPE_CHECKING:
    from collections.abc import Sequence

    import openai

NAMES = ("start", "end", "message", "channel", "constrain", "call", "return")
LIBRARY = fakes.gemma_like(special=[f"<|{name}|>" for name in NAMES])
ASSISTANT = "<|start|>assistant"
CUE = f"<|start|>user<|message|>the dog<|end|>{ASSISTANT}"
THOUGHT = f"<|channel|>analysis<|message|>the fox<|end|>{ASSISTANT}"
CALL = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}'
TALK: list[Any] = [{"role": "user", "content": "the dog"}]
PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}}}
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {"name": "f", "description": "F.", "parameters": PARAMETERS},
    }
]


def client_with(answer: str | Sequence[int], end: str) -> Any:
    service = scripted(answer, template=HARMONY, library=LIBRARY, cue=CUE, end=end)
    return client_of(service)


def ask(client: openai.OpenAI, **fields: Any) -> Any:
    return client.chat.completions.create(**{"model": "any", "messages": TALK, **fields})


def streamed(client: openai.OpenAI, **fields: Any) -> tuple[str, str, str]:
    """The reasoning, the text, and the calls of a stream."""
    deltas = [c.choices[0].delta for c in ask(client, stream=True, **fields) if c.choices]
    functions = [call.function for delta in deltas for call in delta.tool_calls or []]
    return (
        "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas),
        "".join(delta.content or "" for delta in deltas),
        "".join((function.name or "") + (function.arguments or "") for function in functions),
    )


@pytest.mark.parametrize("tools", [[], TOOLS])
def test_channels_are_reasoning_and_text(tools: list[Any]) -> None:
    fields = {"tools": tools} if tools else {}
    with client_with(f"{THOUGHT}<|channel|>final<|message|>the dog", "<|return|>") as client:
        answer = ask(client, **fields)
        message = answer.choices[0].message
        assert (message.content, message.reasoning_content) == ("the dog", "the fox")
        assert (message.tool_calls, answer.choices[0].finish_reason) == (None, "stop")
        assert answer.usage.completion_tokens_details.reasoning_tokens > 0
        assert streamed(client, **fields) == ("the fox", "the dog", "")


def test_a_message_to_a_function_is_a_call() -> None:
    with client_with(THOUGHT + CALL, "<|call|>") as client:
        for choice in ("auto", "required"):
            answer = ask(client, tools=TOOLS, tool_choice=choice).choices[0]
            (call,) = answer.message.tool_calls
            assert (call.function.name, call.function.arguments) == ("f", '{"a": 1}')
            assert (answer.message.content, answer.finish_reason) == (None, "tool_calls")
            assert answer.message.reasoning_content == "the fox"
        assert streamed(client, tools=TOOLS) == ("the fox", "", 'f{"a": 1}')


def test_a_call_is_found_where_reasoning_is_not_separated() -> None:
    raw: dict[str, Any] = {"tools": TOOLS, "extra_body": {"reasoning_format": "none"}}
    with client_with(CALL, "<|call|>") as client:
        assert streamed(client, **raw) == ("", "", 'f{"a": 1}')
        assert streamed(client, **raw, tool_choice="required") == ("", "", 'f{"a": 1}')
    text = "<|channel|>final<|message|>the dog"
    with client_with(text, "<|return|>") as client:
        assert streamed(client, **raw) == ("", text, "")


def test_names_of_special_tokens_in_other_tokens_are_text() -> None:
    tokenizer = Tokenizer(LIBRARY, bos=fakes.BOS)

    def spelled(head: str, text: str) -> tuple[int, ...]:
        tokens = tokenizer.read(text, special=False, position="inside")
        return (*tokenizer.read(head), *tokens)

    arguments = '{"b": "<|end|><|start|>assistant"}'
    head = CALL.partition("{")[0]
    parameters = {"type": "object", "properties": {"b": {"type": "string"}}}
    function = {"name": "f", "description": "F.", "parameters": parameters}
    tool = {"type": "function", "function": function}
    with client_with(spelled(THOUGHT + head, arguments), "<|call|>") as client:
        assert streamed(client, tools=[tool]) == ("the fox", "", f"f{arguments}")
    text = "a<|start|>assistant<|channel|>analysis<|message|>b"
    with client_with(spelled("<|channel|>final<|message|>", text), "<|return|>") as client:
        for tools in ({}, {"tools": TOOLS}):
            assert streamed(client, **tools) == ("", text, "")
        assert ask(client).choices[0].message.content == text
        assert streamed(client, stop="t<|ch") == ("", "a<|start|>assistan", "")


def test_effort_and_results_reach_the_template() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    talk = [
        *TALK,
        {"role": "assistant", "content": None, "reasoning_content": "so", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "sun"},
    ]
    with client_with("<|channel|>final<|message|>the dog", "<|return|>") as client:
        variables = {"chat_template_kwargs": {"reasoning_effort": "high"}}
        body = {"messages": talk, "tools": TOOLS, **variables}
        rendered: Any = client.post("/../apply-template", body=body, cast_to=object)
        same, other = ask(client, reasoning_effort="high"), ask(client, extra_body=variables)
        assert same.usage.prompt_tokens == other.usage.prompt_tokens
        assert same.usage.prompt_tokens != ask(client).usage.prompt_tokens
    prompt = rendered["prompt"]
    assert "\n\nReasoning: high\n\n" in prompt
    assert "namespace functions {\n\n// F.\ntype f = (_: {\na?: number,\n}) => any;" in prompt
    assert prompt.endswith(
        f"{ASSISTANT}<|channel|>analysis<|message|>so<|end|>"
        f'{ASSISTANT} to=functions.f<|channel|>commentary json<|message|>{{"a": 1}}<|call|>'
        '<|start|>functions.f to=assistant<|channel|>commentary<|message|>"sun"<|end|>'
        f"{ASSISTANT}"
    )
