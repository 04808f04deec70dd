"""CrewAI: its clients of OpenAI's and Ollama's APIs, and a crew of the scripted model."""

from __future__ import annotations

import importlib
import os
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

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false"}


class Models:
    """A model of a server."""

    def __init__(self, **fields: Any) -> None:
        self._package: Any = importlib.import_module("crewai")
        self._fields = fields

    def _model(self, **fields: Any) -> Any:
        return self._package.LLM(**self._fields, **fields)

    def chat(self) -> Any:
        """The text of an answer."""
        return self._model().call(GREETING)

    def stream(self) -> Any:
        """A streamed answer."""
        return self._model(stream=True).call(GREETING)

    def tools(self, *, stream: bool = False) -> None:
        """A task of a crew, whose agent calls a tool."""
        tool: Any = importlib.import_module("crewai.tools").tool
        agent = self._package.Agent(
            role="Reporter",
            goal="Report the weather.",
            backstory="None.",
            llm=self._model(stream=stream),
            tools=[tool(TOOL["name"])(get_weather)],
        )
        task = self._package.Task(
            description=prompt_of((TOOL["name"], CITY)), expected_output="A text.", agent=agent
        )
        answer = str(self._package.Crew(agents=[agent], tasks=[task]).kickoff())
        require(get_weather(**CITY) in answer, answer)

    def streamed_tools(self) -> None:
        """The task with streams."""
        self.tools(stream=True)

    def schema(self) -> bool:
        """An answer with a schema."""
        return self._model(response_format=city_model()).call(QUESTION).city is not None


def features(base: str, model: str) -> Iterator[Feature]:
    """The features of the package."""
    address = {"base_url": f"{base}/v1", "api_key": "none"}
    yield from columns(Models(model=f"openai/{model}", **address))
    yield from columns(Models(model=f"ollama/{model}", base_url=base), " (Ollama)")


if __name__ == "__main__":
    main(features)
