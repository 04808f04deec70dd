"""AutoGen: its clients of OpenAI's and Ollama's APIs, and an agent of the scripted model."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tools.clients.checks.agent import CITY, prompt_of
from tools.clients.checks.checking import (
    GREETING,
    QUESTION,
    TOOL,
    Feature,
    city_model,
    columns,
    get_weather,
    main,
    require,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_FEATURES = {
    "vision": False,
    "function_calling": True,
    "json_output": True,
    "structured_output": True,
    "family": "unknown",
}


class Chats:
    """Chats of a client."""

    def __init__(self, client: Any) -> None:
        self._models: Any = importlib.import_module("autogen_core.models")
        self._agents: Any = importlib.import_module("autogen_agentchat.agents")
        self._client = client

    def _asked(self, question: str) -> list[Any]:
        return [self._models.UserMessage(content=question, source="user")]

    async def chat(self) -> Any:
        """The text of an answer."""
        return (await self._client.create(self._asked(GREETING))).content

    async def stream(self) -> str:
        """A streamed answer."""
        parts = self._client.create_stream(self._asked(GREETING))
        return "".join([part async for part in parts if isinstance(part, str)])

    async def tools(self, *, stream: bool = False) -> None:
        """An agent that calls a tool."""
        agent = self._agents.AssistantAgent(
            "a",
            self._client,
            tools=[get_weather],
            reflect_on_tool_use=True,
            model_client_stream=stream,
        )
        answer = await agent.run(task=prompt_of((TOOL["name"], CITY)))
        said = answer.messages[-1].to_text()
        require(get_weather(**CITY) in said, said)

    async def streamed_tools(self) -> None:
        """The agent with streams."""
        await self.tools(stream=True)

    async def schema(self) -> bool:
        """An answer with a schema."""
        city = city_model()
        answer = await self._client.create(self._asked(QUESTION), json_output=city)
        return city.model_validate_json(answer.content).city is not None


def features(base: str, model: str) -> Iterator[Feature]:
    """The features of the packages."""
    openai: Any = importlib.import_module("autogen_ext.models.openai")
    ollama: Any = importlib.import_module("autogen_ext.models.ollama")
    given = {"model": model, "model_info": _FEATURES}
    address = {"base_url": f"{base}/v1", "api_key": "none"}
    yield from columns(Chats(openai.OpenAIChatCompletionClient(**given, **address)))
    yield from columns(Chats(ollama.OllamaChatCompletionClient(**given, host=base)), " (Ollama)")


if __name__ == "__main__":
    main(features)
