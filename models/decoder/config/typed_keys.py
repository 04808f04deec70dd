"""Values by key, checked for their types: what readers of configurations share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, overload

from hearthd.models.config import MAX_SIZE, ConfigError, require

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


class TypedKeys:
    """Reads keys of `data` and remembers which. null counts as a missing key.

    `prefix` stands before the key in errors. Every method raises ConfigError, naming the key, for a
    value of another type, and for a missing key without a default.
    """

    def __init__(self, data: Mapping[str, Any], prefix: str) -> None:
        self._data = data
        self._prefix = prefix
        self._read: set[str] = set()

    @overload
    def size(self, key: str, *, limit: int = MAX_SIZE) -> int: ...
    @overload
    def size(self, key: str, *, default: int) -> int: ...
    @overload
    def size(self, key: str, *, default: None) -> int | None: ...
    def size(self, key: str, *, limit: int = MAX_SIZE, **options: int | None) -> int | None:
        """An integer from 1 to `limit`."""
        value: int | None = self._value(key, int, options)
        if value is not None and value > limit:
            raise ConfigError(f"{self._prefix}{key}: got {value}, expected at most {limit}")
        return value

    @overload
    def number(self, key: str) -> float: ...
    @overload
    def number(self, key: str, *, default: float) -> float: ...
    @overload
    def number(self, key: str, *, default: None) -> float | None: ...
    def number(self, key: str, **options: float | None) -> float | None:
        """A number above zero."""
        value = self._value(key, float, options)
        return None if value is None else float(value)

    def number_below_zero(self, key: str, *, default: float) -> float:
        """A number below zero."""
        self._read.add(key)
        value = self._data.get(key)
        value = default if value is None else value
        if type(value) not in (int, float) or not -math.inf < value < 0:
            raise ConfigError(
                f"{self._prefix}{key}: got {value!r:.80}, expected a number below zero"
            )
        return float(value)

    def ignore(self, *keys: str) -> None:
        """Accept any value of keys that do not matter here."""
        self._read.update(keys)

    def text(self, key: str, *, default: str) -> str:
        """A string."""
        value: str = self._value(key, str, {"default": default})
        return value

    def choice(self, key: str, supported: Collection[str], *, default: str) -> str:
        """One of some strings."""
        value = self.text(key, default=default)
        if value not in supported:
            raise ConfigError(
                f"{self._prefix}{key}: got {value!r:.80}, supported: {', '.join(supported)}"
            )
        return value

    def texts(self, key: str, *, default: Sequence[str]) -> list[str]:
        """A list of strings."""
        return self._list(key, str, default=default)

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false."""
        value: bool = self._value(key, bool, {"default": default})
        return value

    def flags(self, key: str) -> list[bool]:
        """A list of true and false; empty if the key is missing."""
        return self._list(key, bool, default=())

    @overload
    def counts(self, key: str) -> list[int]: ...
    @overload
    def counts(self, key: str, *, default: Sequence[int]) -> list[int]: ...
    def counts(self, key: str, **options: Sequence[int]) -> list[int]:
        """A list of integers from 0."""
        values = list(self._value(key, list, options))
        for value in values:
            if type(value) is not int or value != 0:
                require(value, int, f"{self._prefix}{key}")
        return values

    def count(self, key: str, *, default: int) -> int:
        """An integer from 0."""
        self._read.add(key)
        value = self._data.get(key)
        if type(value) is int and value == 0:
            return 0
        return default if value is None else self.size(key)

    def by_layer(self, key: str, layers: int, *, least: Literal[0, 1] = 1) -> list[int]:
        """An integer from `least` for each layer; a file may have one for all of them."""
        if not isinstance(self._data.get(key), list):
            return [self.size(key)] * layers
        values: list[int] = self._list(key, int) if least else self.counts(key)
        if len(values) != layers:
            raise ConfigError(
                f"{self._prefix}{key}: got {len(values)} numbers, expected {layers}, by layer"
            )
        return values

    def factors(self, key: str, *, default: Sequence[float]) -> list[float]:
        """A list of numbers of any sign; infinite ones may be among them."""
        values: list[float] = list(self._value(key, list, {"default": default}))
        for value in values:
            if type(value) not in (int, float) or math.isnan(value):
                raise ConfigError(f"{self._prefix}{key}: expected numbers, got {value!r:.80}")
        return [float(value) for value in values]

    def _list(self, key: str, element_type: type, **options: Sequence[Any]) -> list[Any]:
        values = list(self._value(key, list, options))
        for value in values:
            require(value, element_type, f"{self._prefix}{key}")
        return values

    def _value(self, key: str, expected_type: type, options: Mapping[str, Any]) -> Any:
        self._read.add(key)
        value = self._data.get(key)
        if value is None:
            if "default" not in options:
                raise ConfigError(f"{self._prefix}{key} is missing")
            return options["default"]
        require(value, expected_type, f"{self._prefix}{key}")
        return value
