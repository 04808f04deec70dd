"""Outlines: its models for OpenAI-compatible servers, vLLM, SGLang and Ollama."""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, Any

from tools.clients.checks.checking import (
    GREETING,
    LENGTH,
    QUESTION,
    Feature,
    city_model,
    columns,
    main,
    require,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_PATTERN = "[a-c]{3}"
_GRAMMAR = 'start: "a" "b"'


class Models:
    """A model of a server; `limit` ends its answers."""

    def __init__(self, model: Any, **limit: Any) -> None:
        self._model = model
        self._limit = limit

    def _ask(self, question: str, form: Any = None) -> Any:
        return self._model(question, form, **self._limit)

    def chat(self) -> Any:
        """The text of an answer."""
        return self._ask(GREETING)

    def stream(self) -> str:
        """A streamed answer."""
        return "".join(self._model.stream(GREETING, **self._limit))

    def schema(self) -> bool:
        """An answer with a schema."""
        city = city_model()
        return city.model_validate_json(self._ask(QUESTION, city)).city is not None

    def regex(self, form: Any) -> None:
        """An answer that matches a regular expression."""
        answer = self._ask(QUESTION, form)
        require(re.fullmatch(_PATTERN, answer), answer)

    def grammar(self, form: Any) -> None:
        """An answer that a grammar in Lark's form allows."""
        answer = self._ask(QUESTION, form)
        require(answer == "ab", answer)


def features(base: str, model: str) -> Iterator[Feature]:
    """The features of the package."""
    package: Any = importlib.import_module("outlines")
    client = importlib.import_module("openai").OpenAI(base_url=f"{base}/v1", api_key="none")
    limit = {"max_tokens": LENGTH}
    vllm = Models(package.from_vllm(client, model), **limit)
    sglang = Models(package.from_sglang(client, model), **limit)
    ollama = importlib.import_module("ollama").Client(host=base)
    yield from columns(Models(package.from_openai(client, model), **limit))
    yield from columns(vllm, " (vLLM)")
    yield from columns(sglang, " (SGLang)")
    options = {"num_predict": LENGTH}
    yield from columns(Models(package.from_ollama(ollama, model), options=options), " (Ollama)")
    form = package.regex(_PATTERN)
    yield "regex (vLLM)", lambda: vllm.regex(form)
    yield "regex (SGLang)", lambda: sglang.regex(form)
    yield "grammar (vLLM)", lambda: vllm.grammar(package.cfg(_GRAMMAR))


if __name__ == "__main__":
    main(features)
