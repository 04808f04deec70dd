"""Mistral's package `mistralai`: chats, tools, schemas, embeddings and fill in the middle."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tools.clients.checks.checking import (
    CHAT,
    EMBEDDINGS,
    GREETING,
    LENGTH,
    NEXT,
    QUESTION,
    RESULT,
    SCHEMA,
    STREAM,
    TOOL,
    TOOLS,
    Feature,
    main,
    require,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_GREETING = {"role": "user", "content": GREETING}


class Mistral:
    """The client of a server."""

    def __init__(self, base: str, model: str) -> None:
        package = importlib.import_module("mistralai.client")
        self._client: Any = package.Mistral(api_key="none", server_url=base)
        self._given: dict[str, Any] = {"model": model, "max_tokens": LENGTH, "random_seed": 1}

    def chat(self, **fields: Any) -> Any:
        """The message of an answer."""
        fields = {"messages": [_GREETING], **self._given, **fields}
        return self._client.chat.complete(**fields).choices[0].message

    def streams_the_answer(self) -> bool:
        """Whether a stream and a whole answer with the same seed are the same."""
        events = self._client.chat.stream(messages=[_GREETING], **self._given)
        joined = "".join(event.data.choices[0].delta.content or "" for event in events)
        return bool(joined) and joined == self.chat().content

    def tools(self) -> None:
        """Two turns with a tool that the model must call.

        The package reads no streamed calls: Mistral's server sends each as a whole.
        """
        fields: dict[str, Any] = {"tools": [{"type": "function", "function": TOOL}]}
        messages: list[Any] = []
        for question in (QUESTION, NEXT):
            messages.append({"role": "user", "content": question})
            called = self.chat(**fields, messages=messages, tool_choice="any")
            require(called.tool_calls, called)
            result = {"role": "tool", "name": "get_weather", "content": RESULT}
            messages.append(called)
            messages += [{**result, "tool_call_id": call.id} for call in called.tool_calls]
            messages.append(self.chat(**fields, messages=messages, tool_choice="none"))

    def schema(self) -> bool:
        """An answer as a pydantic model."""
        pydantic = importlib.import_module("pydantic")
        weather = pydantic.create_model("Weather", city=(str, pydantic.Field(max_length=20)))
        fields = {"messages": [_GREETING], **self._given}
        parsed = self._client.chat.parse(response_format=weather, **fields)
        return parsed.choices[0].message.parsed.city is not None

    def embeddings(self) -> Any:
        """The vector of the second text."""
        model = self._given["model"]
        return self._client.embeddings.create(model=model, inputs=["a", "b"]).data[1].embedding

    def fim(self) -> bool:
        """Whether a stream of /v1/fim/completions is the whole answer."""
        fields: dict[str, Any] = {**self._given, "max_tokens": 20, "prompt": "def add(a, b):"}
        events = self._client.fim.stream(**fields)
        joined = "".join(event.data.choices[0].delta.content for event in events)
        answer = self._client.fim.complete(**fields).choices[0].message.content
        return bool(joined) and joined == answer


def features(base: str, model: str) -> Iterator[Feature]:
    """The features of the package."""
    mistral = Mistral(base, model)
    yield CHAT, lambda: mistral.chat().content
    yield STREAM, mistral.streams_the_answer
    yield TOOLS, mistral.tools
    yield SCHEMA, mistral.schema
    yield EMBEDDINGS, mistral.embeddings
    yield "fim", mistral.fim


if __name__ == "__main__":
    main(features)
