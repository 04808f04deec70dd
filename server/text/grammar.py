"""The rules that a request gives for its answer: JSON, a schema, a regex, a grammar, a choice.

llguidance says which tokens keep an answer within its grammar. What it does not support is refused
by name; it is never left out. It knows a tokenizer and no engine: a `Rules` is the sampler's
Constraint.
"""

from __future__ import annotations

import functools
import json
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import llguidance
import numpy as np

from server.errors import InvalidRequest
from server.sampling.constraint import ConstraintFailed

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from server.text.tokenizer import Tokenizer

Kind = Literal["json_object", "json_schema", "regex", "lark", "choice"]

_BYTES = 2**16  # of a grammar's text
_COMPILED = 32  # grammars that are kept
_SHOWN = 200  # characters of what the library says
# llama.cpp's (common/json-schema-to-grammar.cpp): without a limit a small model never ends a line.
_SPACE = r"( |\n{1,2}[ \t]{0,20})?"


@dataclass(frozen=True)
class Grammar:
    """`value` is the text of a schema (as JSON), regex or Lark grammar, or the choices as JSON.

    json_object has none: "". `field` is where it came from, for errors.
    """

    kind: Kind
    value: str = ""
    field: str = field(default="grammar", compare=False)


class Rules:
    """How far one answer has come in its grammar."""

    def __init__(self, matcher: llguidance.LLMatcher, ends: NDArray[np.int64], size: int) -> None:
        self._matcher = matcher
        self._ends = ends
        self._size = size
        self.finished = False
        self._allowed = self._next()

    def allowed(self) -> NDArray[np.bool_]:
        """As Constraint.allowed."""
        return self._allowed

    def accept(self, token: int) -> None:
        """As Constraint.accept."""
        self._matcher.consume_token(token)
        self._allowed = self._next()

    def _next(self) -> NDArray[np.bool_]:
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        if self._matcher.is_error():
            raise ConstraintFailed(f"the grammar failed: {_reason(self._matcher.get_error())}")
        allowed = np.unpackbits(bits, count=self._size, bitorder="little").view(np.bool_)
        more = np.count_nonzero(allowed) > np.count_nonzero(allowed[self._ends])
        self.finished = not more and self._matcher.is_accepting()
        if not more and not self.finished:
            raise ConstraintFailed("the grammar has come to a point where no token is allowed")
        return allowed


class Grammars:
    """Compiles grammars for a model with `vocab_size` ids, of which `ends` end an answer.

    The first grammar takes a second or two more: the library then learns the vocabulary.
    """

    def __init__(self, tokenizer: Tokenizer, *, vocab_size: int, ends: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._ends = np.array(sorted(ends), np.int64)
        self._lock = threading.Lock()
        self._vocabulary: llguidance.LLTokenizer | None = None
        self._compiled = functools.lru_cache(maxsize=_COMPILED)(self._compile)

    def rules(self, grammar: Grammar) -> Rules:
        """The beginning of an answer; for any thread. Raises InvalidRequest."""
        size = len(grammar.value.encode())
        if size > _BYTES:
            raise _refused(grammar, f"at most {_BYTES} bytes", got=f"{size} bytes")
        if not self._ends.size:
            raise _refused(grammar, "no grammar: this model has no token that ends an answer")
        try:
            rules = Rules(self._compiled(grammar).deep_copy(), self._ends, self._vocab_size)
        except (ValueError, ConstraintFailed) as error:
            wanted = f"a grammar that can be followed ({_reason(str(error))})"
            raise _refused(grammar, wanted) from error
        if rules.finished:
            raise _refused(grammar, "a grammar with more than the empty text")
        return rules

    def _compile(self, grammar: Grammar) -> llguidance.LLMatcher:
        """The grammar at its beginning; raises ValueError."""
        with self._lock:
            if self._vocabulary is None:
                self._vocabulary = _vocabulary(self._tokenizer, self._vocab_size, self._ends)
        # The state of the parser is of no use to who sent the grammar.
        limits = llguidance.LLParserLimits(verbose_errors=False)
        matcher = llguidance.LLMatcher(self._vocabulary, _text(grammar), log_level=0, limits=limits)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return matcher


class _Words:
    """A tokenizer in the form that llguidance wants: what each id is in bytes, and how to read."""

    def __init__(self, tokenizer: Tokenizer, size: int, ends: Collection[int]) -> None:
        words = tokenizer.words[:size]
        self.tokens = [*words, *([b""] * (size - len(words)))]
        # These are no text in an answer: neither what ends it, special or not, nor gaps.
        self.special_token_ids = [
            id_
            for id_, word in enumerate(self.tokens)
            if not word or id_ in ends or tokenizer.is_silent(id_)
        ]
        self.eos_token_id = min(ends)
        self.bos_token_id = None
        self._tokenizer = tokenizer

    def __call__(self, text: str) -> list[int]:
        return list(self._tokenizer.read(text, special=False))


def _vocabulary(tokenizer: Tokenizer, size: int, ends: NDArray[np.int64]) -> llguidance.LLTokenizer:
    words = _Words(tokenizer, size, frozenset(ends.tolist()))
    # Slices would make the first masks of an answer faster, and take twice as long to make.
    return llguidance.LLTokenizer(
        llguidance.TokenizerWrapper(words), n_vocab=size, eos_token=ends.tolist(), slices=[]
    )


def _text(grammar: Grammar) -> str:
    """The grammar in llguidance's language; raises ValueError."""
    make = llguidance.LLMatcher
    match grammar.kind:
        case "json_object":
            return _from_schema('{"type": "object"}')
        case "json_schema":
            return _from_schema(grammar.value)
        case "regex":
            return make.grammar_from_regex(grammar.value)
        case "choice":
            # Lark writes a text as JSON does; characters that it cannot read are escaped here.
            choices = " | ".join(map(json.dumps, json.loads(grammar.value)))
            return make.grammar_from_lark(f"start: {choices}")
        case "lark":
            if "x-guidance" in grammar.value:
                raise ValueError("x-guidance could turn checks off and is not allowed")
            return make.grammar_from_lark(grammar.value)


def _from_schema(schema: str) -> str:
    # Overrides count more than what a schema says of itself under "x-guidance".
    return llguidance.LLMatcher.grammar_from_json_schema(
        schema,
        overrides={"lenient": False, "coerce_one_of": False, "whitespace_pattern": _SPACE},
    )


def _refused(grammar: Grammar, wanted: str, *, got: str | None = None) -> InvalidRequest:
    got = grammar.value if got is None else got
    return InvalidRequest(
        field=grammar.field,
        got=got if len(got) <= _SHOWN else got[:_SHOWN] + "...",
        expected=wanted,
    )


def _reason(message: str) -> str:
    """What the library says, as one line that is not too long."""
    line = " ".join(message.split())
    return line if len(line) <= _SHOWN else line[:_SHOWN] + "..."
