"""Ollama's API by `ollama`, `langchain-ollama` and LiteLLM: each feature of each client once.

    pip install ollama langchain-ollama litellm
    python -m tools.clients.ollama_api http://127.0.0.1:8080

Prints a line per client and feature, and exits with status 1 if one failed. Tools and reasoning are
left out for models that do not list them in /api/show.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

QUESTION = "What is the weather in Paris?"
MESSAGES = [{"role": "user", "content": QUESTION}]
OPTIONS = {"num_predict": 120, "temperature": 0, "num_ctx": 2048}
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}},
    "required": ["city"],
    "additionalProperties": False,
}
Feature = tuple[str, "Callable[[], object]"]


def get_weather(city: str) -> str:
    """Look up the weather in a city.

    Args:
        city: the city
    """
    return f"Sunny in {city}."


def ollama_features(base: str, model: str, capabilities: list[str]) -> Iterator[Feature]:
    """The package `ollama`."""
    client = importlib.import_module("ollama").Client(host=base)
    pydantic = importlib.import_module("pydantic")

    def chat(**fields: Any) -> Any:
        return client.chat(model=model, options=OPTIONS, **{"messages": MESSAGES, **fields})

    def whole_and_stream() -> bool:
        answer = chat(stream=False)
        parts = list(chat(stream=True))
        joined = "".join(part.message.content for part in parts)
        counts = parts[-1].prompt_eval_count, parts[-1].eval_count
        return bool(
            joined
            and joined == answer.message.content
            and counts == (answer.prompt_eval_count, answer.eval_count)
        )

    def schema() -> bool:
        weather = pydantic.create_model("Weather", city=(str, ...))
        answer = chat(format=SCHEMA).message.content
        return bool(weather.model_validate_json(answer).city is not None)

    def context() -> bool:
        first = client.generate(model=model, prompt="My name is Ada.", options=OPTIONS)
        second = client.generate(
            model=model, prompt="What is my name?", context=first.context, options=OPTIONS
        )
        return bool(second.prompt_eval_count > len(first.context))

    def tools() -> bool:
        called = chat(tools=[get_weather]).message
        if called.tool_calls:
            result = {"role": "tool", "content": "Sunny.", "tool_name": "get_weather"}
            results = [result] * len(called.tool_calls)
            chat(tools=[get_weather], messages=[*MESSAGES, called, *results])
        return True

    yield "list, ps, show", lambda: client.list().models and client.ps() and client.show(model)
    yield "chat, whole and streamed", whole_and_stream
    yield "format", schema
    yield "generate", lambda: client.generate(model=model, prompt="Hello", options=OPTIONS).response
    yield "generate with a context", context
    yield "raw", lambda: client.generate(model=model, prompt="One, two,", raw=True, options=OPTIONS)
    yield "embed", lambda: len(client.embed(model=model, input=["a", "b"]).embeddings) == len("ab")
    yield "keep_alive", lambda: chat(keep_alive="5m")
    if "tools" in capabilities:
        yield "tools", tools
    if "thinking" in capabilities:
        yield "think", lambda: chat(think=True).message.thinking
        yield "think off", lambda: not chat(think=False).message.thinking


def langchain_features(base: str, model: str, capabilities: list[str]) -> Iterator[Feature]:
    """The package `langchain-ollama`."""
    langchain = importlib.import_module("langchain_ollama")
    messages = importlib.import_module("langchain_core.messages")
    options = {"model": model, "base_url": base, **OPTIONS}
    chat = langchain.ChatOllama(**options, validate_model_on_init=True)

    def tools() -> bool:
        bound = chat.bind_tools([get_weather])
        called = bound.invoke(QUESTION)
        results = [
            messages.ToolMessage("Sunny.", tool_call_id=call["id"]) for call in called.tool_calls
        ]
        if results:
            bound.invoke([messages.HumanMessage(QUESTION), called, *results])
        return True

    embeddings = langchain.OllamaEmbeddings(model=model, base_url=base)
    yield "invoke", lambda: chat.invoke(QUESTION).usage_metadata["output_tokens"]
    yield "stream", lambda: "".join(str(part.content) for part in chat.stream(QUESTION))
    yield (
        "with_structured_output",
        lambda: chat.with_structured_output(
            {"title": "weather", **SCHEMA}, method="json_schema"
        ).invoke(QUESTION),
    )
    yield "OllamaLLM", lambda: langchain.OllamaLLM(**options).invoke("Hello")
    yield "OllamaEmbeddings", lambda: embeddings.embed_query("a")
    if "tools" in capabilities:
        yield "bind_tools", tools


def litellm_features(base: str, model: str, capabilities: list[str]) -> Iterator[Feature]:
    """LiteLLM's providers `ollama_chat/` and `ollama/`."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    litellm = importlib.import_module("litellm")

    def complete(provider: str = "ollama_chat", **fields: Any) -> Any:
        sent = {"messages": MESSAGES, "api_base": base, "max_tokens": 120, **fields}
        return litellm.completion(f"{provider}/{model}", **sent)

    def text(answer: Any) -> str:
        return str(answer.choices[0].message.content)

    def tools() -> bool:
        parameters = {"name": "get_weather", "description": "Weather.", "parameters": SCHEMA}
        listed = [{"type": "function", "function": parameters}]
        called = complete(tools=listed).choices[0].message
        if called.tool_calls:
            results = [
                {"role": "tool", "tool_call_id": call.id, "content": "Sunny."}
                for call in called.tool_calls
            ]
            complete(tools=listed, messages=[*MESSAGES, called.model_dump(), *results])
        return True

    yield "ollama_chat/", lambda: text(complete())
    yield (
        "ollama_chat/, streamed",
        lambda: "".join(part.choices[0].delta.content or "" for part in complete(stream=True)),
    )
    yield (
        "response_format",
        lambda: text(
            complete(
                response_format={
                    "type": "json_schema",
                    "json_schema": {"name": "weather", "schema": SCHEMA},
                }
            )
        ),
    )
    yield "ollama/", lambda: text(complete("ollama"))
    yield "embedding", lambda: litellm.embedding(f"ollama/{model}", ["a"], api_base=base).data
    if "tools" in capabilities:
        yield "tools", tools


CLIENTS = {
    "ollama": ollama_features,
    "langchain-ollama": langchain_features,
    "litellm": litellm_features,
}


def main(base: str) -> int:
    """Run every feature of every client; the exit status."""
    client = importlib.import_module("ollama").Client(host=base)
    model = client.list().models[0].model
    capabilities = client.show(model).capabilities or []
    failed = 0
    for name, features in CLIENTS.items():
        for feature, run in features(base, model, capabilities):
            try:
                result = "works" if run() else "empty answer"
            except Exception as error:
                result = f"{type(error).__name__}: {error}"
            failed += result != "works"
            print(f"{name:18}{feature:28}{result}", flush=True)  # noqa: T201
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
