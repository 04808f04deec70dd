"""Constrain an answer to JSON, a JSON Schema, a regex, a grammar or a list of choices.

llguidance determines the tokens that keep an answer within its grammar. A feature that it does not
support is rejected by name, never ignored. `Rules` implements the sampler's Constraint.
"""

from __future__ import annotations

import functools
import json
import re
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import llguidance
import numpy as np
from typing_extensions import override

from hearthd.sampling.constraint import Constraint, ConstraintFailed
from hearthd.text.errors import InvalidRequest
from hearthd.text.grammars.gbnf import gbnf_to_lark, is_gbnf
from hearthd.text.grammars.key_positions import NOTATIONS
from hearthd.text.grammars.schema_dialect import (
    InexactSchema,
    translated_schema,
    with_translated_schemas,
)
from hearthd.text.grammars.schema_rewrites import rewritten
from hearthd.text.grammars.unique_keys import KeyVocabulary, UniqueKeys

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from numpy.typing import NDArray

    from hearthd.text.tokenizer import Tokenizer
    from hearthd.text.words import Words

# A partial_schema is a JSON Schema whose unsupported keywords are ignored; calls are a grammar in
# llguidance's own format.
GrammarType = Literal[
    "json_object", "json_schema", "partial_schema", "regex", "lark", "choice", "calls"
]
_JSON_TYPES = frozenset(("json_object", "json_schema", "partial_schema"))

_MAX_BYTES = 2**16  # of a grammar's text
_MAX_CALLS_BYTES = 2**19
_CACHED_GRAMMARS = 8
# Work of llguidance before the first token, which bounds the memory of a compiled grammar: 28 MB.
# Its default is five times this. A schema of 500 texts with formats takes more than half.
_LEXER_FUEL = 200_000
# Messages of llguidance about a grammar that takes too much work or memory.
_LIMITS = ("grammar) too big", "too many expressions")
_SMALLER = (
    "a smaller grammar: write fewer keys with a format or pattern, and smaller counts in nested "
    "repetitions such as (a{1000}){1000}"
)
_NO_TOKEN = "it allows no next token"
# Other answers wait for the rules of one. Ambiguous grammars take longer with each token; others
# take 1 to 20 ms, and a slow device some times as long.
_FAST_SECONDS, _MAX_SLOW_SECONDS = 0.05, 1.0  # of a core: of a token, and of all beyond that
_SLOW = "it is ambiguous, and its rules take too long; write it so that a text has one derivation"
_MAX_CHARACTER_BYTES = 4  # of UTF-8
_MAX_SHOWN = 200  # characters of a grammar or message in an error
# As in llama.cpp (common/json-schema-to-grammar.cpp): without a limit, small models write white
# space without end.
_SPACE = r"( |\n{1,2}[ \t]{0,20})?"


@dataclass(frozen=True)
class Grammar:
    """A grammar as the client wrote it.

    value  a schema as JSON, a regex, a Lark grammar, or choices as JSON; empty for json_object
    field  name of the request's field, for errors
    """

    type: GrammarType
    value: str = ""
    field: str = field(default="grammar", compare=False)

    @property
    def json(self) -> bool:
        """Whether the whole text is JSON."""
        return self.type in _JSON_TYPES


