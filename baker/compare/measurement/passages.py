"""The passages that both sides read: texts, and answers to prompts.

In a text, every position except the first is compared. An answer is the greedy answer of side A to
a prompt; only the positions of the answer are compared.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hearthd.bundle.parsing.text_files import read_text, reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hearthd.baker.compare.sides.recording import Recording
    from hearthd.baker.compare.sides.vocabulary import Vocabulary

# Tokens per answer.
STEPS = 64
_TEXTS = Path(__file__).with_name("texts")
_PROMPTS = Path(__file__).with_name("prompts.json")


class UnreadableText(Exception):
    """A text file cannot be read; the message names it."""


@dataclass(frozen=True, kw_only=True)
class Passage:
    """Tokens that both sides read; positions from `start` on are compared, `start` >= 1."""

    name: str
    passage_type: Literal["text", "answer"]
    token_ids: tuple[int, ...]
    start: int

    @property
    def compared_positions(self) -> int:
        """The number of compared positions."""
        return len(self.token_ids) - self.start


def shipped_texts() -> dict[str, str]:
    """Two texts by name, prose and code, about 1200 tokens each."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(_TEXTS.glob("*.txt"))}


def default_prompts() -> dict[str, str]:
    """Ten prompts by name: stories, code, tables, three languages; at most 1355 Gemma tokens."""
    prompts: dict[str, str] = json.loads(_PROMPTS.read_text(encoding="utf-8"))
    return prompts


def read_texts(files: Iterable[Path]) -> dict[str, str]:
    """Read texts; returns them by file name. Raises UnreadableText."""
    texts: dict[str, str] = {}
    for file in files:
        try:
            texts[file.name] = read_text(file)
        except (OSError, ValueError) as error:
            raise UnreadableText(f"{file} cannot be read as UTF-8 text: {reason(error)}") from error
    return texts


def text_passage(name: str, text: str, vocabulary: Vocabulary, max_tokens: int | None) -> Passage:
    """The first `max_tokens` tokens of a text; raises UnreadableText for less than two."""
    token_ids = vocabulary.tokenize(text)[:max_tokens]
    if len(token_ids) < 2:
        raise UnreadableText(f"{name} has {len(token_ids)} tokens, expected at least 2")
    return Passage(name=name, passage_type="text", token_ids=token_ids, start=1)


def answer_passage(
    prompt: str, prompt_ids: tuple[int, ...], answer_ids: tuple[int, ...]
) -> Passage:
    """The answer to the prompt with the name `prompt`."""
    return Passage(
        name=f"answer: {prompt}",
        passage_type="answer",
        token_ids=(*prompt_ids, *answer_ids),
        start=len(prompt_ids),
    )


def recorded_passages(recording: Recording) -> tuple[Passage, ...]:
    """The answers of a recording."""
    return tuple(
        answer_passage(case.name, case.prompt_ids, case.greedy_ids) for case in recording.cases
    )
