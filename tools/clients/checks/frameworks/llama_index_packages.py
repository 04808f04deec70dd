"""LlamaIndex with an OpenAI-like server and with Ollama's API."""

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


class Model:
    """A language model of LlamaIndex. Ollama's API has no tool_choice."""

    def __init__(self, language_model: Any, *, must_call: bool) -> None:
        self._llms = importlib.import_module("llama_index.core.llms")
        self._language_model = language_model
        self._must_call = must_call

    def chat(self) -> Any:
        """An answer."""
        return self._language_model.chat([self._message("user", GREETING)]).message.content

    def stream(self) -> Any:
        """A streamed answer."""
        return list(self._language_model.stream_chat([self._message("user", GREETING)]))[
            -1
        ].message.content

    def tools(self, *, stream: bool) -> None:
        """Two turns with a tool."""
        model = self._language_model
        tools = [
            importlib.import_module("llama_index.core.tools").FunctionTool.from_defaults(
                get_weather
            )
        ]
        history: list[Any] = []
        for question in (QUESTION, NEXT):
            history.append(self._message("user", question))
            asked: dict[str, Any] = {"chat_history": history, "tool_required": self._must_call}
            if stream:
                answer = list(model.stream_chat_with_tools(tools, **asked))[-1]
            else:
                answer = model.chat_with_tools(tools, **asked)
            calls = model.get_tool_calls_from_response(answer, error_on_no_tool_call=False)
            require(calls or not self._must_call, answer)
            if not calls:
                raise NoCall
            history.append(answer.message)
            for call in calls:
                given = {"tool_call_id": call.tool_id, "name": call.tool_name}
                history.append(self._message("tool", RESULT, additional_kwargs=given))
            history.append(model.chat_with_tools(tools, chat_history=history).message)

    def schema(self) -> bool:
        """An answer in the form of a pydantic model."""
        city = importlib.import_module("pydantic").create_model("Weather", city=(str, ...))
        prompts = importlib.import_module("llama_index.core.prompts")
        answer = self._language_model.structured_predict(city, prompts.PromptTemplate(QUESTION))
        return isinstance(answer, city)

    def _message(self, role: str, content: str, **fields: Any) -> Any:
        return self._llms.ChatMessage(role=role, content=content, **fields)


def _chat(model: Model, suffix: str = "") -> Iterator[Feature]:
    yield CHAT + suffix, model.chat
    yield STREAM + suffix, model.stream
    yield TOOLS + suffix, lambda: model.tools(stream=False)
    yield STREAMED_TOOLS + suffix, lambda: model.tools(stream=True)
    yield SCHEMA + suffix, model.schema


def features(base: str, model: str) -> Iterator[Feature]:
    """The features of both packages."""
    llms, embeddings = "llama_index.llms", "llama_index.embeddings"
    openai = importlib.import_module(f"{llms}.openai_like").OpenAILike(
        model=model,
        api_base=f"{base}/v1",
        api_key="none",
        is_chat_model=True,
        is_function_calling_model=True,
        max_tokens=LENGTH,
    )
    yield from _chat(Model(openai, must_call=True))
    openai_embedding = importlib.import_module(f"{embeddings}.openai_like").OpenAILikeEmbedding(
        model, api_base=f"{base}/v1", api_key="none"
    )
    yield EMBEDDINGS, lambda: openai_embedding.get_text_embedding("a")
    ollama = importlib.import_module(f"{llms}.ollama").Ollama(
        model,
        base_url=base,
        request_timeout=300,
        context_window=2048,
        additional_kwargs={"num_predict": LENGTH},
    )
    yield from _chat(Model(ollama, must_call=False), " (Ollama)")
    ollama_embedding = importlib.import_module(f"{embeddings}.ollama").OllamaEmbedding(
        model, base_url=base
    )
    yield f"{EMBEDDINGS} (Ollama)", lambda: ollama_embedding.get_text_embedding("a")


if __name__ == "__main__":
    main(features)
