"""Runs the features of a client, and what all clients ask: a question, a tool and a schema."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import json
import sys
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Columns of the table. A client can have further features.
CHAT = "chat"
STREAM = "stream"
TOOLS = "tools"
STREAMED_TOOLS = "streamed tools"
SCHEMA = "schema"
EMBEDDINGS = "embeddings"
NO_CALL = "no call"
COLUMNS = (CHAT, STREAM, TOOLS, STREAMED_TOOLS, SCHEMA, EMBEDDINGS)

QUESTION = "What is the weather in Paris?"
NEXT = "And tomorrow?"
MESSAGES: list[dict[str, Any]] = [{"role": "user", "content": QUESTION}]
GREETING = "Say hello."
LENGTH = 200  # tokens of an answer
SCHEMA_OF_CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL: dict[str, Any] = {
    "name": "get_weather",
    "description": "Look up the weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
RESULT = "Sunny."

Feature = tuple[str, "Callable[[], Any]"]


def columns(client: object, suffix: str = "") -> Iterator[Feature]:
    """The features of a client: its methods that are named after columns, as `streamed_tools`."""
    for column in COLUMNS:
        if run := getattr(client, column.replace(" ", "_"), None):
            yield column + suffix, run


def city_model() -> Any:
    """The parameters of TOOL as a model of Pydantic, which clients bring along."""
    pydantic = importlib.import_module("pydantic")
    return pydantic.create_model("Weather", city=(Literal["Paris", "Rome"], ...))


def get_weather(city: str) -> str:
    """Look up the weather in a city.

    Args:
        city: the city
    """
    return f"Sunny in {city}."


class NoCall(Exception):
    """The API has no tool_choice, and the model called no tool."""


def require(condition: object, problem: object) -> None:
    """Raise AssertionError with the problem, unless the condition is true."""
    if not condition:
        raise AssertionError(str(problem))


def main(features: Callable[[str, str], Iterator[Feature]]) -> None:
    """Run the features of a client with the address and the model in the arguments.

    Prints `[feature, problem]` in JSON for each. The problem is empty if the feature works, and "no
    call" if the model called no tool.
    """
    base, model = sys.argv[1:]
    try:
        with asyncio.Runner() as loop:  # clients keep connections of its event loop
            for name, run in features(base, model):
                _print(name, _problem(run, loop))
    except Exception as error:
        _print("import", _text(error))


def _problem(run: Callable[[], Any], loop: asyncio.Runner) -> str:
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what clients say themselves
            result = run()
            if inspect.iscoroutine(result):
                result = loop.run(result)
    except NoCall:
        return NO_CALL
    except Exception as error:
        return _text(error)
    return "" if result is None or result else "empty answer"


def _text(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:400]


def _print(name: str, problem: str) -> None:
    print(json.dumps([name, problem]), flush=True)  # noqa: T201