class Rules(Constraint):
    """The state of one answer in its grammar: a Constraint of the sampler."""

    finished = False

    def __init__(
        self,
        matcher: llguidance.LLMatcher,
        vocabulary: _Vocabulary,
        ends: NDArray[np.int64],
        *,
        json: bool,
    ) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._ends = ends
        self._keys = UniqueKeys(vocabulary.keys, vocabulary.allowed, matcher, json=json)
        self._slow_seconds = 0.0
        self._allowed = self._next()

    @override
    def allowed(self) -> NDArray[np.bool_]:
        return self._allowed

    @override
    def accept(self, token: int) -> None:
        began = time.thread_time()
        self._read(token)
        self._allowed = self._next()
        self._slow_seconds += max(0.0, time.thread_time() - began - _FAST_SECONDS)
        if self._slow_seconds > _MAX_SLOW_SECONDS:
            raise ConstraintFailed(f"grammar: {_SLOW}")

    def feed(self, text: bytes, tokens: Sequence[int]) -> bool:
        """Take bytes and then tokens; return whether the grammar allows them.

        If it does not, the state is unchanged. Raises ConstraintFailed.
        """
        following = [*self._vocabulary.keys.spelled(text), *tokens]
        if self._matcher.validate_tokens(following) < len(following):
            return False
        for token in following:
            self._read(token)
        self._allowed = self._next()
        return True

    def _read(self, token: int) -> None:
        self._keys.accept(token, self._matcher)
        self._matcher.consume_token(token)

    def _next(self) -> NDArray[np.bool_]:
        allowed = self._vocabulary.allowed(self._matcher)
        self._keys.restrict(allowed)
        more = np.count_nonzero(allowed) > np.count_nonzero(allowed[self._ends])
        self.finished = not more and self._matcher.is_accepting()
        if not more and not self.finished:
            raise ConstraintFailed(f"grammar: {_NO_TOKEN}")
        return allowed


