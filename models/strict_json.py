"""JSON from files that others made: what is ambiguous, or no number that we count with, is refused.

It knows JSON and nothing of what a file should say.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, NoReturn

_MAX_BITS = 64


def parse(text: str) -> Any:
    """The value of a JSON text.

    Raises ValueError for what is not JSON, and for NaN, infinities (1e999 too), integers of more
    than 64 bits, a key that is there twice, half a surrogate pair, and nesting without end.
    """
    try:
        value = json.loads(
            text,
            parse_constant=_refuse,
            parse_float=_finite,
            parse_int=_integer,
            object_pairs_hook=_object,
        )
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if "\\ud" in text.lower():
        json.dumps(value, ensure_ascii=False).encode()
    return value


def repeated_key(pairs: list[tuple[str, Any]]) -> tuple[str, int]:
    """The most frequent key of an object's members, and how often it occurs."""
    return Counter(key for key, _ in pairs).most_common(1)[0]


def _refuse(number: str) -> NoReturn:
    raise ValueError(f"{number:.40} is not a number")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _integer(text: str) -> int:
    number = int(text)
    return number if number.bit_length() <= _MAX_BITS else _refuse(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError(f"the key {repeated_key(pairs)[0]!r:.80} is twice")
    return members
