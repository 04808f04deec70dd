"""Chat templates over HTTP, by the real `openai` client."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.server.openai_servers import chatty, client_of

ENDINGS: list[dict[str, Any]] = [
    {},
    {"add_generation_prompt": True},
    {"add_generation_prompt": False},
    {"continue_final_message": True},
    {"continue_final_message": False},
    {"continue_final_message": False, "add_generation_prompt": False},
    {"chat_template_kwargs": {"x": 1}},
]


@pytest.mark.parametrize("fields", ENDINGS)
@pytest.mark.parametrize("last", [[], [{"role": "assistant", "content": "It is "}]])
def test_apply_template_writes_the_prompt_that_chat_reads(
    client: openai.OpenAI, last: list[Any], fields: dict[str, Any]
) -> None:
    body: Any = {"messages": [{"role": "user", "content": "the dog"}, *last], **fields}
    if fields.get("continue_final_message") and not last:
        with pytest.raises(openai.BadRequestError, match="continue_final_message"):
            client.post("/../apply-template", body=body, cast_to=object)
        return
    rendered: Any = client.post("/../apply-template", body=body, cast_to=object)
    chat: Any = client.post(
        "/chat/completions", body={**body, "verbose": True, "max_tokens": 1}, cast_to=object
    )
    assert rendered["prompt"] == chat["__verbose"]["prompt"]


def test_a_template_that_joins_arguments_to_a_text_reads_a_history_with_calls() -> None:
    template = (
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
        "{{ c.function.name + c.function.arguments }}{% endfor %}{% endfor %}"
    )
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    history: Any = [
        {"role": "user", "content": "the dog"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "the fox"},
    ]
    with client_of(chatty(template=template)) as client:
        body = {"messages": history, "verbose": True, "max_tokens": 1}
        chat: Any = client.post("/chat/completions", body=body, cast_to=object)
        assert chat["__verbose"]["prompt"] == 'the dogf{"a": 1}the fox'
