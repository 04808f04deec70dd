"""JSON from files that others made: what is ambiguous, or no number that we count with, is refused.

It knows JSON and nothing of what a file should say.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

_MOST_BITS = 64


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


def _refuse(number: str) -> NoReturn:
    raise ValueError(f"{number:.40} is no number")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _integer(text: str) -> int:
    number = int(text)
    return number if number.bit_length() <= _MOST_BITS else _refuse(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(k for k in keys if keys.count(k) > 1)!r:.80} is twice")
    return found
