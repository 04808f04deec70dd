"""The package `openai-agents`: two turns with a tool in each of its sessions."""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any

from tools.clients.checks.agent import MCP
from tools.clients.checks.checking import (
    CHAT,
    GREETING,
    LENGTH,
    NEXT,
    QUESTION,
    SCHEMA,
    STREAM,
    TOOLS,
    Feature,
    get_weather,
    main,
    require,
)
from tools.clients.checks.mcp_server import COMMAND

if TYPE_CHECKING:
    from collections.abc import Iterator


_COMPACTING = "gpt-5"  # the session accepts only names of OpenAI's models


class Agents:
    """Agents of a server."""

    def __init__(self, base: str, model: str) -> None:
        self._agents: Any = importlib.import_module("agents")
        openai = importlib.import_module("openai")
        self.client = openai.AsyncOpenAI(base_url=f"{base}/v1", api_key="none")
        self._agents.set_default_openai_client(self.client, use_for_tracing=False)
        self._agents.set_tracing_disabled(True)
        self._model = model

    def agent(self, model: Any = None, **fields: Any) -> Any:
        """An agent that answers in a few words."""
        settings = self._agents.ModelSettings(max_tokens=LENGTH, **fields.pop("settings", {}))
        return self._agents.Agent(
            name="Weather",
            instructions="Answer in one sentence.",
            model=model or self._model,
            model_settings=settings,
            **fields,
        )

    def caller(self, called: list[str], model: Any = None) -> Any:
        """An agent that must call a tool, which adds its results to `called`."""

        def look_up(city: str) -> str:
            """Look up the weather in a city."""
            called.append(get_weather(city))
            return called[-1]

        return self.agent(
            model,
            tools=[self._agents.function_tool(look_up)],
            settings={"tool_choice": "required", "parallel_tool_calls": False},
            tool_use_behavior="stop_on_first_tool",
        )

    async def turns(self, model: Any = None, *, stream: bool = False, **fields: Any) -> None:
        """Two turns, each with a call."""
        called: list[str] = []
        agent = self.caller(called, model)
        for question in (QUESTION, NEXT):
            if stream:
                result = self._agents.Runner.run_streamed(agent, question, **fields)
                async for _ in result.stream_events():
                    pass
            else:
                result = await self._agents.Runner.run(agent, question, **fields)
            if "auto_previous_response_id" in fields:
                fields["previous_response_id"] = result.last_response_id
        require(len(called) >= len((QUESTION, NEXT)), "the tool was not called twice")

    async def run(self, **fields: Any) -> Any:
        """The answer of an agent without tools."""
        return (await self._agents.Runner.run(self.agent(**fields), GREETING)).final_output

    async def stream(self) -> Any:
        """The answer of an agent without tools, streamed."""
        result = self._agents.Runner.run_streamed(self.agent(), GREETING)
        async for _ in result.stream_events():
            pass
        return result.final_output

    def in_sqlite(self, *, stream: bool = False) -> Any:
        """Two turns in a session of the client."""
        return self.turns(session=self._agents.SQLiteSession("turns"), stream=stream)

    def in_conversation(self, *, stream: bool = False) -> Any:
        """Two turns in a conversation that the server stores."""
        session = self._agents.OpenAIConversationsSession(openai_client=self.client)
        return self.turns(session=session, stream=stream)

    async def in_compacted(self) -> None:
        """Two turns, whose compaction the model reads in a third."""
        session = self._agents.OpenAIResponsesCompactionSession(
            "compacted",
            self._agents.SQLiteSession("compacted"),
            client=self.client,
            model=_COMPACTING,
            compaction_mode="input",
        )
        await self.turns(session=session)
        await session.run_compaction({"force": True})
        types = [item.get("type") for item in await session.get_items()]
        require(types == ["message", "message", "compaction"], types)
        result = await self._agents.Runner.run(self.agent(), GREETING, session=session)
        require(result.final_output, "no answer after the compaction")

    async def call_mcp(self) -> None:
        """A call of a tool of an MCP server, whose result is the answer."""
        program, *arguments = COMMAND
        parameters = {"command": program, "args": arguments}
        server = importlib.import_module("agents.mcp").MCPServerStdio(parameters)
        async with server:
            agent = self.agent(
                mcp_servers=[server],
                settings={"tool_choice": "required", "parallel_tool_calls": False},
                tool_use_behavior="stop_on_first_tool",
            )
            result = await self._agents.Runner.run(agent, QUESTION)
        require("Sunny in" in str(result.final_output), result.final_output)

    def chat_completions(self) -> Any:
        """Two turns by chat completions."""
        model = self._agents.OpenAIChatCompletionsModel(self._model, self.client)
        return self.turns(model, session=self._agents.SQLiteSession("chat"))


def features(base: str, model: str) -> Iterator[Feature]:
    """The features of the package."""
    agents = Agents(base, model)
    city = importlib.import_module("pydantic").create_model("Weather", city=(str, ...))
    yield CHAT, agents.run
    yield STREAM, agents.stream
    yield SCHEMA, lambda: agents.run(output_type=city)
    yield TOOLS, agents.chat_completions
    yield MCP, agents.call_mcp
    yield "OpenAIResponsesCompactionSession", agents.in_compacted
    for stream in (False, True):
        label = ", streamed" if stream else ""
        yield f"SQLiteSession{label}", functools.partial(agents.in_sqlite, stream=stream)
        yield (
            f"OpenAIConversationsSession{label}",
            functools.partial(agents.in_conversation, stream=stream),
        )
        yield (
            f"previous_response_id{label}",
            functools.partial(agents.turns, stream=stream, auto_previous_response_id=True),
        )


if __name__ == "__main__":
    main(features)
