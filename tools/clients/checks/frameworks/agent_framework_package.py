"""Microsoft's Agent Framework: agents of the scripted model, by chat completions and responses."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tools.clients.checks.agent import CITY, MCP, prompt_of
from tools.clients.checks.checking import (
    EMBEDDINGS,
    GREETING,
    LENGTH,
    NEXT,
    QUESTION,
    TOOL,
    Feature,
    city_model,
    columns,
    get_weather,
    main,
    require,
)
from tools.clients.checks.mcp_server import COMMAND, NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

_OPTIONS = {"max_tokens": LENGTH}


class Agents:
    """Agents of a client of the package."""

    def __init__(self, client: Any) -> None:
        self._package: Any = importlib.import_module("agent_framework")
        self._client = client

    def agent(self, **fields: Any) -> Any:
        """An agent."""
        return self._package.Agent(self._client, "Answer in one sentence.", **fields)

    async def chat(self) -> Any:
        """An answer."""
        return (await self.agent().run(GREETING, options=_OPTIONS)).text

    async def stream(self) -> Any:
        """A streamed answer."""
        parts = self.agent().run(GREETING, options=_OPTIONS, stream=True)
        return "".join([part.text async for part in parts])

    async def tools(self, tool: Any = get_weather, *, stream: bool = False) -> None:
        """Two turns of a session; the first one calls a tool."""
        agent = self.agent(tools=[tool])
        session = agent.create_session()
        answer = ""
        for question in (prompt_of((TOOL["name"], CITY)), NEXT):
            if stream:
                parts = agent.run(question, session=session, stream=True)
                answer = "".join([part.text async for part in parts])
            else:
                answer = (await agent.run(question, session=session)).text
            require(get_weather(**CITY) in answer, answer)

    async def streamed_tools(self) -> None:
        """The turns in streams."""
        await self.tools(stream=True)

    async def schema(self) -> Any:
        """An answer with a schema."""
        options = {**_OPTIONS, "response_format": city_model()}
        return (await self.agent().run(QUESTION, options=options)).value.city is not None

    async def call_mcp(self) -> None:
        """Two turns; the first one calls a tool of an MCP server."""
        program, *arguments = COMMAND
        tool = self._package.MCPStdioTool(name=NAME, command=program, args=arguments)
        async with tool:
            await self.tools(tool)


def features(base: str, model: str) -> Iterator[Feature]:
    """The features of each client of the package."""
    package: Any = importlib.import_module("agent_framework.openai")
    given = {"model": model, "base_url": f"{base}/v1", "api_key": "none"}
    clients = {"": package.OpenAIChatCompletionClient, " (responses)": package.OpenAIChatClient}
    for suffix, client in clients.items():
        agents = Agents(client(**given))
        yield from columns(agents, suffix)
        yield MCP + suffix, agents.call_mcp
    embeddings = package.OpenAIEmbeddingClient(**given)
    yield EMBEDDINGS, lambda: embeddings.get_embeddings(["a"])


if __name__ == "__main__":
    main(features)
