"""Agno: agents of the scripted model, by chat completions and responses."""

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


class Agents:
    """Agents of a model."""

    def __init__(self, model: Any) -> None:
        self._package: Any = importlib.import_module("agno.agent")
        self._model = model

    def _agent(self, **fields: Any) -> Any:
        return self._package.Agent(model=self._model, telemetry=False, **fields)

    async def chat(self) -> Any:
        """The text of an answer."""
        return (await self._agent().arun(GREETING)).content

    async def stream(self) -> str:
        """A streamed answer."""
        parts = self._agent().arun(GREETING, stream=True)
        return "".join([part.content or "" async for part in parts])

    async def tools(self) -> None:
        """A turn with a call."""
        answer = await self._agent(tools=[get_weather]).arun(prompt_of((TOOL["name"], CITY)))
        require(get_weather(**CITY) in answer.content, answer)

    async def streamed_tools(self) -> None:
        """A streamed turn with a call."""
        parts = self._agent(tools=[get_weather]).arun(prompt_of((TOOL["name"], CITY)), stream=True)
        answer = "".join([part.content or "" async for part in parts])
        require(get_weather(**CITY) in answer, answer)

    async def schema(self) -> bool:
        """An answer with a schema."""
        answer = await self._agent(output_schema=city_model()).arun(QUESTION)
        return answer.content.city is not None


def features(base: str, model: str) -> Iterator[Feature]:
    """The features of the package."""
    chat: Any = importlib.import_module("agno.models.openai.like").OpenAILike
    responses: Any = importlib.import_module("agno.models.openai").OpenAIResponses
    given = {"id": model, "base_url": f"{base}/v1", "api_key": "none"}
    yield from columns(Agents(chat(**given)))
    yield from columns(Agents(responses(**given)), " (responses)")


if __name__ == "__main__":
    main(features)
