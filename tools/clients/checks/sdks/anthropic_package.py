"""The package `anthropic`: messages, tools, documents, schemas and batches."""

from __future__ import annotations

import importlib
import json
import time
from typing import TYPE_CHECKING, Any

from tools.clients.checks.checking import (
    CHAT,
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
    main,
    require,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOOL = {
    "name": TOOL["name"],
    "description": TOOL["description"],
    "input_schema": TOOL["parameters"],
}


class Messages:
    """Conversations of a server."""

    def __init__(self, client: Any, model: str) -> None:
        self._client = client
        self._model = model

    def create(self, *, stream: bool = False, **fields: Any) -> Any:
        """An answer."""
        greeting = [{"role": "user", "content": GREETING}]
        sent: dict[str, Any] = {
            "model": self._model,
            "max_tokens": LENGTH,
            "messages": greeting,
            **fields,
        }
        if not stream:
            return self._client.messages.create(**sent)
        with self._client.messages.stream(**sent) as events:
            return events.get_final_message()

    def tools(self, *, stream: bool) -> None:
        """Two turns with a tool."""
        messages: list[dict[str, Any]] = []
        for question in (QUESTION, NEXT):
            messages.append({"role": "user", "content": question})
            asked: dict[str, Any] = {"messages": messages, "tools": [_TOOL], "stream": stream}
            choice = {"type": "any", "disable_parallel_tool_use": True}
            called = self.create(**asked, tool_choice=choice)
            calls = [block for block in called.content if block.type == "tool_use"]
            require(calls and all("city" in call.input for call in calls), called)
            results = [
                {"type": "tool_result", "tool_use_id": call.id, "content": RESULT} for call in calls
            ]
            messages.append({"role": "assistant", "content": called.content})
            messages.append({"role": "user", "content": results})
            answer = self.create(**asked, tool_choice={"type": "none"})
            require(answer.content, answer)
            messages.append({"role": "assistant", "content": answer.content})

    def schema(self) -> bool:
        """An answer with a schema."""
        shape = {"type": "json_schema", "schema": SCHEMA_OF_CITY}
        answer = self.create(output_config={"format": shape})
        return "city" in json.loads(answer.content[0].text)

    def document(self) -> Any:
        """A question about a document."""
        source = {"type": "text", "media_type": "text/plain", "data": "The dog is called Ada."}
        content = [
            {"type": "document", "source": source, "title": "Dogs"},
            {"type": "text", "text": "What is the dog called?"},
        ]
        return self.create(messages=[{"role": "user", "content": content}]).content

    def batch(self) -> None:
        """A batch of two requests."""
        batches = self._client.messages.batches
        params = {
            "model": self._model,
            "max_tokens": 8,
            "messages": [{"role": "user", "content": GREETING}],
        }
        requests = [{"custom_id": name, "params": params} for name in ("a", "b")]
        created = batches.create(requests=requests)
        while batches.retrieve(created.id).processing_status != "ended":
            time.sleep(0.2)
        types = [each.result.type for each in batches.results(created.id)]
        require(types == ["succeeded", "succeeded"], types)
        batches.delete(created.id)


def features(base: str, model: str) -> Iterator[Feature]:
    """The features of the package."""
    client = importlib.import_module("anthropic").Anthropic(base_url=base, api_key="none")
    messages = Messages(client, model)
    count = client.messages.count_tokens
    yield CHAT, lambda: messages.create().content
    yield STREAM, lambda: messages.create(stream=True).content
    yield TOOLS, lambda: messages.tools(stream=False)
    yield STREAMED_TOOLS, lambda: messages.tools(stream=True)
    yield SCHEMA, messages.schema
    yield "document", messages.document
    yield (
        "count_tokens",
        lambda: count(model=model, messages=[{"role": "user", "content": "Hi"}]).input_tokens,
    )
    yield "batches", messages.batch
    yield "models.list", lambda: [each.id for each in client.models.list()]


if __name__ == "__main__":
    main(features)
