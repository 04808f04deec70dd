"""Constrain an answer to JSON, a JSON Schema, a regex, a grammar or a list of choices.

llguidance determines the tokens that keep an answer within its grammar. A feature that it does not
support is rejected by name, never ignored. `Rules` implements the sampler's Constraint.
"""

from __future__ import annotations

import json
import re
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import llguidance
import numpy as np
from typing_extensions import override

from hearthd.sampling.constraint import Constraint, ConstraintFailed
from hearthd.text.errors import GrammarsFull, InvalidRequest
from hearthd.text.grammars.compiled_grammars import LIMITS, CompiledGrammar, CompiledGrammars
from hearthd.text.grammars.gbnf import gbnf_to_lark, is_gbnf
from hearthd.text.grammars.grammar_vocabulary import (
    NO_TOKEN,
    USED_UP,
    GrammarVocabulary,
    grammar_vocabulary,
    reason,
    shortened,
)
from hearthd.text.grammars.schema_dialect import (
    InexactSchema,
    translated_schema,
    with_translated_schemas,
)
from hearthd.text.grammars.schema_rewrites import rewritten
from hearthd.text.grammars.unique_keys import UniqueKeys

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from numpy.typing import NDArray

    from hearthd.text.tokenizer import Tokenizer

# A partial_schema is a JSON Schema whose unsupported keywords are ignored; calls are a grammar in
# llguidance's own format.
GrammarType = Literal[
    "json_object", "json_schema", "partial_schema", "regex", "lark", "choice", "calls"
]
_JSON_TYPES = frozenset(("json_object", "json_schema", "partial_schema"))

MAX_BYTES = 2**16  # of a grammar's text
_MAX_CALLS_BYTES = 2**19
# Messages about a grammar that takes too much work or memory.
_TOO_LARGE = ("grammar) too big", USED_UP)
_SMALLER = (
    "a smaller grammar: write fewer keys with a format or pattern, and smaller counts in nested "
    "repetitions such as (a{1000}){1000}"
)
# Other answers wait for the rules of one. Ambiguous grammars take longer with each token; others
# take 1 to 20 ms, and a slow device some times as long.
_FAST_SECONDS, _MAX_SLOW_SECONDS = 0.05, 1.0  # of a core: of a token, and of all beyond that
_SLOW = "it is ambiguous, and its rules take too long; write it so that a text has one derivation"
_TOKENS_PER_MEASUREMENT = 4  # of the memory that a grammar takes
_TOKENS_PER_MASK = 32  # of an answer whose grammar is compiled again
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

    def __init__(self, grammars: Grammars, grammar: Grammar, compiled: CompiledGrammar) -> None:
        self._grammars = grammars
        self._grammar = grammar
        self._tokens: list[int] = []
        self._slow_seconds = self._renewal_seconds = 0.0
        self._allowed = np.zeros(0, np.bool_)
        self._progress: _Progress | None = self._replayed(compiled)
        self._follow(self._progress)
        # A request can wait for long, so it does not keep the compiled grammar.
        self._begun().end()
        self._progress = None

    @override
    def allowed(self) -> NDArray[np.bool_]:
        return self._allowed

    @override
    def accept(self, token: int) -> None:
        self._begun()
        began = time.thread_time() - self._renewal_seconds
        self._take([token])
        seconds = time.thread_time() - self._renewal_seconds - began
        self._slow_seconds += max(0.0, seconds - _FAST_SECONDS)
        if self._slow_seconds > _MAX_SLOW_SECONDS:
            raise ConstraintFailed(f"grammar: {_SLOW}")

    def feed(self, text: bytes, tokens: Sequence[int]) -> bool:
        """Take bytes and then tokens; return whether the grammar allows them.

        If it does not, the state is unchanged. Raises ConstraintFailed.
        """
        following = [*self._grammars.vocabulary.keys.spelled(text), *tokens]
        if self._begun().matcher.validate_tokens(following) < len(following):
            return False
        self._take(following)
        return True

    def _begun(self) -> _Progress:
        return self._progress or self._begin(self._grammars.compiled)

    def _take(self, tokens: Sequence[int]) -> None:
        progress = self._begun()
        for token in tokens:
            progress.read(token)
        self._tokens += tokens
        self._follow(progress)
        if len(self._tokens) % _TOKENS_PER_MEASUREMENT == 0:
            self._measure()

    def _measure(self) -> None:
        """Compile the grammar again if it has grown and all of them take too much memory."""
        if self._begun().measure() and self._grammars.are_full():
            self._renew()

    def _renew(self) -> None:
        """Go on with a compiled grammar that nothing else uses; raises ConstraintFailed."""
        began = time.thread_time()
        progress = self._begin(self._grammars.compiled_again)
        self._allowed = self._next(progress)
        progress.measure()
        self._renewal_seconds += time.thread_time() - began
        if self._renewal_seconds > _MAX_SLOW_SECONDS:
            raise ConstraintFailed(f"grammar: {USED_UP}")

    def _begin(self, compiled: Callable[[Grammar], CompiledGrammar]) -> _Progress:
        """Take the tokens so far; raises ConstraintFailed."""
        if self._progress is not None:
            self._progress.end()
        try:
            self._progress = self._replayed(compiled(self._grammar))
        except GrammarsFull as error:
            raise ConstraintFailed(f"grammar: {error}") from error
        return self._progress

    def _replayed(self, compiled: CompiledGrammar) -> _Progress:
        is_new = compiled.is_new
        progress = _Progress(compiled, self._grammars.vocabulary, json=self._grammar.json)
        for count, token in enumerate(self._tokens):
            if count % _TOKENS_PER_MASK == 0:
                progress.allowed()  # which renews the limit of the lexer's work
            progress.read(token)
        if is_new:
            compiled.begin_growth(progress.matcher)
        return progress

    def _follow(self, progress: _Progress) -> None:
        """Find the tokens that may follow, also if other answers have used the lexer up."""
        try:
            self._allowed = self._next(progress)
        except ConstraintFailed:
            if progress.is_new:
                raise
            self._renew()

    def _next(self, progress: _Progress) -> NDArray[np.bool_]:
        allowed = progress.allowed()
        ends = self._grammars.ends
        more = np.count_nonzero(allowed) > np.count_nonzero(allowed[ends])
        self.finished = not more and progress.matcher.is_accepting()
        if not more and not self.finished:
            raise ConstraintFailed(f"grammar: {NO_TOKEN}")
        return allowed


