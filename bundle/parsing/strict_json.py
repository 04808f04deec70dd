"""Strict JSON for files from elsewhere: refuse duplicate keys and unusable numbers."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Callable

_MAX_BITS = 64
_MAX_SHOWN = 40  # characters of a number


@dataclass(frozen=True)
class UnusableNumber:
    """A number that no reader can use. No field accepts its type."""

    text: str

    @override
    def __repr__(self) -> str:
        """The number as the file has it, shortened."""
        return self.text[:_MAX_SHOWN]


def parse(text: str, *, keep_unusable: bool = False) -> Any:
    """The value of a JSON text.

    Raises ValueError for what is not JSON, and for NaN, infinities (1e999 too), integers of more
    than 64 bits, a key that is there twice, half a surrogate pair, and nesting without end. With
    `keep_unusable`, such a number is an UnusableNumber: a field that no reader uses can have it.
    """
    unusable: Callable[[str], Any] = UnusableNumber if keep_unusable else _refuse
    try:
        value = json.loads(
            text,
            parse_constant=unusable,
            parse_float=lambda number: _finite(number, unusable),
            parse_int=lambda number: _integer(number, unusable),
            object_pairs_hook=_object,
        )
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if "\\ud" in text.lower():
        json.dumps(value, ensure_ascii=False, default=repr).encode()
    return value


def repeated_key(pairs: list[tuple[str, Any]]) -> tuple[str, int]:
    """The most frequent key of an object's members, and how often it occurs."""
    return Counter(key for key, _ in pairs).most_common(1)[0]


def _refuse(number: str) -> NoReturn:
    raise ValueError(f"{number:.{_MAX_SHOWN}} is not a number")


def _finite(text: str, unusable: Callable[[str], Any]) -> Any:
    number = float(text)
    return number if math.isfinite(number) else unusable(text)


def _integer(text: str, unusable: Callable[[str], Any]) -> Any:
    # Python refuses to convert thousands of digits.
    if len(text) > _MAX_BITS or (number := int(text)).bit_length() > _MAX_BITS:
        return unusable(text)
    return number


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError(f"the key {repeated_key(pairs)[0]!r:.80} is twice")
    return members
