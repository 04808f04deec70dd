"""Read a tokenizer.json with the `tokenizers` library, and find what it would not say clearly.

The library panics on some files, takes duplicate ids, and gives other ids than the file says. So
the parts that decide about ids are checked first.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import tokenizers
from tokenizers import models, normalizers
from typing_extensions import override

from hearthd.text.answer_decoder import InvalidDecoder, answer_decoder

if TYPE_CHECKING:
    from collections.abc import Mapping

# More than any vocabulary has. An index of a vocabulary has an entry for each id.
MAX_IDS = 2**22
# The score of unigrams that no text is read as: a sum of a few others is higher.
UNREAD = -1e4
# What a normalizer may make of a character, and a template put around a text: far more than known
# files do, and far less than fills the memory.
_MAX_GROWTH, _MAX_PIECES = 256, 64
_MAX_MESSAGE = 300  # characters of an error of the library
# For private use, which no vocabulary has, and a letter, which no normalizer removes.
RARE = "\U0010fffd\N{CYRILLIC LETTER MULTIOCULAR O}"


class InvalidTokenizer(ValueError):
    """A tokenizer.json cannot be used; the message says what is wrong."""


class LibraryPanic(Exception):
    """The library panicked, for which it raises a BaseException."""


@contextmanager
def no_panic() -> Iterator[None]:
    """Raise LibraryPanic, an Exception, where the library panics."""
    try:
        yield
    except (Exception, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise LibraryPanic(f"the tokenizers library panicked: {error}") from error


def parse(text: str | bytes) -> dict[str, Any]:
    """The object in a tokenizer.json, with what decides about ids checked; raises InvalidTokenizer.

    The object is new: `build` takes it apart.
    """
    try:
        fields: dict[str, Any] = json.loads(text)
    except RecursionError as error:
        raise InvalidTokenizer("it is nested too deeply") from error
    except ValueError as error:
        raise InvalidTokenizer(f"it is not JSON: {error}") from error
    model = fields.get("model") if isinstance(fields, dict) else None
    if not isinstance(model, dict):
        raise InvalidTokenizer(f"model: got {model!r:.80}, expected an object")
    # Files that are older than the library's version 0.10 do not name the type.
    if model.setdefault("type", "BPE") == "Unigram":
        _check_unigrams(model)
    else:
        _check_vocabulary(model)
    if model["type"] == "BPE":
        _check_merges(model)
    for component in _parts(fields.get("post_processor"), "processors"):
        _check_template(component)
    changes = list(_parts(fields.get("normalizer"), "normalizers"))
    for component in changes:
        _check_normalizer(component)
    if math.prod(map(_growth, changes)) > _MAX_GROWTH:
        raise InvalidTokenizer(
            f"normalizer: makes more than {_MAX_GROWTH} characters of one, too many for memory"
        )
    _check_added_tokens(fields)
    return fields


def for_whole_texts(fields: dict[str, Any]) -> dict[str, Any]:
    """A tokenizer.json that neither cuts texts off nor pads them.

    A vocabulary of unigrams has the names of special tokens, with the highest score. Here they have
    the lowest: a name in a text is then read as the special token only where the library looks for
    added tokens, which it can be told not to do.
    """
    changed = fields | {"truncation": None, "padding": None}
    if fields["model"]["type"] == "Unigram":
        added = fields.get("added_tokens") or []
        special = {token["content"] for token in added if token.get("special")}
        vocabulary = [
            [token, UNREAD if token in special else score]
            for token, score in fields["model"]["vocab"]
        ]
        changed["model"] = fields["model"] | {"vocab": vocabulary}
    return changed


def for_answers(fields: dict[str, Any]) -> dict[str, Any]:
    """As `for_whole_texts`, but a part of an answer has the text that it has in the answer.

    Raises InvalidTokenizer.
    """
    try:
        decoder = answer_decoder(fields.get("decoder"))
    except InvalidDecoder as error:
        raise InvalidTokenizer(str(error)) from error
    return for_whole_texts(fields) | {"decoder": decoder}


def build(fields: dict[str, Any]) -> tokenizers.Tokenizer:
    """The library's object for what `parse` returned; raises InvalidTokenizer.

    The library's own reader holds a vocabulary three times and fragments memory: Gemma's takes
    20 MB more. So a BPE model is built from Python objects, and the library reads the rest.
    """
    added, fields["added_tokens"] = fields.get("added_tokens") or [], []
    try:
        with no_panic():
            tokenizer = _without_added_tokens(fields)
            # After the model, which gives them their ids.
            ids = {token["content"]: token.pop("id") for token in added}
            tokenizer.add_tokens([tokenizers.AddedToken(**token) for token in added])
            # The library looks the unknown token and the template up when a text needs them.
            encoded = tokenizer.encode(RARE, RARE).ids
    # The library raises plain Exception.
    except Exception as error:
        raise InvalidTokenizer(f"{error}"[:_MAX_MESSAGE]) from error
    for content, id_ in ids.items():
        if (got := tokenizer.token_to_id(content)) != id_:
            raise InvalidTokenizer(
                f"added_tokens: {content!r:.80} has id {id_!r:.80}, but the library gives it {got}"
            )
    for id_ in encoded:
        if tokenizer.id_to_token(id_) is None:
            raise InvalidTokenizer(f"post_processor adds token {id_}, which is not in model.vocab")
    return tokenizer


def _without_added_tokens(fields: dict[str, Any]) -> tokenizers.Tokenizer:
    model = fields["model"]
    if model["type"] != "BPE":
        return tokenizers.Tokenizer.from_str(json.dumps(fields))
    fields["model"] = {"type": "BPE", "vocab": {}, "merges": []}
    bpe = _bpe(model)
    # Free a million objects before others are made that stay: see `no_other_thread`.
    del model
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(fields))
    tokenizer.model = bpe
    return tokenizer


def _bpe(options: dict[str, Any]) -> models.BPE:
    """The model of a tokenizer.json."""
    merges: Any = _Merges(options.pop("merges"))
    known = {name: value for name, value in options.items() if value is not None and name != "type"}
    return models.BPE(merges=merges, **known)


class _Merges(Sequence[tuple[str, str]]):
    """The merges of a tokenizer.json as pairs, which are made when they are read.

    The file has lists of two strings, an older one strings with a space between the two.
    """

    def __init__(self, merges: list[Any]) -> None:
        self._merges = merges

    @override
    def __len__(self) -> int:
        return len(self._merges)

    @override
    def __getitem__(self, index: Any) -> Any:
        return tuple(self)[index]

    @override
    def __iter__(self) -> Iterator[Any]:
        # Without Python code for each of half a million merges.
        if self._merges and isinstance(self._merges[0], str):
            return map(tuple, map(str.split, self._merges, itertools.repeat(" ")))
        return map(tuple, map(list.__iter__, self._merges))


def _check_vocabulary(model: Mapping[str, Any]) -> None:
    """Check the ids of the tokens of a model."""
    vocabulary = model.get("vocab")
    if not isinstance(vocabulary, dict):
        raise InvalidTokenizer(f"model.vocab: got {vocabulary!r:.80}, expected an object")
    if set(map(type, vocabulary.values())) - {int}:
        token, id_ = next((t, i) for t, i in vocabulary.items() if type(i) is not int)
        raise InvalidTokenizer(
            f"model.vocab: {token!r:.80} has id {id_!r:.80}, expected an integer"
        )
    if not vocabulary:
        return
    for id_ in (min(vocabulary.values()), max(vocabulary.values())):
        if not 0 <= id_ < MAX_IDS:
            raise InvalidTokenizer(f"model.vocab: got id {id_}, expected 0 to {MAX_IDS - 1}")
    if len(set(vocabulary.values())) != len(vocabulary):
        id_, _ = Counter(vocabulary.values()).most_common(1)[0]
        names = [token for token, other in vocabulary.items() if other == id_]
        raise InvalidTokenizer(f"model.vocab: {names!r:.80} have the same id {id_}")


def _check_merges(model: Mapping[str, Any]) -> None:
    """Check that the merges of BPE give tokens of the vocabulary."""
    merges, vocabulary = model.get("merges"), model["vocab"]
    if not isinstance(merges, list):
        raise InvalidTokenizer(f"model.merges: got {merges!r:.80}, expected a list")
    if len(kinds := set(map(type, merges))) > 1 or kinds - {str, list}:
        raise InvalidTokenizer("model.merges: expected lists of two tokens, or texts only")
    prefix = model.get("continuing_subword_prefix") or ""
    if not isinstance(prefix, str):
        raise InvalidTokenizer(
            f"model.continuing_subword_prefix: got {prefix!r:.80}, expected a text"
        )
    if not prefix and _all_known(merges, vocabulary):
        return
    for merge in merges:
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if len(parts) != 2 or not all(isinstance(part, str) for part in parts):
            raise InvalidTokenizer(f"model.merges: got {merge!r:.80}, expected two tokens")
        left, right = parts
        if not right.startswith(prefix):
            raise InvalidTokenizer(
                f"model.merges: {right!r:.80} does not begin with continuing_subword_prefix "
                f"{prefix!r:.80}"
            )
        for token in (left, right, left + right.removeprefix(prefix)):
            if token not in vocabulary:
                raise InvalidTokenizer(
                    f"model.merges: {merge!r:.80} needs the token {token!r:.80}, which "
                    "model.vocab does not have"
                )


def _all_known(merges: Sequence[Any], vocabulary: Mapping[str, int]) -> bool:
    """Whether each merge has two parts and gives a token, without Python code for each merge."""
    known = vocabulary.__contains__
    pairs = _Merges(list(merges)) if merges and isinstance(merges[0], str) else merges
    try:
        if set(map(len, pairs)) - {2}:
            return False
        parts_known = all(map(known, itertools.chain.from_iterable(pairs)))
        return parts_known and all(map(known, map("".join, pairs)))
    except TypeError:
        return False


def _check_unigrams(model: Mapping[str, Any]) -> None:
    """Check the tokens and scores of a Unigram model."""
    vocabulary = model.get("vocab")
    if not isinstance(vocabulary, list):
        raise InvalidTokenizer(f"model.vocab: got {vocabulary!r:.80}, expected a list")
    for entry in vocabulary:
        match entry:
            case [str(), int() | float() as score] if math.isfinite(score):
                pass
            case _:
                raise InvalidTokenizer(
                    f"model.vocab: got {entry!r:.80}, expected a token and a finite score"
                )
    unknown = model.get("unk_id")
    if unknown is not None and not (type(unknown) is int and 0 <= unknown < len(vocabulary)):
        raise InvalidTokenizer(
            f"model.unk_id: got {unknown!r:.80}, but model.vocab has {len(vocabulary)} tokens"
        )


def _parts(component: Any, key: str) -> Iterator[Mapping[str, Any]]:
    """A part of a tokenizer.json, or the parts of a sequence."""
    if isinstance(component, dict):
        nested = component.get(key) if component.get("type") == "Sequence" else None
        if isinstance(nested, list):
            for each in nested:
                yield from _parts(each, key)
        else:
            yield component


def _check_template(component: Mapping[str, Any]) -> None:
    """Check that a template for texts defines the special tokens that it names."""
    if component.get("type") != "TemplateProcessing":
        return
    defined = component.get("special_tokens")
    for id_, special in defined.items() if isinstance(defined, dict) else ():
        ids = special.get("ids") if isinstance(special, dict) else None
        if isinstance(ids, list) and len(ids) > _MAX_PIECES:
            raise InvalidTokenizer(
                f"post_processor.special_tokens: {id_!r:.80} has {len(ids)} ids, expected at most "
                f"{_MAX_PIECES}"
            )
    for name in ("single", "pair"):
        pieces = component.get(name)
        if isinstance(pieces, list) and len(pieces) > _MAX_PIECES:
            raise InvalidTokenizer(
                f"post_processor.{name} has {len(pieces)} pieces, expected at most {_MAX_PIECES}"
            )
        for piece in pieces if isinstance(pieces, list) else ():
            special = piece.get("SpecialToken") if isinstance(piece, dict) else None
            id_ = special.get("id") if isinstance(special, dict) else None
            if isinstance(id_, str) and not (isinstance(defined, dict) and id_ in defined):
                raise InvalidTokenizer(
                    f"post_processor.{name} names {id_!r:.80}, which special_tokens does not have"
                )


def _check_normalizer(component: Mapping[str, Any]) -> None:
    """Check for empty texts and tables of characters with which the library panics."""
    match component:
        case {"type": "Prepend", "prepend": ""}:
            raise InvalidTokenizer("normalizer: Prepend has an empty text")
        case {"type": "Replace", "pattern": {"String": ""} | {"Regex": ""}}:
            raise InvalidTokenizer("normalizer: Replace has an empty pattern")
        case {"type": "Precompiled"}:
            pass
        case _:
            return
    try:
        normalizers.Precompiled(base64.b64decode(component["precompiled_charsmap"], validate=True))
    # The library raises plain Exception.
    except Exception as error:
        raise InvalidTokenizer(f"normalizer.precompiled_charsmap: {error}") from error


def _growth(component: Mapping[str, Any]) -> int:
    """The most characters that a normalizer makes of one. A regex can match between characters."""
    match component:
        case {"type": "Replace", "pattern": {"String": _}, "content": str() as text}:
            return max(1, len(text))
        case {"type": "Replace", "content": str() as text} | {"prepend": str() as text}:
            return 1 + len(text)
        case _:
            return 1


def _check_added_tokens(fields: Mapping[str, Any]) -> None:
    added = fields.get("added_tokens") or []
    if not isinstance(added, list):
        raise InvalidTokenizer(f"added_tokens: got {added!r:.80}, expected a list")
    for token in added:
        match token:
            case {"content": str(), "id": int()}:
                pass
            case _:
                raise InvalidTokenizer(
                    f"added_tokens: got {token!r:.80}, expected an object with content and id"
                )
