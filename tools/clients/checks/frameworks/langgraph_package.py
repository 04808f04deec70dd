"""LangGraph: LangChain's agent of the scripted model, with a memory and with an MCP server."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tools.clients.checks.agent import CITY, MCP, prompt_of
from tools.clients.checks.checking import (
    NEXT,
    QUESTION,
    TOOL,
    Feature,
    columns,
    get_weather,
    main,
    require,
)
from tools.clients.checks.mcp_server import COMMAND, NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

_THREAD = {"configurable": {"thread_id": "a"}}


class Graphs:
    """Graphs that call a model of a server, by chat completions or responses."""

    def __init__(self, base: str, model: str, *, responses: bool) -> None:
        self._create: Any = importlib.import_module("langchain.agents").create_agent
        self._model = importlib.import_module("langchain_openai").ChatOpenAI(
            model=model, base_url=f"{base}/v1", api_key="none", use_responses_api=responses
        )

    async def tools(self, *, stream: bool = False) -> None:
        """Two turns; the second one knows the first by the graph's memory."""
        memory = importlib.import_module("langgraph.checkpoint.memory").InMemorySaver()
        graph = self._create(self._model, tools=[get_weather], checkpointer=memory)
        for question in (prompt_of((TOOL["name"], CITY)), NEXT):
            asked = {"messages": [("user", question)]}
            if stream:
                parts = graph.astream(asked, _THREAD, stream_mode="messages")
                require([part async for part in parts], "no part")
            else:
                await graph.ainvoke(asked, _THREAD)
        messages = graph.get_state(_THREAD).values["messages"]
        types = [message.type for message in messages]
        require(types == ["human", "ai", "tool", "ai", "human", "ai"], types)
        require(get_weather(**CITY) in messages[3].text, messages[3])

    async def streamed_tools(self) -> None:
        """The turns in streams."""
        await self.tools(stream=True)

    async def schema(self) -> bool:
        """An answer with a schema, which the model gives by a call."""
        city = importlib.import_module("pydantic").create_model("Weather", city=(str, ...))
        strategy = importlib.import_module("langchain.agents.structured_output").ToolStrategy
        graph = self._create(self._model, tools=[], response_format=strategy(city))
        answer = await graph.ainvoke({"messages": [("user", QUESTION)]})
        return bool(answer["structured_response"].model_dump().keys() == CITY.keys())

    async def call_mcp(self) -> None:
        """The call of a tool of an MCP server."""
        adapters: Any = importlib.import_module("langchain_mcp_adapters.client")
        program, *arguments = COMMAND
        server = {"transport": "stdio", "command": program, "args": arguments}
        tools = await adapters.MultiServerMCPClient({NAME: server}).get_tools()
        asked = {"messages": [("user", prompt_of((TOOL["name"], CITY)))]}
        answer = await self._create(self._model, tools=tools).ainvoke(asked)
        require(get_weather(**CITY) in answer["messages"][-1].text, answer)


def features(base: str, model: str) -> Iterator[Feature]:
    """The features of the package."""
    for suffix, responses in ("", False), (" (responses)", True):
        graphs = Graphs(base, model, responses=responses)
        yield from columns(graphs, suffix)
        yield MCP + suffix, graphs.call_mcp


if __name__ == "__main__":
    main(features)
