"""Reasoning: the text between two tags at the beginning of an answer.

Qwen 3, DeepSeek R1, SmolLM3, Phi 4 reasoning   <think>...</think>
Magistral                                       [THINK]...[/THINK]
Seed OSS                                        <seed:think>...</seed:think>
Command R7B                                     <|START_THINKING|>...<|END_THINKING|>
Gemma 4                                         <|channel>thought...<channel|>
"""

from __future__ import annotations

from dataclasses import dataclass

from hearthd.text.text_overlap import overlap


@dataclass(frozen=True, kw_only=True)
class ReasoningTags:
    """The texts around a model's reasoning. They may be names of special tokens."""

    start: str
    end: str


TAGS = (
    ReasoningTags(start="<think>", end="</think>"),
    ReasoningTags(start="[THINK]", end="[/THINK]"),
    ReasoningTags(start="<seed:think>", end="</seed:think>"),
    ReasoningTags(start="<|START_THINKING|>", end="<|END_THINKING|>"),
    ReasoningTags(start="<|channel>thought", end="<channel|>"),
)


def reasoning_tags(template: str) -> ReasoningTags | None:
    """The tags that a chat template names, or None."""
    return next((tags for tags in TAGS if tags.end in template), None)


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


class ReasoningFilter:
    """Separate the reasoning from the text of an answer, without white space around either.

    Without a `reasoning`, or if it is not to be split, everything is text.
    """

    def __init__(self, reasoning: Reasoning | None) -> None:
        split = reasoning if reasoning and reasoning.split else None
        self._tags = split.tags if split else None
        self._held = ""
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
