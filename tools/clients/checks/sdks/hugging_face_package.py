"""The package `huggingface_hub`: InferenceClient with the address of a server."""

from __future__ import annotations

import importlib
import json
from typing import TYPE_CHECKING, Any

from tools.clients.checks.checking import (
    GREETING,
    LENGTH,
    MESSAGES,
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

# A small model may repeat a call until its answer is too long.
_ONE_CALL = {"tool_choice": "required", "extra_body": {"parallel_tool_calls": False}}
_TOOLS = [{"type": "function", "function": TOOL}]
_GREETINGS = [{"role": "user", "content": GREETING}]


class Chats:
    """Chats of a server."""

    def __init__(self, base: str, model: str) -> None:
        package: Any = importlib.import_module("huggingface_hub")
        self._client = package.InferenceClient(base_url=base, api_key="none")
        self._model = model

    def _create(self, messages: list[Any], **fields: Any) -> Any:
        create = self._client.chat.completions.create
        return create(messages=messages, model=self._model, max_tokens=LENGTH, **fields)

    def chat(self) -> Any:
        """The text of an answer."""
        return self._create(_GREETINGS).choices[0].message.content

    def stream(self) -> str:
        """The text of a streamed answer."""
        parts = self._create(_GREETINGS, stream=True)
        return "".join(part.choices[0].delta.content or "" for part in parts if part.choices)

    def tools(self) -> None:
        """Two turns with a call, whose result the model reads."""
        messages: list[Any] = []
        for question in (QUESTION, NEXT):
            messages.append({"role": "user", "content": question})
            answer = self._create(messages, tools=_TOOLS, **_ONE_CALL)
            called = answer.choices[0].message
            messages.append(called)
            for call in called.tool_calls:
                result = get_weather(**json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
            messages.append(self._create(messages, tools=_TOOLS).choices[0].message)

    def streamed_tools(self) -> None:
        """The arguments of a streamed call."""
        parts = self._create(MESSAGES, tools=_TOOLS, **_ONE_CALL, stream=True)
        deltas = [part.choices[0].delta for part in parts if part.choices]
        calls = [call for delta in deltas for call in delta.tool_calls or ()]
        arguments = "".join(call.function.arguments or "" for call in calls)
        require("city" in json.loads(arguments), arguments)

    def schema(self) -> bool:
        """An answer with a schema."""
        shape = {"name": "weather", "schema": SCHEMA_OF_CITY}
        form = {"type": "json_schema", "json_schema": shape}
        answer = self._create(MESSAGES, response_format=form)
        return "city" in json.loads(answer.choices[0].message.content)


def features(base: str, model: str) -> Iterator[Feature]:
    """The features of the package."""
    yield from columns(Chats(base, model))
    yield from columns(Chats(f"{base}/v1", model), " (/v1)")


if __name__ == "__main__":
    main(features)
