"""The package `langchain-openai` or `langchain-ollama`, whichever is installed."""

from __future__ import annotations

import importlib
import importlib.util
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

_SCHEMA = {"title": "weather", "description": "The weather.", **SCHEMA_OF_CITY}


def _tools(chat: Any, *, stream: bool, choice: str | None = None) -> None:
    """Two turns with a tool, which the model must call if the API has a choice."""
    core = importlib.import_module("langchain_core.messages")
    choice_fields: dict[str, Any] = (
        {"tool_choice": choice, "parallel_tool_calls": False} if choice else {}
    )
    bound = chat.bind_tools([get_weather], **choice_fields)
    messages: list[Any] = []
    for question in (QUESTION, NEXT):
        messages.append(core.HumanMessage(question))
        if stream:
            parts = list(bound.stream(messages))
            called = parts[0]
            for part in parts[1:]:
                called += part
        else:
            called = bound.invoke(messages)
        require(called.tool_calls or not choice, called)
        messages.append(called)
        messages += [
            core.ToolMessage(RESULT, tool_call_id=each["id"]) for each in called.tool_calls
        ]
        if not called.tool_calls:
            raise NoCall
        messages.append(chat.bind_tools([get_weather]).invoke(messages))


def _chat(chat: Any, choice: str | None, suffix: str = "") -> Iterator[Feature]:
    yield CHAT + suffix, lambda: chat.invoke(GREETING).usage_metadata["output_tokens"]
    yield STREAM + suffix, lambda: [part.content for part in chat.stream(GREETING) if part.content]
    yield TOOLS + suffix, lambda: _tools(chat, stream=False, choice=choice)
    yield STREAMED_TOOLS + suffix, lambda: _tools(chat, stream=True, choice=choice)
    shaped = chat.with_structured_output(_SCHEMA, method="json_schema")
    yield SCHEMA + suffix, lambda: "city" in shaped.invoke(QUESTION)


def openai_features(base: str, model: str) -> Iterator[Feature]:
    """The package `langchain-openai`."""
    package = importlib.import_module("langchain_openai")
    given = {"model": model, "base_url": f"{base}/v1", "api_key": "none"}
    limited = {**given, "max_tokens": LENGTH}
    chat = package.ChatOpenAI(**limited)
    yield from _chat(chat, "required")
    embeddings = package.OpenAIEmbeddings(**given, check_embedding_ctx_length=False)
    yield EMBEDDINGS, lambda: embeddings.embed_query("a")
    yield from _chat(
        package.ChatOpenAI(**limited, use_responses_api=True), "required", " (responses)"
    )
    called = chat.with_structured_output(_SCHEMA, method="function_calling")
    yield "schema by a tool", lambda: "city" in called.invoke(QUESTION)
    yield "completions", lambda: package.OpenAI(**limited).invoke("One, two,")


def ollama_features(base: str, model: str) -> Iterator[Feature]:
    """The package `langchain-ollama`."""
    package = importlib.import_module("langchain_ollama")
    given = {"model": model, "base_url": base}
    options = {**given, "num_predict": LENGTH, "num_ctx": 2048}
    yield from _chat(package.ChatOllama(**options, validate_model_on_init=True), None)
    yield EMBEDDINGS, lambda: package.OllamaEmbeddings(**given).embed_query("a")
    yield "OllamaLLM", lambda: package.OllamaLLM(**options).invoke("Hello")


if __name__ == "__main__":
    is_openai = importlib.util.find_spec("langchain_openai") is not None
    main(openai_features if is_openai else ollama_features)
