"""Semantic Kernel's connector of OpenAI's API."""

from __future__ import annotations

import importlib
import json
from typing import TYPE_CHECKING, Any

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


class Chats:
    """Chats of a server."""

    def __init__(self, base: str, model: str) -> None:
        self._connectors: Any = importlib.import_module("semantic_kernel.connectors.ai.open_ai")
        self._choice: Any = importlib.import_module(
            "semantic_kernel.connectors.ai"
        ).FunctionChoiceBehavior
        contents = importlib.import_module("semantic_kernel.contents")
        self._new_history: Any = contents.ChatHistory
        client = importlib.import_module("openai").AsyncOpenAI(
            base_url=f"{base}/v1", api_key="none"
        )
        given = {"ai_model_id": model, "async_client": client}
        self._service = self._connectors.OpenAIChatCompletion(**given)
        self._embedding = self._connectors.OpenAITextEmbedding(**given)

    async def _answer(
        self, history: Any, *, stream: bool = False, kernel: Any = None, **fields: Any
    ) -> str:
        settings = self._connectors.OpenAIChatPromptExecutionSettings(max_tokens=LENGTH, **fields)
        given = {"settings": settings, "kernel": kernel}
        if not stream:
            return str(await self._service.get_chat_message_content(history, **given))
        parts = self._service.get_streaming_chat_message_content(history, **given)
        return "".join([str(part) async for part in parts])

    async def chat(self, question: str = GREETING, **fields: Any) -> str:
        """The text of an answer."""
        history = self._new_history()
        history.add_user_message(question)
        return await self._answer(history, **fields)

    async def stream(self) -> str:
        """A streamed answer."""
        return await self.chat(stream=True)

    async def tools(self, *, stream: bool = False) -> None:
        """Two turns in which the kernel calls a function, and the model reads its result."""
        functions = importlib.import_module("semantic_kernel.functions")
        kernel = importlib.import_module("semantic_kernel").Kernel()
        called: list[str] = []

        def look_up(city: str) -> str:
            called.append(get_weather(city))
            return called[-1]

        describe = functions.kernel_function(name=TOOL["name"], description=TOOL["description"])
        kernel.add_function("weather", describe(look_up))
        choice = self._choice.Required(auto_invoke=True)
        history = self._new_history()
        for question in (QUESTION, NEXT):
            history.add_user_message(question)
            fields = {"function_choice_behavior": choice, "parallel_tool_calls": False}
            await self._answer(history, stream=stream, kernel=kernel, **fields)
            history.add_assistant_message(await self._answer(history, stream=stream))
        require(len(called) == len((QUESTION, NEXT)), called)

    async def streamed_tools(self) -> None:
        """The turns in streams."""
        await self.tools(stream=True)

    async def schema(self) -> bool:
        """An answer with a schema."""
        return "city" in json.loads(await self.chat(QUESTION, response_format=city_model()))

    async def embeddings(self) -> bool:
        """The embeddings of two texts."""
        return len(await self._embedding.generate_embeddings(["a", "b"])) == len("ab")


def features(base: str, model: str) -> Iterator[Feature]:
    """The features of the package."""
    return columns(Chats(base, model))


if __name__ == "__main__":
    main(features)
