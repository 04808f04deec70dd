"""Haystack's generators and embedder of OpenAI's API."""

from __future__ import annotations

import importlib
import json
from typing import TYPE_CHECKING, Any

from tools.clients.checks.checking import (
    GREETING,
    LENGTH,
    NEXT,
    QUESTION,
    SCHEMA_OF_CITY,
    TOOL,
    Feature,
    columns,
    get_weather,
    main,
    require,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHATS = "haystack.components.generators.chat"


class Generator:
    """A generator of a server's answers, which calls tools."""

    def __init__(self, base: str, model: str, name: str) -> None:
        secret: Any = importlib.import_module("haystack.utils").Secret.from_token("none")
        self._given = {"api_key": secret, "api_base_url": f"{base}/v1", "model": model}
        self._class: Any = getattr(importlib.import_module(_CHATS), name)
        self._limit = {"max_output_tokens" if "Responses" in name else "max_tokens": LENGTH}
        self._message: Any = importlib.import_module("haystack.dataclasses").ChatMessage
        self._tool: Any = importlib.import_module("haystack.tools").Tool

    def _reply(self, messages: list[Any] | str, callback: Any = None, **fields: Any) -> Any:
        """An answer with fields of the request."""
        tools = [self._tool(function=get_weather, **TOOL)] if "tool_choice" in fields else None
        generator = self._class(**self._given, generation_kwargs={**self._limit, **fields})
        given = {"tools": tools, "streaming_callback": callback}
        return generator.run(messages=messages, **given)["replies"][0]

    def tools(self, callback: Any = None) -> None:
        """Two turns with a call, whose result the model reads."""
        messages: list[Any] = []
        for question in (QUESTION, NEXT):
            messages.append(self._message.from_user(question))
            must_call = {"tool_choice": "required", "parallel_tool_calls": False}
            called = self._reply(messages, callback, **must_call)
            require(called.tool_calls, called)
            call = called.tool_calls[0]
            messages += [called, self._message.from_tool(get_weather(**call.arguments), call)]
            messages.append(self._reply(messages, callback, tool_choice="none"))

    def streamed_tools(self) -> None:
        """The turns in streams."""
        self.tools(lambda _chunk: None)


class ChatGenerator(Generator):
    """A generator that asks by chat completions."""

    def chat(self) -> Any:
        """The text of an answer."""
        return self._reply(GREETING).text

    def stream(self) -> Any:
        """The texts of a streamed answer."""
        texts: list[str] = []
        self._reply(GREETING, lambda chunk: texts.append(chunk.content))
        return "".join(texts)

    def schema(self) -> bool:
        """An answer with a schema."""
        shape = {"name": "weather", "schema": SCHEMA_OF_CITY}
        form = {"type": "json_schema", "json_schema": shape}
        return "city" in json.loads(self._reply(QUESTION, response_format=form).text)

    def embeddings(self) -> Any:
        """The embedding of a text."""
        package = importlib.import_module("haystack.components.embedders")
        return package.OpenAITextEmbedder(**self._given).run(text="a")["embedding"]


def features(base: str, model: str) -> Iterator[Feature]:
    """The features of the package."""
    yield from columns(ChatGenerator(base, model, "OpenAIChatGenerator"))
    yield from columns(Generator(base, model, "OpenAIResponsesChatGenerator"), " (responses)")


if __name__ == "__main__":
    main(features)
