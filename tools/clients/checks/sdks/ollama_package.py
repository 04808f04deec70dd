"""The package `ollama`."""

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
    SCHEMA_OF_CITY,
    STREAM,
    STREAMED_TOOLS,
    TOOLS,
    Feature,
    NoCall,
    get_weather,
    main,
    require,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

OPTIONS = {"num_predict": LENGTH, "temperature": 0, "num_ctx": 2048}


class Ollama:
    """The client of a server."""

    def __init__(self, base: str, model: str) -> None:
        self.client: Any = importlib.import_module("ollama").Client(host=base)
        self._model = model

    def chat(self, **fields: Any) -> Any:
        """An answer, or its parts."""
        greeting = [{"role": "user", "content": GREETING}]
        return self.client.chat(
            model=self._model, options=OPTIONS, **{"messages": greeting, **fields}
        )

    def streams_the_answer(self) -> bool:
        """Whether a stream and a whole answer are the same, with the same counts."""
        answer = self.chat()
        parts = list(self.chat(stream=True))
        joined = "".join(part.message.content for part in parts)
        counts = parts[-1].prompt_eval_count, parts[-1].eval_count
        return bool(
            joined == answer.message.content
            and counts == (answer.prompt_eval_count, answer.eval_count)
        )

    def tools(self, *, stream: bool) -> None:
        """Two turns with a tool, which the model calls or not: Ollama's API has no tool_choice."""
        messages: list[Any] = []
        for question in (QUESTION, NEXT):
            messages.append({"role": "user", "content": question})
            asked: dict[str, Any] = {"messages": messages, "tools": [get_weather], "stream": stream}
            called = self._message(asked)
            result = {"role": "tool", "content": RESULT, "tool_name": "get_weather"}
            messages += [called, *[result] * len(called.get("tool_calls") or ())]
            if "tool_calls" not in called:
                raise NoCall
            messages.append(self._message(asked))

    def schema(self) -> bool:
        """An answer with a schema."""
        weather = importlib.import_module("pydantic").create_model("Weather", city=(str, ...))
        answer = self.chat(format=SCHEMA_OF_CITY).message.content
        return weather.model_validate_json(answer).city is not None

    def context(self) -> bool:
        """A text that continues the context of another one."""
        sent: dict[str, Any] = {"model": self._model, "options": OPTIONS}
        first = self.client.generate(prompt="My name is Ada.", **sent)
        second = self.client.generate(prompt="What is my name?", context=first.context, **sent)
        return bool(second.prompt_eval_count > len(first.context))

    def _message(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The message of an answer, streamed or not."""
        answer = self.chat(**asked)
        parts = list(answer) if asked["stream"] else [answer]
        calls = [call.model_dump() for part in parts for call in part.message.tool_calls or ()]
        content = "".join(part.message.content or "" for part in parts)
        require(content or calls, "empty message")
        message: dict[str, Any] = {"role": "assistant", "content": content}
        return {**message, "tool_calls": calls} if calls else message


def features(base: str, model: str) -> Iterator[Feature]:
    """The features of the package; reasoning only for models that list it."""
    ollama = Ollama(base, model)
    client = ollama.client
    given = {"model": model, "options": OPTIONS}
    yield CHAT, lambda: ollama.chat().message.content
    yield STREAM, ollama.streams_the_answer
    yield TOOLS, lambda: ollama.tools(stream=False)
    yield STREAMED_TOOLS, lambda: ollama.tools(stream=True)
    yield SCHEMA, ollama.schema
    yield EMBEDDINGS, lambda: client.embed(model=model, input=["a", "b"]).embeddings[1]
    yield "list, ps, show", lambda: client.list().models and client.ps() and client.show(model)
    yield "generate", lambda: client.generate(prompt="Hello", **given).response
    yield "generate with a context", ollama.context
    yield "raw", lambda: client.generate(prompt="One, two,", raw=True, **given).response
    yield "keep_alive", lambda: ollama.chat(keep_alive="5m").message.content
    if "thinking" in (client.show(model).capabilities or ()):
        yield "think", lambda: ollama.chat(think=True).message.thinking
        yield "think off", lambda: not ollama.chat(think=False).message.thinking


if __name__ == "__main__":
    main(features)
