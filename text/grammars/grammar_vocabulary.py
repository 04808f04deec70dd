"""The tokens of a model as llguidance reads them, with an index for all grammars."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import llguidance
import numpy as np
from typing_extensions import override

from hearthd.sampling.constraint import ConstraintFailed
from hearthd.text.grammars.key_positions import NOTATIONS
from hearthd.text.grammars.unique_keys import KeyVocabulary

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from hearthd.text.tokenizer import Tokenizer
    from hearthd.text.words import Words

NO_TOKEN = "it allows no next token"
USED_UP = "it takes too much work or memory"
_MAX_CHARACTER_BYTES = 4  # of UTF-8
_MAX_SHOWN = 200  # characters of a grammar or message in an error


class _MarkedWords(Sequence[bytes]):
    """Words and, after them, the marks of NOTATIONS. The words are not copied."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._marks = [notation.mark.encode() for notation in NOTATIONS]

    @override
    def __len__(self) -> int:
        return len(self._words) + len(self._marks)

    @override
    def __getitem__(self, index: Any) -> Any:
        more = index - len(self._words)
        return self._words[index] if more < 0 else self._marks[more]


class _MarkedTokenizer:
    """A tokenizer in the form that llguidance expects: the bytes of each id, and an encoder.

    The last ids are the marks, which are not tokens of the model.
    """

    def __init__(self, tokenizer: Tokenizer, words: Words, ends: Collection[int]) -> None:
        self.tokens = _MarkedWords(words)
        # Ids without text in an answer: those that end it, special tokens, gaps and marks.
        self.special_token_ids = [
            id_
            for id_, word in enumerate(self.tokens)
            if not word or id_ in ends or tokenizer.is_silent(id_)
        ]
        self.eos_token_id = min(ends)
        self.bos_token_id = None
        self._tokenizer = tokenizer

    def __call__(self, text: str) -> list[int]:
        """The tokens of a text inside an answer: joined, their words are the text."""
        ids = self._tokenizer.read(text, special=False, position="inside")
        if b"".join(self.tokens[id_] for id_ in ids) == text.encode():
            return list(ids)
        # The tokenizer writes this text in another way: it composes characters, for example.
        return [id_ for character in text for id_ in self._spelled(character)]

    def _spelled(self, character: str) -> list[int]:
        word = character.encode()
        if (id_ := self._short.get(word)) is not None:
            return [id_]
        return [self._short[bytes([byte])] for byte in word if bytes([byte]) in self._short]

    @functools.cached_property
    def _short(self) -> dict[bytes, int]:
        """The tokens of at most one character."""
        special = frozenset(self.special_token_ids)
        return {
            word: id_
            for id_, word in enumerate(self.tokens)
            if len(word) <= _MAX_CHARACTER_BYTES and id_ not in special
        }


@dataclass(frozen=True, kw_only=True)
class GrammarVocabulary:
    """llguidance's index of a vocabulary.

    usable  bool (V,): not the gaps, which llguidance may allow in place of a special token
    keys    the tokens that matter for the keys of objects
    """

    tokenizer: llguidance.LLTokenizer
    usable: NDArray[np.bool_]
    keys: KeyVocabulary

    def allowed(self, matcher: llguidance.LLMatcher) -> NDArray[np.bool_]:
        """The ids that a grammar allows next, bool (V,); raises ConstraintFailed."""
        bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)
        if matcher.is_error():
            raise ConstraintFailed(f"grammar: {reason(matcher.get_error())}")
        allowed = np.unpackbits(bits, count=self.usable.size, bitorder="little").view(np.bool_)
        allowed &= self.usable
        return allowed


def grammar_vocabulary(
    tokenizer: Tokenizer, size: int, ends: NDArray[np.int64]
) -> GrammarVocabulary:
    """Index a vocabulary of `size` ids, which takes one or two seconds; `ends` end an answer."""
    words = tokenizer.words.resized(size)
    marked = _MarkedTokenizer(tokenizer, words, frozenset(ends.tolist()))
    # Slices would speed up the first masks of an answer, but take twice as long to build.
    indexed = llguidance.LLTokenizer(
        llguidance.TokenizerWrapper(marked),
        n_vocab=len(marked.tokens),
        eos_token=ends.tolist(),
        slices=[],
    )
    usable = words.lengths > 0
    usable[ends] = True
    return GrammarVocabulary(
        tokenizer=indexed,
        usable=usable,
        keys=KeyVocabulary(indexed, words, ends=ends),
    )


def reason(message: str) -> str:
    """A message of llguidance on one line, shortened, without the state that it adds."""
    message = message.partition("\n<state>")[0]
    if regex := re.search(r"regex parse error:.*\nerror: ([^\n]+)", message, re.DOTALL):
        return regex[1]
    line = " ".join(message.split())
    if "NoExtensionBias" in line:
        return NO_TOKEN
    # The library names a used-up lexer only where it fails first.
    if line.startswith(("lexer error: too many", "Parser Error: token")):
        return USED_UP
    if "panic" in line:
        return "it cannot be compiled"
    return shortened(line)


def shortened(text: str) -> str:
    """A text as errors show it."""
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."
