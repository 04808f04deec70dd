"""Pydantic AI's models of OpenAI's, Anthropic's and Ollama's servers."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tools.clients.checks.checking import (
    CHAT,
    GREETING,
    LENGTH,
    NEXT,
    QUESTION,
    SCHEMA,
    STREAM,
    TOOLS,
    Feature,
    main,
    require,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


class Agents:
    """Agents of one model."""

    def __init__(self, model: Any) -> None:
        self._package: Any = importlib.import_module("pydantic_ai")
        self._model = model
        self._city = importlib.import_module("pydantic").create_model("Weather", city=(str, ...))

    def agent(self, **fields: Any) -> Any:
        """An agent."""
        return self._package.Agent(self._model, model_settings={"max_tokens": LENGTH}, **fields)

    async def run(self) -> Any:
        """An answer."""
        return (await self.agent().run(GREETING)).output

    async def stream(self) -> Any:
        """A streamed answer."""
        async with self.agent().run_stream(GREETING) as answer:
            return [part async for part in answer.stream_text(delta=True)]

    async def native_output(self) -> bool:
        """An answer with a schema."""
        output = self._package.NativeOutput(self._city)
        answer = await self.agent(output_type=output).run(QUESTION)
        return isinstance(answer.output, self._city)

    async def turns(self) -> None:
        """Two turns that end with the call of a tool, which the package requires."""
        agent = self.agent(output_type=self._package.ToolOutput(self._city))
        history: Any = None
        for question in (QUESTION, NEXT):
            answer = await agent.run(question, message_history=history)
            require(isinstance(answer.output, self._city), answer)
            history = answer.all_messages()


def _models(base: str, model: str) -> Iterator[tuple[str, Any]]:
    """The models, each with the suffix of its features."""
    models, providers = "pydantic_ai.models", "pydantic_ai.providers"
    openai = importlib.import_module(f"{models}.openai")
    provider = importlib.import_module(f"{providers}.openai").OpenAIProvider(
        base_url=f"{base}/v1", api_key="none"
    )
    yield "", openai.OpenAIChatModel(model, provider=provider)
    yield " (responses)", openai.OpenAIResponsesModel(model, provider=provider)
    anthropic = importlib.import_module(f"{providers}.anthropic").AnthropicProvider(
        base_url=base, api_key="none"
    )
    yield (
        " (Anthropic)",
        importlib.import_module(f"{models}.anthropic").AnthropicModel(model, provider=anthropic),
    )
    ollama = importlib.import_module(f"{providers}.ollama").OllamaProvider(base_url=f"{base}/v1")
    yield " (Ollama)", openai.OpenAIChatModel(model, provider=ollama)


def features(base: str, model: str) -> Iterator[Feature]:
    """The features of each model."""
    for suffix, each in _models(base, model):
        agents = Agents(each)
        yield CHAT + suffix, agents.run
        yield STREAM + suffix, agents.stream
        yield TOOLS + suffix, agents.turns
        if "Anthropic" not in suffix:  # the package knows which of Anthropic's models have schemas
            yield SCHEMA + suffix, agents.native_output


if __name__ == "__main__":
    main(features)
