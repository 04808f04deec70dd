"""Two turns with tools by `openai` and `openai-agents`, in every way that they continue a response.

pip install openai openai-agents
python -m tools.clients.responses_turns http://127.0.0.1:8080
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

QUESTION = "What is the weather in Paris?"
NEXT = "And tomorrow?"
TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "Look up the weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
LENGTH = 200  # tokens of an answer


def two_turns(
    client: Any, fields: dict[str, Any], carry: Callable[[Any], dict[str, Any]], *, stream: bool
) -> None:
    """Call a tool, answer the call, and ask again; `carry` has the fields after a response."""
    given: Any = QUESTION
    for turn in (QUESTION, NEXT):
        called = create(client, given, fields, stream=stream, tool_choice="required")
        calls = [item for item in called.output if item.type == "function_call"]
        assert calls, called
        results = [
            {"type": "function_call_output", "call_id": call.call_id, "output": "Sunny."}
            for call in calls
        ]
        fields = carry(called)
        answer = create(client, results, fields, stream=stream, tool_choice="none")
        assert answer.output_text, answer
        fields, given = carry(answer), NEXT
        print(f"  {turn} -> {len(calls)} calls, {len(answer.output_text)} characters")  # noqa: T201


def create(client: Any, given: Any, fields: dict[str, Any], *, stream: bool, **more: Any) -> Any:
    """A response, which must be the same as its stream says."""
    request = {
        "model": "any",
        "input": given,
        "tools": [TOOL],
        "max_output_tokens": LENGTH,
        "parallel_tool_calls": False,
        **fields,
        **more,
    }
    if not stream:
        return client.responses.create(**request)
    with client.responses.stream(**request) as events:
        joined = "".join(
            event.delta
            for event in events
            if event.type == "response.function_call_arguments.delta"
        )
        response = events.get_final_response()
    calls = [item for item in response.output if item.type == "function_call"]
    assert joined == "".join(call.arguments for call in calls)
    return response


def openai_turns(base: str) -> None:
    """The package `openai`."""
    client = importlib.import_module("openai").OpenAI(base_url=f"{base}/v1", api_key="none")
    for stream in (False, True):
        print(f"openai: {'streamed' if stream else 'whole'}")  # noqa: T201
        two_turns(client, {}, lambda r: {"previous_response_id": r.id}, stream=stream)
        stored = {"conversation": client.conversations.create().id}
        two_turns(client, stored, lambda _, stored=stored: stored, stream=stream)  # type: ignore[misc]
    answer = client.responses.create(model="any", input="Hello", max_output_tokens=8)
    assert client.responses.retrieve(answer.id).output_text == answer.output_text
    assert [item.type for item in client.responses.input_items.list(answer.id)] == ["message"]
    client.responses.delete(answer.id)


async def agents_turns(base: str) -> None:
    """The package `openai-agents`, with its sessions."""
    agents: Any = importlib.import_module("agents")
    openai = importlib.import_module("openai")
    client = openai.AsyncOpenAI(base_url=f"{base}/v1", api_key="none")
    agents.set_default_openai_client(client, use_for_tracing=False)
    agents.set_tracing_disabled(True)
    called: list[str] = []

    def get_weather(city: str) -> str:
        """Look up the weather in a city."""
        called.append(city)
        return f"Sunny in {city}."

    agent = agents.Agent(
        name="Weather",
        instructions="Answer in one sentence.",
        model="any",
        tools=[agents.function_tool(get_weather)],
        model_settings=agents.ModelSettings(
            tool_choice="required", max_tokens=LENGTH, parallel_tool_calls=False
        ),
        tool_use_behavior="stop_on_first_tool",
    )
    sessions: dict[str, dict[str, Any]] = {
        "SQLiteSession": {"session": agents.SQLiteSession("turns")},
        "OpenAIConversationsSession": {
            "session": agents.OpenAIConversationsSession(openai_client=client)
        },
        "previous_response_id": {"auto_previous_response_id": True},
    }
    for name, fields in sessions.items():
        for question in (QUESTION, NEXT):
            result = await agents.Runner.run(agent, question, **fields)
            if name == "previous_response_id":
                fields["previous_response_id"] = result.last_response_id
            print(f"openai-agents: {name}: {question} -> {result.final_output}")  # noqa: T201
        streamed = agents.Runner.run_streamed(agent, NEXT, **fields)
        async for _ in streamed.stream_events():
            pass
        assert called, "the tool was not called"
    assert len(called) >= 3 * len(sessions)


def main() -> None:
    """Run all turns against the server in the arguments."""
    (base,) = sys.argv[1:] or ["http://127.0.0.1:8080"]
    openai_turns(base)
    asyncio.run(agents_turns(base))


if __name__ == "__main__":
    main()