class Grammars:
    """Compile grammars for a model with `vocab_size` ids; the ids `ends` end an answer.

    The first grammar takes one or two seconds more, to index the vocabulary.
    """

    def __init__(self, tokenizer: Tokenizer, *, vocab_size: int, ends: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._ends = np.array(sorted(ends), np.int64)
        self._lock = threading.Lock()
        self._vocabulary: _Vocabulary | None = None
        self._compiled = functools.lru_cache(maxsize=_CACHED_GRAMMARS)(self._compile)

    def rules(self, grammar: Grammar) -> Rules:
        """The state of an empty answer; for any thread. Raises InvalidRequest."""
        return self._first_state(grammar, self._compiled)

    def check(self, grammar: Grammar) -> None:
        """Compile a grammar and do not keep it; raises InvalidRequest."""
        self._first_state(grammar, self._compile)

    def _first_state(
        self, grammar: Grammar, compiled: Callable[[Grammar], llguidance.LLMatcher]
    ) -> Rules:
        size = len(grammar.value.encode())
        limit = _MAX_CALLS_BYTES if grammar.type == "calls" else _MAX_BYTES
        if size > limit:
            raise _invalid(grammar, f"at most {limit} bytes", got=f"{size} bytes")
        if not self._ends.size:
            raise _invalid(
                grammar, "no grammar, because this model has no token that ends an answer"
            )
        try:
            matcher = compiled(grammar).deep_copy()
            assert self._vocabulary is not None
            rules = Rules(matcher, self._vocabulary, self._ends, json=grammar.json)
        except InexactSchema as error:
            raise _invalid(grammar, str(error), quotes=True) from error
        except (ValueError, ConstraintFailed) as error:
            raise _invalid(grammar, _expected(str(error)), quotes=True) from error
        if rules.finished:
            raise _invalid(grammar, "a grammar that allows more than the empty text")
        return rules

    def _compile(self, grammar: Grammar) -> llguidance.LLMatcher:
        """The compiled grammar in its first state; raises ValueError."""
        with self._lock:
            if self._vocabulary is None:
                self._vocabulary = _vocabulary(self._tokenizer, self._vocab_size, self._ends)
        # The parser's state does not help the client.
        limits = llguidance.LLParserLimits(verbose_errors=False, initial_lexer_fuel=_LEXER_FUEL)
        tokenizer = self._vocabulary.tokenizer
        matcher = llguidance.LLMatcher(tokenizer, _text(grammar), log_level=0, limits=limits)
        if matcher.is_error():
            # The error names what the client wrote.
            written = llguidance.LLMatcher(tokenizer, _written(grammar), log_level=0, limits=limits)
            raise ValueError(written.get_error() or matcher.get_error())
        return matcher


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
class _Vocabulary:
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
            raise ConstraintFailed(f"grammar: {_reason(matcher.get_error())}")
        allowed = np.unpackbits(bits, count=self.usable.size, bitorder="little").view(np.bool_)
        allowed &= self.usable
        return allowed


def _vocabulary(tokenizer: Tokenizer, size: int, ends: NDArray[np.int64]) -> _Vocabulary:
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
    return _Vocabulary(
        tokenizer=indexed,
        usable=usable,
        keys=KeyVocabulary(indexed, words, ends=ends),
    )


def _text(grammar: Grammar) -> str:
    """The grammar in llguidance's format; raises ValueError."""
    make = llguidance.LLMatcher
    match grammar.type:
        case "json_object":
            return _from_schema('{"type": "object"}')
        case "json_schema":
            return _from_schema(rewritten(translated_schema(grammar.value)))
        case "partial_schema":
            schema = translated_schema(grammar.value, lenient=True)
            return _from_schema(rewritten(schema), lenient=True)
        case "calls":
            return grammar.value
        case "regex":
            return make.grammar_from_regex(grammar.value)
        case "choice":
            # Lark's strings are JSON strings; json.dumps escapes characters that Lark cannot read.
            choices = " | ".join(map(json.dumps, json.loads(grammar.value)))
            return make.grammar_from_lark(f"start: {choices}")
        case "lark":
            if "x-guidance" in grammar.value:
                raise ValueError("x-guidance is not allowed: it could turn checks off")
            if is_gbnf(grammar.value):
                return make.grammar_from_lark(gbnf_to_lark(grammar.value))
            return make.grammar_from_lark(with_translated_schemas(grammar.value))


def _written(grammar: Grammar) -> str:
    """The text as `_text` has it, but without marks and rewritten keywords; raises ValueError."""
    if grammar.type == "json_schema":
        return _from_schema(translated_schema(grammar.value))
    if grammar.type == "lark" and not is_gbnf(grammar.value):
        lark = with_translated_schemas(grammar.value, marked=False)
        return llguidance.LLMatcher.grammar_from_lark(lark)
    return _text(grammar)


def side_grammar(grammar: Grammar, name: str) -> str:
    """A grammar that compiles, as JSON in llguidance's format, for use under a name in another."""
    text = _text(grammar)
    known = json.loads(text)["grammars"][0] if text.startswith("{") else {"lark_grammar": text}
    return json.dumps({**known, "name": name})


def _from_schema(schema: str, *, lenient: bool = False) -> str:
    # Overrides take precedence over the schema's own "x-guidance".
    return llguidance.LLMatcher.grammar_from_json_schema(
        schema,
        overrides={"lenient": lenient, "coerce_one_of": lenient, "whitespace_pattern": _SPACE},
    )


def _invalid(
    grammar: Grammar, expected: str, *, got: str | None = None, quotes: bool = False
) -> InvalidRequest:
    got = grammar.value if got is None else got
    return InvalidRequest(
        field=grammar.field,
        got=got if len(got) <= _MAX_SHOWN else got[:_MAX_SHOWN] + "...",
        expected=expected,
        quotes=quotes,
    )


def _expected(message: str) -> str:
    """The advice for a grammar with this error."""
    if any(limit in message for limit in _LIMITS):
        return _SMALLER
    if unsupported := re.search(r"Unimplemented keys: \[(.*)\]", message):
        return f"a schema without {unsupported[1]}, which is not supported here"
    return f"a valid grammar ({_reason(message)})"


def _reason(message: str) -> str:
    """A message of the library on one line, shortened."""
    if regex := re.search(r"regex parse error:.*\nerror: ([^\n]+)", message, re.DOTALL):
        return regex[1]
    line = " ".join(message.split())
    if "NoExtensionBias" in line:
        return _NO_TOKEN
    if "panic" in line:
        return "it cannot be compiled"
    return line if len(line) <= _MAX_SHOWN else line[:_MAX_SHOWN] + "..."
