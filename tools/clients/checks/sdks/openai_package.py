"""The package `openai`: chat, responses in every way that they continue, and embeddings."""

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
    MESSAGES,
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
    from collections.abc import Callable, Iterator

HELLO = [{"role": "user", "content": GREETING}]
_SHAPE = {"name": "weather", "schema": SCHEMA_OF_CITY, "strict": True}


class Chat:
    """Chat completions."""

    def __init__(self, client: Any, model: str) -> None:
        self._client = client
        self._model = model

    def create(self, *, stream: bool = False, **fields: Any) -> Any:
        """The message of an answer."""
        sent: dict[str, Any] = {
            "model": self._model,
            "messages": MESSAGES,
            "max_completion_tokens": LENGTH,
        }
        chat = self._client.chat.completions
        if not stream:
            return chat.create(**{**sent, **fields}).choices[0].message
        with chat.stream(**{**sent, **fields}) as events:
            for _ in events:
                pass
            return events.get_final_completion().choices[0].message

    def streams_the_answer(self) -> bool:
        """Whether a stream and a whole answer are the same."""
        sent: dict[str, Any] = {"messages": HELLO, "temperature": 0}
        return bool(self.create(stream=True, **sent).content == self.create(**sent).content)

    def tools(self, *, stream: bool) -> None:
        """Two turns with a tool."""
        messages = []
        tools = [{"type": "function", "function": {**TOOL, "strict": True}}]
        for question in (QUESTION, NEXT):
            messages.append({"role": "user", "content": question})
            asked: dict[str, Any] = {"messages": messages, "tools": tools, "stream": stream}
            called = self.create(**asked, tool_choice="required", parallel_tool_calls=False)
            require(called.tool_calls, called)
            messages.append(called.model_dump(exclude_none=True))
            for call in called.tool_calls:
                require("city" in json.loads(call.function.arguments), call)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": RESULT})
            # A stream that is cut off at its length is an error of the package.
            answer = self.create(**asked, tool_choice="none", stop=["."])
            require(answer.content, answer)
            messages.append({"role": "assistant", "content": answer.content})

    def parse(self) -> bool:
        """An answer in the form of a pydantic model."""
        city = importlib.import_module("pydantic").create_model("Weather", city=(str, ...))
        parsed = self._client.chat.completions.parse(
            model=self._model, messages=MESSAGES, response_format=city, max_tokens=LENGTH
        )
        return parsed.choices[0].message.parsed is not None


class Responses:
    """Responses, which must be the same as their streams say."""

    def __init__(self, client: Any, model: str) -> None:
        self._client = client
        self._model = model

    def two_turns(
        self, fields: dict[str, Any], carry: Callable[[Any], dict[str, Any]], *, stream: bool
    ) -> None:
        """Call a tool, answer, and ask again; `carry` has the fields after a response."""
        given: Any = QUESTION
        for _ in (QUESTION, NEXT):
            called = self._create(given, fields, stream=stream, tool_choice="required")
            calls = [item for item in called.output if item.type == "function_call"]
            require(calls, called)
            results = [
                {"type": "function_call_output", "call_id": call.call_id, "output": RESULT}
                for call in calls
            ]
            fields = carry(called)
            # A stream that is cut off at its length is an error of the package.
            until = {"stop": ["."]}
            answer = self._create(
                results, fields, stream=stream, tool_choice="none", extra_body=until
            )
            require(answer.output_text, answer)
            fields, given = carry(answer), NEXT

    def conversation(self, *, stream: bool) -> None:
        """Two turns in a stored conversation."""
        stored = {"conversation": self._client.conversations.create().id}
        self.two_turns(stored, lambda _: stored, stream=stream)

    def stored(self) -> None:
        """Retrieve, list the items of, and delete a response."""
        responses = self._client.responses
        answer = responses.create(model=self._model, input="Hello", max_output_tokens=8)
        require(responses.retrieve(answer.id).output_text == answer.output_text, answer)
        require([item.type for item in responses.input_items.list(answer.id)], "no items")
        responses.delete(answer.id)

    def parse(self) -> bool:
        """An answer in the form of a pydantic model."""
        city = importlib.import_module("pydantic").create_model("Weather", city=(str, ...))
        parsed = self._client.responses.parse(
            model=self._model, input=QUESTION, text_format=city, max_output_tokens=LENGTH
        )
        return parsed.output_parsed is not None

    def _create(self, given: Any, fields: dict[str, Any], *, stream: bool, **more: Any) -> Any:
        request = {
            "model": self._model,
            "input": given,
            "tools": [{"type": "function", "strict": True, **TOOL}],
            "max_output_tokens": LENGTH,
            "parallel_tool_calls": False,
            **fields,
            **more,
        }
        if not stream:
            return self._client.responses.create(**request)
        with self._client.responses.stream(**request) as events:
            joined = "".join(
                event.delta
                for event in events
                if event.type == "response.function_call_arguments.delta"
            )
            response = events.get_final_response()
        calls = [item for item in response.output if item.type == "function_call"]
        require(joined == "".join(call.arguments for call in calls), joined)
        return response


def features(base: str, model: str) -> Iterator[Feature]:
    """The features of the package."""
    client = importlib.import_module("openai").OpenAI(base_url=f"{base}/v1", api_key="none")
    chat, responses = Chat(client, model), Responses(client, model)
    shape = {"type": "json_schema", "json_schema": _SHAPE}
    yield CHAT, lambda: chat.create(messages=HELLO).content
    yield STREAM, chat.streams_the_answer
    yield TOOLS, lambda: chat.tools(stream=False)
    yield STREAMED_TOOLS, lambda: chat.tools(stream=True)
    yield SCHEMA, lambda: "city" in json.loads(chat.create(response_format=shape).content)
    yield (
        EMBEDDINGS,
        lambda: client.embeddings.create(model=model, input=["a", "b"]).data[1].embedding,
    )
    yield "chat.completions.parse", chat.parse
    yield "responses.parse", responses.parse
    for stream in (False, True):
        label = ", streamed" if stream else ""
        yield (
            f"responses with previous_response_id{label}",
            functools.partial(
                responses.two_turns,
                {},
                lambda response: {"previous_response_id": response.id},
                stream=stream,
            ),
        )
        yield (
            f"responses with conversation{label}",
            functools.partial(responses.conversation, stream=stream),
        )
    yield "stored responses", responses.stored
    yield (
        "completions",
        lambda: client.completions.create(model=model, prompt="One, two,").choices[0].text,
    )
    yield "models.list", lambda: [each.id for each in client.models.list()]


if __name__ == "__main__":
    main(features)
