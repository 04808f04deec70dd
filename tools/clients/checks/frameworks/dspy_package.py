"""DSPy, which speaks with a server by LiteLLM."""

from __future__ import annotations

import importlib
import json
import os
from typing import TYPE_CHECKING, Any

from tools.clients.checks.checking import (
    CHAT,
    EMBEDDINGS,
    GREETING,
    LENGTH,
    QUESTION,
    SCHEMA,
    SCHEMA_OF_CITY,
    Feature,
    main,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


def features(base: str, model: str) -> Iterator[Feature]:
    """The features of the package."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    dspy: Any = importlib.import_module("dspy")
    given = {"api_base": f"{base}/v1", "api_key": "none", "cache": False}
    language_model = dspy.LM(f"openai/{model}", max_tokens=LENGTH, **given)
    dspy.configure(lm=language_model, adapter=dspy.JSONAdapter())
    responses = dspy.LM(f"openai/{model}", model_type="responses", max_tokens=LENGTH, **given)
    embedder = dspy.Embedder(
        f"openai/{model}", caching=False, api_base=given["api_base"], api_key="none"
    )
    shape = {"type": "json_schema", "json_schema": {"name": "weather", "schema": SCHEMA_OF_CITY}}
    yield CHAT, lambda: language_model(GREETING)
    # Its JSONAdapter sends a schema only to models that its own list of models has.
    yield SCHEMA, lambda: "city" in json.loads(language_model(QUESTION, response_format=shape)[0])
    yield EMBEDDINGS, lambda: len(embedder(["a", "b"])) == len("ab")
    yield "responses", lambda: responses(GREETING)


if __name__ == "__main__":
    main(features)
