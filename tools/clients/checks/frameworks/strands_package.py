"""Strands Agents: agents of the scripted model, by the APIs of OpenAI, Anthropic and Ollama."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tools.clients.checks.agent import CITY, prompt_of
from tools.clients.checks.checking import (
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

if TYPE_CHECKING:
    from collections.abc import Iterator


class Agents:
    """Agents of a model, which stream all answers."""

    def __init__(self, model: Any) -> None:
        self._package: Any = importlib.import_module("strands")
        self._model = model

    def _agent(self, **fields: Any) -> Any:
        return self._package.Agent(model=self._model, callback_handler=None, **fields)

    async def stream(self) -> str:
        """A streamed answer."""
        events = self._agent().stream_async(GREETING)
        return "".join([event.get("data", "") async for event in events])

    async def streamed_tools(self) -> None:
        """Two turns; the first one calls a tool."""
        agent = self._agent(tools=[self._package.tool(get_weather)])
        for question in (prompt_of((TOOL["name"], CITY)), NEXT):
            answer = str(await agent.invoke_async(question))
            require(get_weather(**CITY) in answer, answer)


class ShapedAgents(Agents):
    """Agents of an API that can require a call."""

    async def schema(self) -> bool:
        """An answer with a schema, which the model gives by a call."""
        answer = await self._agent().invoke_async(QUESTION, structured_output_model=city_model())
        return answer.structured_output.city is not None


def features(base: str, model: str) -> Iterator[Feature]:
    """The features of the package."""
    models: Any = importlib.import_module("strands.models.openai")
    responses: Any = importlib.import_module("strands.models.openai_responses")
    anthropic: Any = importlib.import_module("strands.models.anthropic")
    ollama: Any = importlib.import_module("strands.models.ollama")
    openai = {"client_args": {"base_url": f"{base}/v1", "api_key": "none"}, "model_id": model}
    yield from columns(ShapedAgents(models.OpenAIModel(**openai)))
    yield from columns(ShapedAgents(responses.OpenAIResponsesModel(**openai)), " (responses)")
    messages = anthropic.AnthropicModel(
        client_args={"base_url": base, "api_key": "none"}, model_id=model, max_tokens=LENGTH
    )
    yield from columns(ShapedAgents(messages), " (Anthropic)")
    yield from columns(Agents(ollama.OllamaModel(base, model_id=model)), " (Ollama)")


if __name__ == "__main__":
    main(features)
