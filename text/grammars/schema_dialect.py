"""Give a JSON Schema the meaning that JSON Schema gives it, where llguidance reads it otherwise.

numbers     llguidance computes with doubles: a value or limit that it would round is an error
patterns    are translated from ECMA-262: see ecma_regex.py
objects     are closed where the schema lists properties: see closed_objects.py
"""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from typing import Any, TypeGuard

from hearthd.text.grammars.closed_objects import TooManySchemas, close_objects
from hearthd.text.grammars.ecma_regex import UnsupportedRegex, translated
from hearthd.text.schema_parts import Schema, parts_of, target
from hearthd.text.value_marks import marked_schema

# What can hold `%json` in a Lark grammar, and the beginning of a schema. A text without an end goes
# on to the end of the grammar, so that a search takes linear time.
_SCHEMA_START = re.compile(
    r"""  "(?:[^"\\]|\\.)*"?  |  (?:\#|//)[^\n]*  |  /(?:[^/\\]|\\.)+/?  |  <[^<>\s]+>
      |  (?P<schema>%json\s*)""",
    re.VERBOSE | re.DOTALL,
)
_LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_MAX_EXACT = 2**53  # integers up to here are doubles, and so are their neighbors
_MAX_EXPONENT = 22  # powers of ten up to here are doubles
_MAX_INTEGER = 2**63  # llguidance saturates here, and ends the process at -2**63
_MAX_FACTOR = 10**8  # multipleOf: llguidance computes ten times a remainder in 32 bits
# The least common multiple of all factors in a grammar, without the zeros at its end. llguidance
# visits all remainders before it compiles: six digits took 9 s and 370 MB, nine all memory.
_MAX_MULTIPLE = 10_000
_MULTIPLES = (
    "numbers above 0 and below 100000000 whose common multiple is at most "
    f"{_MAX_MULTIPLE} times a power of ten"
)
_MAX_COUNT = 2**31  # characters or members that no answer can have


class InexactSchema(ValueError):
    """A keyword of a schema that cannot be enforced exactly; `reason` names it."""


def translated_schema(text: str, *, lenient: bool = False) -> str:
    """The schema, as JSON, in llguidance's dialect.

    Raises InexactSchema for a keyword that cannot be enforced; with `lenient` it is removed.
    """
    return _translated(text, _Multiple(), lenient=lenient)


def _translated(text: str, multiple: _Multiple, *, lenient: bool = False) -> str:
    """As `translated_schema`, for a schema in a grammar whose schemas have this multiple so far."""
    try:
        schema = json.loads(text)
    except (RecursionError, ValueError):
        return text  # llguidance reports what is wrong
    if not isinstance(schema, dict):
        return text
    try:
        _Translator(schema, multiple, lenient=lenient).translate()
        close_objects(schema)
        return json.dumps(schema, ensure_ascii=False)
    except RecursionError as error:
        raise InexactSchema("a schema that is not nested so deeply") from error
    except TooManySchemas as error:
        raise InexactSchema("a schema with fewer combinations of $ref, allOf and anyOf") from error


def with_translated_schemas(lark: str, *, marked: bool = True) -> str:
    """A Lark grammar with the schemas after `%json` translated, and marked unless told not to be.

    Raises InexactSchema.
    """
    decoder, multiple, parts, at = json.JSONDecoder(), _Multiple(), [], 0
    while match := _SCHEMA_START.search(lark, at):
        parts.append(lark[at : match.start()])
        at = match.end()
        try:
            _, end = decoder.raw_decode(lark, at) if match["schema"] else (None, at)
        except (RecursionError, ValueError):
            end = at  # llguidance reports what is wrong
        if end == at:
            parts.append(match[0])
            continue
        schema = _translated(lark[at:end], multiple)
        parts.append(marked_schema(schema) if marked else f"%json {schema}")
        at = end
    return "".join(parts) + lark[at:]


class _Multiple:
    """The least common multiple of the factors of a grammar, without powers of ten."""

    def __init__(self) -> None:
        self._multiple = 1

    def add(self, factor: float) -> bool:
        """Count a factor, if the multiple with it is small enough; whether it is."""
        if not 0 < factor < _MAX_FACTOR:
            return False
        multiple = math.lcm(self._multiple, _decimal(factor)[0])
        if multiple > _MAX_MULTIPLE:
            return False
        self._multiple = multiple
        return True