class _Progress:
    """The state of an answer in a compiled grammar.

    is_new  whether no other answer and no token has used the lexer
    """

    def __init__(
        self, compiled: CompiledGrammar, vocabulary: GrammarVocabulary, *, json: bool
    ) -> None:
        self.is_new = compiled.is_new
        self.matcher = compiled.state()
        self._compiled = compiled
        self._vocabulary = vocabulary
        self._keys = UniqueKeys(vocabulary.keys, vocabulary.allowed, self.matcher, json=json)
        compiled.users.add(self)

    def read(self, token: int) -> None:
        """Take a token."""
        self.is_new = False
        self._keys.accept(token, self.matcher)
        self.matcher.consume_token(token)

    def allowed(self) -> NDArray[np.bool_]:
        """The tokens that may follow; raises ConstraintFailed."""
        allowed = self._vocabulary.allowed(self.matcher)
        self._keys.restrict(allowed)
        return allowed

    def measure(self) -> bool:
        """Estimate the memory of the compiled grammar again; return whether it has grown."""
        self._compiled.measure(self.matcher)
        return self._compiled.has_grown

    def end(self) -> None:
        """No longer use the compiled grammar."""
        self.measure()
        self._compiled.users.discard(self)


class Grammars:
    """Compile grammars for a model with `vocab_size` ids; the ids `ends` end an answer.

    The first grammar takes one or two seconds more, to index the vocabulary.
    """

    def __init__(self, tokenizer: Tokenizer, *, vocab_size: int, ends: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self.ends = np.array(sorted(ends), np.int64)
        self._lock = threading.Lock()
        self._vocabulary: GrammarVocabulary | None = None
        self._kept = CompiledGrammars()

    @property
    def vocabulary(self) -> GrammarVocabulary:
        """The index of the vocabulary."""
        with self._lock:
            if self._vocabulary is None:
                self._vocabulary = grammar_vocabulary(self._tokenizer, self._vocab_size, self.ends)
            return self._vocabulary

    def rules(self, grammar: Grammar) -> Rules:
        """The state of an empty answer; for any thread. Raises InvalidRequest and GrammarsFull."""
        return self._first_state(grammar, self.compiled)

    def check(self, grammar: Grammar) -> None:
        """Compile a grammar and do not keep it; raises InvalidRequest."""
        self._first_state(grammar, self._compile)

    def compiled(self, grammar: Grammar) -> CompiledGrammar:
        """A grammar that is kept, or is compiled now; raises ValueError and GrammarsFull."""
        return self._kept.get(grammar) or self.compiled_again(grammar)

    def compiled_again(self, grammar: Grammar) -> CompiledGrammar:
        """A grammar with a lexer of its own, to keep; raises ValueError and GrammarsFull."""
        return self._kept.keep(grammar, self._compile(grammar))

    def are_full(self) -> bool:
        """Whether the grammars of answers take more memory than they may."""
        return self._kept.are_full()

    def _first_state(
        self, grammar: Grammar, compiled: Callable[[Grammar], CompiledGrammar]
    ) -> Rules:
        size = len(grammar.value.encode())
        limit = _MAX_CALLS_BYTES if grammar.type == "calls" else MAX_BYTES
        if size > limit:
            raise _invalid(grammar, f"at most {limit} bytes", got=f"{size} bytes")
        if not self.ends.size:
            raise _invalid(
                grammar, "no grammar, because this model has no token that ends an answer"
            )
        try:
            rules = Rules(self, grammar, compiled(grammar))
        except InexactSchema as error:
            raise _invalid(grammar, str(error), quotes=True) from error
        except (ValueError, ConstraintFailed) as error:
            raise _invalid(grammar, _expected(str(error)), quotes=True) from error
        if rules.finished:
            raise _invalid(grammar, "a grammar that allows more than the empty text")
        return rules

    def _compile(self, grammar: Grammar) -> CompiledGrammar:
        """Raises ValueError."""
        tokenizer = self.vocabulary.tokenizer
        matcher = llguidance.LLMatcher(tokenizer, _text(grammar), log_level=0, limits=LIMITS)
        if matcher.is_error():
            # The error names what the client wrote.
            written = llguidance.LLMatcher(tokenizer, _written(grammar), log_level=0, limits=LIMITS)
            raise ValueError(written.get_error() or matcher.get_error())
        return CompiledGrammar(matcher, grammar)


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
        got=shortened(got),
        expected=expected,
        quotes=quotes,
    )


def _expected(message: str) -> str:
    """The advice for a grammar with this error."""
    if any(words in message for words in _TOO_LARGE):
        return _SMALLER
    if unsupported := re.search(r"Unimplemented keys: \[(.*)\]", message):
        return f"a schema without {unsupported[1]}, which is not supported here"
    return f"a valid grammar ({reason(message)})"
