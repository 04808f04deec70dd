"""Haystack's generators and embedder of OpenAI's API."""

from __future__ import annotations

import functools
import importlib
import json
from typing import TYPE_CHECKING, Any

from tools.clients.checks.checking import (
    CHAT,
    EMBEDDINGS,
    GREETING,
    LENGTH,
    NEXT,
    QUESTION,
    SCHEMA,
    SCHEMA_OF_CITY,
    STREAM,
    STREAMED_TOOLS,
    TOOL,
    TOOLS,
    Feature,
    get_weather,
    main,
    require,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHATS = "haystack.components.generators.chat"


class Generators:
    """The generators of a server."""

    def __init__(self, base: str, model: str) -> None:
        secret: Any = importlib.import_module("haystack.utils").Secret.from_token("none")
        self._given = {"api_key": secret, "api_base_url": f"{base}/v1", "model": model}
        self._message: Any = importlib.import_module("haystack.dataclasses").ChatMessage
        self._tool: Any = importlib.import_module("haystack.tools").Tool

    def generator(self, name: str = "OpenAIChatGenerator", **fields: Any) -> Any:
        """A generator of short answers."""
        limit = "max_output_tokens" if "Responses" in name else "max_tokens"
        package = importlib.import_module(_CHATS)
        given = {limit: LENGTH, **fields}
        return getattr(package, name)(**self._given, generation_kwargs=given)

    def reply(self, messages: list[Any] | str, generator: Any = None, **fields: Any) -> Any:
        """The answer of a generator."""
        return (generator or self.generator()).run(messages=messages, **fields)["replies"][0]

    def stream(self) -> Any:
        """The texts of a streamed answer."""
        texts: list[str] = []
        self.reply(GREETING, streaming_callback=lambda chunk: texts.append(chunk.content))
        return "".join(texts)

    def turns(self, name: str, *, stream: bool = False) -> None:
        """Two turns with a call, whose result the model reads."""
        tool = self._tool(function=get_weather, **TOOL)
        given: dict[str, Any] = {"tools": [tool]}
        if stream:
            given["streaming_callback"] = lambda _chunk: None
        must_call = self.generator(name, tool_choice="required", parallel_tool_calls=False)
        messages: list[Any] = []
        for question in (QUESTION, NEXT):
            messages.append(self._message.from_user(question))
            called = self.reply(messages, must_call, **given)
            require(called.tool_calls, called)
            call = called.tool_calls[0]
            messages += [called, self._message.from_tool(get_weather(**call.arguments), call)]
            messages.append(self.reply(messages, self.generator(name, tool_choice="none"), **given))

    def schema(self) -> bool:
        """An answer with a schema."""
        shape = {"name": "weather", "schema": SCHEMA_OF_CITY}
        form = {"type": "json_schema", "json_schema": shape}
        return "city" in json.loads(self.reply(QUESTION, self.generator(response_format=form)).text)

    def embed(self) -> Any:
        """The embedding of a text."""
        package = importlib.import_module("haystack.components.embedders")
        return package.OpenAITextEmbedder(**self._given).run(text="a")["embedding"]


def features(base: str, model: str) -> Iterator[Feature]:
    """The features of the package."""
    generators = Generators(base, model)
    chats, responses = "OpenAIChatGenerator", "OpenAIResponsesChatGenerator"
    yield CHAT, lambda: generators.reply(GREETING).text
    yield STREAM, generators.stream
    yield TOOLS, functools.partial(generators.turns, chats)
    yield STREAMED_TOOLS, functools.partial(generators.turns, chats, stream=True)
    yield SCHEMA, generators.schema
    yield EMBEDDINGS, generators.embed
    yield f"{TOOLS} (responses)", functools.partial(generators.turns, responses)
    yield (
        f"{STREAMED_TOOLS} (responses)",
        functools.partial(generators.turns, responses, stream=True),
    )


if __name__ == "__main__":
    main(features)