class _Translator:
    """Changes a schema in place: each schema in it, and what a `$ref` names."""

    def __init__(self, root: Schema, multiple: _Multiple, *, lenient: bool) -> None:
        self._root = root
        self._multiple = multiple
        self._lenient = lenient

    def translate(self) -> None:
        """Change the schema; raises InexactSchema."""
        pending, seen = [("", self._root)], set()
        while pending:
            path, schema = pending.pop()
            if id(schema) in seen:
                continue
            seen.add(id(schema))
            for rule in (self._limits, self._counts, self._values, self._pattern, self._keys):
                rule(schema, path)
            pending += [(f"{path}{key}.", subschema) for key, subschema in parts_of(schema)]
            if referred := target(self._root, schema.get("$ref")):
                pending.append((f"{schema['$ref']}.", referred))

    def _reject(self, schema: Schema, path: str, keyword: str, reason: str) -> None:
        if not self._lenient:
            raise InexactSchema(f"{reason} at {path}{keyword}")
        del schema[keyword]

    def _limits(self, schema: Schema, path: str) -> None:
        for keyword in _LIMITS:
            value = schema.get(keyword)
            if _is_number(value) and not _is_exact_limit(value, keyword, schema.get("type")):
                self._reject(schema, path, keyword, "a number of at most 15 digits")
        factor = schema.get("multipleOf")
        if _is_number(factor) and not self._multiple.add(factor):
            self._reject(schema, path, "multipleOf", _MULTIPLES)

    def _counts(self, schema: Schema, _: str) -> None:
        """Write 3.0 as 3, and remove limits that no answer reaches."""
        for keyword in _COUNTS:
            value = schema.get(keyword)
            if isinstance(value, float) and value.is_integer():
                value = schema[keyword] = int(value)
            if keyword.startswith("max") and _is_number(value) and value >= _MAX_COUNT:
                del schema[keyword]

    def _values(self, schema: Schema, path: str) -> None:
        for keyword in ("const", "enum"):
            if keyword not in schema:
                continue
            try:
                schema[keyword] = _exact_value(schema[keyword])
            except InexactSchema as error:
                self._reject(schema, path, keyword, str(error))

    def _pattern(self, schema: Schema, path: str) -> None:
        pattern = schema.get("pattern")
        if not isinstance(pattern, str):
            return
        try:
            schema["pattern"] = translated(pattern)
        except UnsupportedRegex as error:
            self._reject(schema, path, "pattern", f"a regular expression without {error}")

    def _keys(self, schema: Schema, path: str) -> None:
        """Translate the patterns of keys; two with the same translation apply both."""
        keys = schema.get("patternProperties")
        if not isinstance(keys, dict):
            return
        parts: Schema = {}
        try:
            for pattern, subschema in keys.items():
                key = translated(pattern)
                parts[key] = {"allOf": [parts[key], subschema]} if key in parts else subschema
        except UnsupportedRegex as error:
            self._reject(schema, path, "patternProperties", f"regular expressions without {error}")
            schema["additionalProperties"] = True
        else:
            schema["patternProperties"] = parts


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_exact(value: float) -> bool:
    """Whether llguidance reads this number, and not one near it.

    Its reader rounds twice unless the digits are a double and so is the power of ten.
    """
    if isinstance(value, int):
        return abs(value) < _MAX_INTEGER and float(value) == value
    if not math.isfinite(value):
        return False
    digits, exponent = _decimal(value)
    return digits < _MAX_EXACT and abs(exponent) <= _MAX_EXPONENT


def _is_exact_limit(value: float, keyword: str, type_: Any) -> bool:
    if abs(value) < _MAX_EXACT:
        return _is_exact(value)
    if type_ != "integer" or keyword not in ("minimum", "maximum"):
        return False
    # The largest integer of 64 bits is the only one that saturation makes exact.
    return (_is_exact(value) and abs(value) < _MAX_INTEGER) or (
        keyword == "maximum" and value == _MAX_INTEGER - 1
    )


def _decimal(value: float) -> tuple[int, int]:
    """The digits and the power of ten of a finite number."""
    _, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    return int("".join(map(str, digits))), exponent


def _exact_value(value: Any) -> Any:
    """A value that llguidance writes as it is; raises InexactSchema."""
    if isinstance(value, list):
        return [_exact_value(item) for item in value]
    if isinstance(value, dict):
        return {key: _exact_value(item) for key, item in value.items()}
    if not _is_number(value):
        return value
    if not _is_exact(value):
        raise InexactSchema("a number that a double of at most 15 digits equals, or a text")
    return value or 0  # not -0.0, which no answer could equal
