"""Answers of random tokens that follow a grammar, by the real sampler and tokenizer."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.sampling.options import SamplingOptions
from hearthd.sampling.sampler import Sampler
from hearthd.text.grammars.answer_constraint import AnswerConstraint, Constraints
from hearthd.text.grammars.call_grammar import CallGrammars
from hearthd.text.grammars.grammar import Grammar, GrammarType
from hearthd.text.tokenizer import Tokenizer
from tests.server.fakes import BOS, EOS, byte_level, gemma_like

if TYPE_CHECKING:
    from hearthd.sampling.constraint import Constraint
    from hearthd.text.grammars.grammar import Rules
    from hearthd.text.tool_calls.tools import ToolUse

UNCHOSEN = SamplingOptions(temperature=1, top_k=0, top_p=1, min_p=0)
# Two ids more than the tokenizer has, as models have them that pad their vocabulary.
PADDING = 2


class World:
    """A tokenizer and grammars compiled for it."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = Tokenizer(tokenizer, bos=BOS)
        self.size = tokenizer.get_vocab_size() + PADDING
        # The second one is a word like any other in the tokenizer's eyes.
        self.ends = (EOS, tokenizer.get_vocab_size() - 1)
        self.constraints = Constraints(self.tokenizer, vocab_size=self.size, ends=self.ends)
        self.grammars = self.constraints.grammars

    def constraint(self, tools: ToolUse, answer: Grammar | None) -> AnswerConstraint:
        """The constraint of an answer that may be calls, or match `answer`."""
        grammars = CallGrammars(self.grammars, self.tokenizer)
        return self.constraints.constraint(grammars.rules(tools, answer))

    def answer(
        self, grammar_type: GrammarType, value: str, seed: int, *, nudge: str = '"}],0'
    ) -> str:
        """Sample random tokens until the rules allow an end token and one is sampled.

        The tokens of `nudge` and the end tokens get higher logits, so that the answer stays short.
        """
        rules = self.grammars.rules(Grammar(grammar_type, value))
        answer = self.follow(rules, seed, nudge=nudge)
        assert not any(self.tokenizer.is_silent(token) for token in answer)
        return self.tokenizer.decode(answer)

    def follow(self, rules: Constraint, seed: int, *, nudge: str = '"}],0') -> list[int]:
        """As `answer`, for a constraint; the tokens."""
        sampler = Sampler(UNCHOSEN, seed=seed, tokens=array("q"), ends=self.ends, constraint=rules)
        random, tokens = np.random.default_rng(seed), []
        for _ in range(3000):
            logits = random.standard_normal(self.size).astype(np.float32) * 3
            logits[[*self.ends, *self.tokenizer.read(nudge)]] += 3
            sample = sampler.sample(logits)
            if sample.token in self.ends:
                break
            tokens.append(sample.token)
            if sample.last:
                break
        else:
            raise AssertionError(f"no end: {self.tokenizer.decode(tokens)!r}")
        return tokens


WORLDS = {"gemma": World(gemma_like()), "bytes": World(byte_level())}


def accepts(
    grammar_type: GrammarType, value: str, text: str, *, world: World = WORLDS["gemma"]
) -> bool:
    """Whether a text is a whole answer that the grammar allows."""
    rules = world.grammars.rules(Grammar(grammar_type, value))
    for token in world.tokenizer.read(text, special=False):
        if not rules.allowed()[token]:
            return False
        rules.accept(token)
    return bool(rules.allowed()[list(world.ends)].any())


def spelled(rules: Rules, world: World, text: str) -> list[bool]:
    finished = []
    for token in world.tokenizer.read(text, special=False):
        rules.accept(token)
        finished.append(rules.finished)
    return finished
