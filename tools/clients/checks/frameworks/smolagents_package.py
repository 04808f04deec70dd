"""smolagents: an agent whose model must call a tool."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tools.clients.checks.checking import (
    CHAT,
    GREETING,
    LENGTH,
    QUESTION,
    SCHEMA,
    SCHEMA_OF_CITY,
    STREAM,
    TOOLS,
    Feature,
    get_weather,
    main,
    require,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


def features(base: str, model: str) -> Iterator[Feature]:
    """The features of the package."""
    package: Any = importlib.import_module("smolagents")
    server = package.OpenAIModel(model, api_base=f"{base}/v1", api_key="none", max_tokens=LENGTH)
    # A small model may repeat a call until its answer is too long.
    caller = package.OpenAIModel(
        model, api_base=f"{base}/v1", api_key="none", max_tokens=LENGTH, parallel_tool_calls=False
    )
    tool = package.tool(get_weather)
    shape = {"type": "json_schema", "json_schema": {"name": "weather", "schema": SCHEMA_OF_CITY}}

    def asked(text: str) -> list[Any]:
        return [package.ChatMessage(role="user", content=[{"type": "text", "text": text}])]

    def agent() -> None:
        agent = package.ToolCallingAgent(tools=[tool], model=caller, max_steps=2, verbosity_level=0)
        agent.run(QUESTION)
        steps = [step for step in agent.memory.steps if getattr(step, "tool_calls", None)]
        require(steps, "no step with a call")

    yield CHAT, lambda: server.generate(asked(GREETING)).content
    yield STREAM, lambda: [part.content for part in server.generate_stream(asked(GREETING))]
    yield SCHEMA, lambda: server.generate(asked(QUESTION), response_format=shape).content
    yield TOOLS, agent


if __name__ == "__main__":
    main(features)
