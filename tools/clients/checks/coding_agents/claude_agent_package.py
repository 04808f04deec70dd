"""The package `claude-agent-sdk`, with the Claude Code that its wheel has."""

from __future__ import annotations

import asyncio
import importlib
import tempfile
from functools import partial
from typing import TYPE_CHECKING, Any

from tools.clients.checks.agent import CITY, MCP, call_mcp, edit_a_file, prompt_of
from tools.clients.checks.checking import (
    GREETING,
    NEXT,
    SCHEMA,
    SCHEMA_OF_CITY,
    STREAM,
    STREAMED_TOOLS,
    TOOL,
    Feature,
    get_weather,
    main,
    require,
)
from tools.clients.checks.coding_agents.claude_code import (
    WEATHER,
    WEATHER_CALLS,
    edit,
    read,
    variables,
)
from tools.clients.checks.mcp_server import NAME

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Agents:
    """Agents of a server, each in a folder, which is also its home."""

    def __init__(self, base: str) -> None:
        self._package: Any = importlib.import_module("claude_agent_sdk")
        self._variables = variables(base)

    def _options(self, folder: Path | str, **fields: Any) -> Any:
        home = {"HOME": str(folder)}
        return self._package.ClaudeAgentOptions(
            cwd=folder, env=self._variables | home, setting_sources=[], **fields
        )

    async def _messages(self, prompt: str, folder: Path | str, **fields: Any) -> list[Any]:
        """The messages of a prompt; the last one is the result."""
        answer = self._package.query(prompt=prompt, options=self._options(folder, **fields))
        messages = [message async for message in answer]
        require(not messages[-1].is_error, messages[-1].result)
        return messages

    def ask(self, prompt: str, folder: Path) -> str:
        """The answer to a prompt that calls tools."""
        allowed = ["Read", "Edit"]
        return str(asyncio.run(self._messages(prompt, folder, allowed_tools=allowed))[-1].result)

    async def stream(self) -> None:
        """An answer whose parts arrive one after the other."""
        with tempfile.TemporaryDirectory() as folder:
            messages = await self._messages(GREETING, folder, include_partial_messages=True)
        events = [each.event["type"] for each in messages if hasattr(each, "event")]
        require("content_block_delta" in events, events)

    async def schema(self) -> bool:
        """An answer with a schema, which the model gives by a call."""
        shape = {"type": "json_schema", "schema": SCHEMA_OF_CITY}
        with tempfile.TemporaryDirectory() as folder:
            messages = await self._messages(
                prompt_of(("StructuredOutput", CITY)), folder, output_format=shape
            )
        return bool(messages[-1].structured_output == CITY)

    def call(self, prompt: str, folder: Path) -> str:
        """The answer to a prompt that calls a function of this process."""
        return asyncio.run(self._call(prompt, folder))

    async def _call(self, prompt: str, folder: Path) -> str:
        async def look_up(arguments: dict[str, Any]) -> dict[str, Any]:
            return {"content": [{"type": "text", "text": get_weather(**arguments)}]}

        tool = self._package.tool(TOOL["name"], TOOL["description"], {"city": str})(look_up)
        server = self._package.create_sdk_mcp_server(NAME, tools=[tool])
        messages = await self._messages(
            prompt, folder, mcp_servers={NAME: server}, allowed_tools=[WEATHER]
        )
        return str(messages[-1].result)

    async def turns(self) -> None:
        """Two turns of one client."""
        with tempfile.TemporaryDirectory() as folder:
            async with self._package.ClaudeSDKClient(self._options(folder)) as client:
                for question in (GREETING, NEXT):
                    await client.query(question)
                    result = [message async for message in client.receive_response()][-1]
                    require(not result.is_error and result.result, result)


def features(base: str, _model: str) -> Iterator[Feature]:
    """The task of agents, and further features of the package."""
    agents = Agents(base)
    yield STREAMED_TOOLS, partial(edit_a_file, agents.ask, read, edit)
    yield STREAM, agents.stream
    yield SCHEMA, agents.schema
    yield MCP, partial(call_mcp, agents.call, *WEATHER_CALLS)
    yield "ClaudeSDKClient", agents.turns


if __name__ == "__main__":
    main(features)
