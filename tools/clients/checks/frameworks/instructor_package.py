"""Instructor: pydantic models in each mode that OpenAI's API has."""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any

from tools.clients.checks.checking import LENGTH, MESSAGES, SCHEMA, Feature, main

if TYPE_CHECKING:
    from collections.abc import Iterator

_MODES = ("TOOLS", "TOOLS_STRICT", "JSON_SCHEMA", "RESPONSES_TOOLS")


def features(base: str, model: str) -> Iterator[Feature]:
    """The modes of the package."""
    package: Any = importlib.import_module("instructor")
    openai = importlib.import_module("openai").OpenAI(base_url=f"{base}/v1", api_key="none")
    pydantic = importlib.import_module("pydantic")
    city = pydantic.create_model("Weather", city=(str, pydantic.Field(max_length=20)))

    def create(mode: str) -> Any:
        client = package.from_openai(openai, mode=package.Mode[mode])
        is_response = mode.startswith("RESPONSES")
        limit = {"max_output_tokens" if is_response else "max_tokens": LENGTH}
        return client.chat.completions.create(
            model=model, messages=MESSAGES, response_model=city, max_retries=0, **limit
        )

    def partial() -> Any:
        client = package.from_openai(openai, mode=package.Mode.TOOLS)
        parts = client.chat.completions.create_partial(
            model=model, messages=MESSAGES, response_model=city, max_tokens=LENGTH
        )
        return list(parts)[-1].city is not None

    yield SCHEMA, lambda: create("JSON_SCHEMA")
    for mode in _MODES:
        yield f"mode {mode}", functools.partial(create, mode)
    yield "create_partial", partial


if __name__ == "__main__":
    main(features)
