"""Reasoning: the text between two tags at the beginning of an answer, or messages of their own.

Qwen 3, DeepSeek R1, SmolLM3, Phi 4 reasoning   <think>...</think>
Magistral                                       [THINK]...[/THINK]
Seed OSS                                        <seed:think>...</seed:think>
Command R7B                                     <|START_THINKING|>...<|END_THINKING|>
Gemma 4                                         <|channel>thought...<channel|>
gpt-oss                                         <|channel|>analysis<|message|>...<|end|>

An answer of gpt-oss consists of messages; the reasoning is one ("OpenAI Harmony Response
Format", 2025).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.text.text_overlap import overlap

if TYPE_CHECKING:
    from collections.abc import Callable

_SPECIAL = re.compile(r"(<\|\w+\|>)")


@dataclass(frozen=True, kw_only=True)
class ReasoningTags:
    """The texts around a model's reasoning. They may be or contain names of special tokens.

    opening  what begins each message of an answer, and ends its prompt; empty if an answer is not
             divided into messages
    headers  headers of messages that are text, which follow the opening: first the answer's
    """

    start: str
    end: str
    opening: str = ""
    headers: tuple[str, ...] = ()

    @property
    def special(self) -> tuple[str, ...]:
        """The names of special tokens that the answer's text must have."""
        if not self.opening:
            return (self.start, self.end)
        texts = (self.opening, self.start, self.end, *self.headers)
        return tuple(name for text in texts for name in _SPECIAL.findall(text))

    @property
    def closing(self) -> str:
        """The text that ends the reasoning where its budget is spent."""
        if not self.opening:
            return f"\n{self.end}\n\n"
        return f"{self.end}{self.opening}{self.headers[0]}"


TAGS = (
    ReasoningTags(start="<think>", end="</think>"),
    ReasoningTags(start="[THINK]", end="[/THINK]"),
    ReasoningTags(start="<seed:think>", end="</seed:think>"),
    ReasoningTags(start="<|START_THINKING|>", end="<|END_THINKING|>"),
    ReasoningTags(start="<|channel>thought", end="<channel|>"),
    ReasoningTags(
        start="<|channel|>analysis<|message|>",
        end="<|end|>",
        opening="<|start|>assistant",
        headers=("<|channel|>final<|message|>", "<|channel|>commentary<|message|>"),
    ),
)


def quoted(text: str, quote: Callable[[str], str]) -> str:
    """The terminals of a text in which names of special tokens may be."""
    return " ".join(quote(part) for part in _SPECIAL.split(text) if part)


def reasoning_tags(template: str) -> ReasoningTags | None:
    """The tags that a chat template names, or None."""
    signs = ((tags, tags.start if tags.opening else tags.end) for tags in TAGS)
    return next((tags for tags, sign in signs if sign in template), None)


@dataclass(frozen=True, kw_only=True)
class Reasoning:
    """The reasoning of an answer.

    begun    whether the prompt ends inside the reasoning
    possible  whether the answer may begin with reasoning, if the prompt does not
    budget   number of tokens after which the reasoning is ended; None sets no limit
    split    whether the reasoning is separated from the text
    """

    tags: ReasoningTags
    begun: bool
    possible: bool = True
    budget: int | None = None
    split: bool = True

    @property
    def opening(self) -> str:
        """The opening of a message that the prompt ends with; empty if it does not."""
        return self.tags.opening if self.possible and not self.begun else ""


class ReasoningFilter:
    """Separate the reasoning from the text of an answer, without white space around either.

    If an answer consists of messages, their openings and headers are removed, except for
    calls. Without a `reasoning`, or if it is not to be split, everything is text; `omitted` is then
    the opening of a message that the prompt ends with.
    """

    def __init__(self, reasoning: Reasoning | None) -> None:
        split = reasoning if reasoning and reasoning.split else None
        self._tags = split.tags if split else None
        self._held = split.opening if split else ""
        self.omitted = reasoning.opening if reasoning and not split else ""
        self.inside = split is not None and split.begun
        self._possible = split is not None and (split.begun or split.possible)
        self._trim = self.inside  # white space at the beginning of what comes is dropped

    def push(self, text: str) -> tuple[str, str]:
        """Add text; return the reasoning and the text that are final now."""
        return self._read(text, final=False)

    def flush(self) -> tuple[str, str]:
        """The reasoning and the text that were held back."""
        return self._read("", final=True)

    def _read(self, text: str, *, final: bool) -> tuple[str, str]:
        if self._tags is None:
            return "", text
        self._held += text
        if self._tags.opening:
            return self._read_messages(self._tags, final=final)
        reasoning = ""
        if self._possible and not self.inside:
            self._begin(self._tags, final=final)
        if self.inside:
            reasoning = self._inside(self._tags, final=final)
        if self._possible:
            return reasoning, ""
        if self._trim:
            self._held = self._held.lstrip()
            self._trim = not self._held and not final
        text, self._held = self._held, ""
        return reasoning, text

    def _begin(self, tags: ReasoningTags, *, final: bool) -> None:
        """Find out whether the answer begins with reasoning."""
        start, text = tags.start, self._held.lstrip()
        if text.startswith(start):
            self._held, self.inside, self._trim = text[len(start) :], True, True
        elif final or not start.startswith(text):
            self._possible = False

    def _inside(self, tags: ReasoningTags, *, final: bool) -> str:
        """Remove and return the reasoning that is final."""
        if self._trim:
            self._held = self._held.lstrip()
        text, end, rest = self._held.partition(tags.end)
        self._trim = self._trim and not text
        if end or final:
            self._held, self.inside, self._possible, self._trim = rest, False, False, True
            return text.rstrip()
        kept = len(text) - overlap(text, [tags.end])
        kept = len(text[:kept].rstrip())
        self._held = text[kept:]
        return text[:kept]

    def _read_messages(self, tags: ReasoningTags, *, final: bool) -> tuple[str, str]:
        """Remove the reasoning and the text that are final from the held messages; returns both."""
        begins = {tags.opening + tags.start: True}
        begins |= {tags.opening + header: False for header in tags.headers}
        passed = {True: "", False: ""}  # the reasoning, and the text
        while True:
            marks = [tags.end] if self.inside else [*begins, tags.end]
            found = [(at, mark) for mark in marks if (at := self._held.find(mark)) >= 0]
            if not found:
                break
            at, mark = min(found)
            passed[self.inside] += self._held[:at]
            self._held = self._held[at + len(mark) :]
            self.inside = begins.get(mark, False)
        end = len(self._held) - overlap(self._held, marks)
        # The beginning of a message that was cut off is not text.
        rest = "" if final and _SPECIAL.match(self._held, end) else self._held[end:]
        passed[self.inside] += self._held[:end] + (rest if final else "")
        self._held = "" if final else rest
        return passed[True], passed[False]
