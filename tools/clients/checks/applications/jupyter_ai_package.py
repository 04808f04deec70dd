"""Jupyter AI's magic commands, which speak with a server by LiteLLM."""

from __future__ import annotations

import functools
import importlib
import os
from typing import TYPE_CHECKING, Any

from tools.clients.checks.checking import CHAT, GREETING, Feature, main

if TYPE_CHECKING:
    from collections.abc import Iterator


def _notebook() -> Any:
    """A shell with the commands."""
    os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENAI_API_KEY": "none"}
    shell: Any = importlib.import_module(
        "IPython.core.interactiveshell"
    ).InteractiveShell.instance()
    shell.run_line_magic("load_ext", "jupyter_ai_magic_commands")
    return shell


def _ask(shell: Any, name: str, model: str, address: str) -> Any:
    """The text of an answer. Only a model with an alias may be one that LiteLLM does not know."""
    shell.run_line_magic("ai", f"alias {name} {model} --api-base {address}")
    return shell.run_cell_magic("ai", name, GREETING).data


def features(base: str, model: str) -> Iterator[Feature]:
    """The features of the package."""
    ask = functools.partial(_ask, _notebook())
    yield CHAT, lambda: ask("a", f"openai/{model}", f"{base}/v1 --api-key-name OPENAI_API_KEY")
    yield f"{CHAT} (Ollama)", lambda: ask("b", f"ollama_chat/{model}", base)


if __name__ == "__main__":
    main(features)
