"""What the two sides read: texts, and answers to prompts.

A text is read as it is, and every place in it counts but the first. An answer is side A's own,
greedy; only the places in the answer count. Knows files and token ids, and runs no model.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from baker.compare.sides.recording import Recording
    from baker.compare.sides.side_tokens import Vocabulary

# Tokens of each answer.
STEPS = 64
_TEXTS = Path(__file__).with_name("texts")
_PROMPTS = Path(__file__).with_name("prompts.json")


class UnreadableText(Exception):
    """A file of text cannot be read; the message names it."""


@dataclass(frozen=True, kw_only=True)
class Passage:
    """Tokens that both sides read; the places from `start` on count. `start` is at least 1."""

    name: str
    kind: Literal["text", "answer"]
    token_ids: tuple[int, ...]
    start: int

    @property
    def places(self) -> int:
        """How many places count."""
        return len(self.token_ids) - self.start


def shipped_texts() -> dict[str, str]:
    """Two texts by name, prose and code, of about 1200 tokens each."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(_TEXTS.glob("*.txt"))}


def default_prompts() -> dict[str, str]:
    """Ten prompts by name, stories, code, tables, three languages, up to 1355 Gemma tokens."""
    prompts: dict[str, str] = json.loads(_PROMPTS.read_text(encoding="utf-8"))
    return prompts


def read_texts(files: Iterable[Path]) -> dict[str, str]:
    """Texts by the names of their files; raises UnreadableText."""
    texts: dict[str, str] = {}
    for file in files:
        try:
            texts[file.name] = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UnreadableText(f"{file} cannot be read as UTF-8 text: {error}") from error
    return texts


def text_passage(name: str, text: str, vocabulary: Vocabulary, most: int | None) -> Passage:
    """A text of which at most `most` tokens are read; raises UnreadableText if it has too few."""
    token_ids = vocabulary.tokenize(text)[:most]
    if len(token_ids) < 2:
        raise UnreadableText(f"{name} has {len(token_ids)} tokens, wanted two at least")
    return Passage(name=name, kind="text", token_ids=token_ids, start=1)


def answer_passage(
    prompt: str, prompt_ids: tuple[int, ...], answer_ids: tuple[int, ...]
) -> Passage:
    """The answer to the prompt of that name."""
    return Passage(
        name=f"answer: {prompt}",
        kind="answer",
        token_ids=(*prompt_ids, *answer_ids),
        start=len(prompt_ids),
    )


def recorded_passages(recording: Recording) -> tuple[Passage, ...]:
    """The answers of a recording."""
    return tuple(
        answer_passage(case.name, case.prompt_ids, case.greedy_ids) for case in recording.cases
    )
