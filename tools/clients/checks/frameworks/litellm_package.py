"""LiteLLM's providers of OpenAI's, Anthropic's and Ollama's APIs."""

from __future__ import annotations

import functools
import importlib
import json
import os
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
    SCHEMA_OF_CITY,
    STREAM,
    STREAMED_TOOLS,
    TOOL,
    TOOLS,
    Feature,
    NoCall,
    main,
    require,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHAPE = {"type": "json_schema", "json_schema": {"name": "weather", "schema": SCHEMA_OF_CITY}}


class Provider:
    """A provider of a server. Ollama's has no tool_choice, so the model may call no tool."""

    def __init__(self, name: str, base: str, model: str) -> None:
        os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
        self._litellm: Any = importlib.import_module("litellm")
        self._name = name
        self._base = base
        self._model = model

    def complete(self, *, stream: bool = False, **fields: Any) -> Any:
        """The message of an answer."""
        greeting = [{"role": "user", "content": GREETING}]
        sent: dict[str, Any] = {
            "messages": greeting,
            "max_tokens": LENGTH,
            "stream": stream,
            **fields,
        }
        answer = self._litellm.completion(
            f"{self._name}/{self._model}", api_base=self._base, api_key="none", **sent
        )
        if stream:
            answer = self._litellm.stream_chunk_builder(list(answer))
        return answer.choices[0].message

    def text(self, *, stream: bool = False) -> Any:
        """The text of an answer."""
        return self.complete(stream=stream).content

    def tools(self, *, stream: bool) -> None:
        """Two turns with a tool."""
        must_call = not self._name.startswith("ollama")
        messages: list[Any] = []
        for question in (QUESTION, NEXT):
            messages.append({"role": "user", "content": question})
            asked: dict[str, Any] = {"messages": messages, "stream": stream}
            asked["tools"] = [{"type": "function", "function": TOOL}]
            if must_call:
                asked |= {"tool_choice": "required", "parallel_tool_calls": False}
            called = self.complete(**asked)
            require(called.tool_calls or not must_call, called)
            messages.append(called.model_dump())
            for call in called.tool_calls or ():
                json.loads(call.function.arguments)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": RESULT})
            if not called.tool_calls:
                raise NoCall
            asked |= {"tool_choice": "none"} if must_call else {}
            messages.append(self.complete(**asked).model_dump())

    def schema(self) -> bool:
        """An answer with a schema."""
        return "city" in json.loads(self.complete(response_format=_SHAPE).content)

    def embed(self) -> Any:
        """The embedding of a text."""
        return self._litellm.embedding(
            f"{self._name}/{self._model}", ["a"], api_base=self._base, api_key="none"
        ).data


def features(base: str, model: str) -> Iterator[Feature]:
    """The features of each provider."""
    addresses = {"openai": f"{base}/v1", "ollama_chat": base, "ollama": base, "anthropic": base}
    for name, address in addresses.items():
        provider = Provider(name, address, model)
        suffix = "" if name == "openai" else f" ({name}/)"
        yield CHAT + suffix, provider.text
        yield STREAM + suffix, functools.partial(provider.text, stream=True)
        if name in ("openai", "ollama"):
            yield EMBEDDINGS + suffix, provider.embed
        if name != "ollama":
            yield TOOLS + suffix, functools.partial(provider.tools, stream=False)
            yield STREAMED_TOOLS + suffix, functools.partial(provider.tools, stream=True)
            yield SCHEMA + suffix, provider.schema


if __name__ == "__main__":
    main(features)
