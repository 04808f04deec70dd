"""The package `llm`: models of its plugin for OpenAI's API, in `extra-openai-models.yaml`."""

from __future__ import annotations

import importlib
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.clients.checks.agent import CITY, prompt_of
from tools.clients.checks.checking import (
    GREETING,
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


class Models:
    """A model of a server, by chat completions or responses."""

    def __init__(self, name: str) -> None:
        self._model: Any = importlib.import_module("llm").get_model(name)

    def chat(self) -> Any:
        """The text of an answer."""
        return self._model.prompt(GREETING, key="none", stream=False).text()

    def stream(self) -> Any:
        """A streamed answer."""
        return "".join(self._model.prompt(GREETING, key="none"))

    def tools(self, *, stream: bool = False) -> None:
        """Two turns; the first one calls a tool."""
        conversation = self._model.conversation(tools=[get_weather])
        for question in (prompt_of((TOOL["name"], CITY)), NEXT):
            answer = conversation.chain(question, key="none", stream=stream).text()
            require(get_weather(**CITY) in answer, answer)

    def streamed_tools(self) -> None:
        """The turns in streams."""
        self.tools(stream=True)

    def schema(self) -> bool:
        """An answer with a schema."""
        answer = self._model.prompt(QUESTION, key="none", schema=SCHEMA_OF_CITY, stream=False)
        return "city" in json.loads(answer.text())


def features(base: str, model: str) -> Iterator[Feature]:
    """The features of the package."""
    common = {
        "model_name": model,
        "api_base": f"{base}/v1",
        "supports_tools": True,
        "supports_schema": True,
    }
    models = [
        {"model_id": "chat", **common},
        {"model_id": "responses", "responses": True, **common},
    ]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LLM_USER_PATH"] = folder
        file = Path(folder, "extra-openai-models.yaml")
        file.write_text(json.dumps(models), encoding="utf-8")  # JSON is YAML
        yield from columns(Models("chat"))
        yield from columns(Models("responses"), " (responses)")


if __name__ == "__main__":
    main(features)
