"""Home Assistant's integration `ollama`: the requests of its conversation agent, without a home.

Its functions convert the messages and tools, and read the stream. Its agent sends the same calls.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tools.clients.checks.checking import (
    GREETING,
    NEXT,
    QUESTION,
    RESULT,
    STREAM,
    STREAMED_TOOLS,
    Feature,
    NoCall,
    main,
    require,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_PACKAGE = "homeassistant.components"


class Agent:
    """The conversation agent. The functions are in `entity` since Home Assistant 2025.7."""

    def __init__(self, base: str, model: str) -> None:
        try:
            self._code: Any = importlib.import_module(f"{_PACKAGE}.ollama.entity")
        except ImportError:
            self._code = importlib.import_module(f"{_PACKAGE}.ollama.conversation")
        self._content: Any = importlib.import_module(f"{_PACKAGE}.conversation")
        self._llm: Any = importlib.import_module("homeassistant.helpers.llm")
        # After Home Assistant, which puts another module in place of httpx.
        self.client: Any = importlib.import_module("ollama").AsyncClient(host=base)
        self._model = model

    async def answer(self, contents: list[Any], tools: list[Any] | None = None) -> Any:
        """The answer to a conversation, as content of Home Assistant."""
        stream = await self.client.chat(
            model=self._model,
            messages=[self._code._convert_content(content) for content in contents],
            tools=tools,
            stream=True,
            keep_alive="-1s",
            options={"num_ctx": 1024},
        )
        parts = [part async for part in self._code._transform_stream(stream)]
        calls = [call for part in parts for call in part.get("tool_calls") or ()]
        return self._content.AssistantContent(
            agent_id="ollama",
            content="".join(part.get("content") or "" for part in parts),
            tool_calls=calls or None,
        )

    async def greet(self) -> Any:
        """The answer to a greeting."""
        contents = [
            self._content.SystemContent(content="You are a voice assistant."),
            self._content.UserContent(content=GREETING),
        ]
        return (await self.answer(contents)).content

    async def turns(self) -> None:
        """Two turns with a tool that turns lights on."""
        tool = self._code._format_tool(_lights(self._llm), None)
        contents: list[Any] = [self._content.SystemContent(content="You control the lights.")]
        for question in (QUESTION, NEXT):
            contents.append(self._content.UserContent(content=question))
            answer = await self.answer(contents, [tool])
            contents.append(answer)
            require(answer.content or answer.tool_calls, answer)
            if not answer.tool_calls:
                raise NoCall
            contents += [
                self._content.ToolResultContent(
                    agent_id="ollama",
                    tool_call_id=call.id,
                    tool_name=call.tool_name,
                    tool_result={"speech": RESULT},
                )
                for call in answer.tool_calls
            ]
            contents.append(await self.answer(contents, [tool]))


def _lights(llm: Any) -> Any:
    """A tool of Home Assistant."""
    voluptuous = importlib.import_module("voluptuous")

    class Lights(llm.Tool):  # type: ignore[misc]
        name = "HassTurnOn"
        description = "Turns on a light"
        parameters = voluptuous.Schema({voluptuous.Required("name"): str})

    return Lights()


def features(base: str, model: str) -> Iterator[Feature]:
    """The features of the agent."""
    agent = Agent(base, model)
    yield STREAM, agent.greet
    yield STREAMED_TOOLS, agent.turns
    yield "model list", lambda: _models(agent.client)


async def _models(client: Any) -> Any:
    """The models that its settings offer."""
    return (await client.list())["models"]


if __name__ == "__main__":
    main(features)
