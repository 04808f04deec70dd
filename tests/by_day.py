"""Which values of a test's parameters are in every run, where all of them take long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hearthd.models.catalog import ARCHITECTURES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Together they have every kind of attention, both matrix recurrences, routers, caches and a tower.
# The others are tested at night, and their logits in every run.
BY_DAY = frozenset({
    "deepseek2", "gemma3", "gemma4-moe", "gpt-oss", "granitehybrid-moe", "llama",
    "qwen35moe-images",
})  # fmt: skip


def each_architecture(names: Iterable[str] = ARCHITECTURES) -> list[Any]:
    """The architectures as parameters of a test: those that are not in BY_DAY at night."""
    return each_of({name: name for name in names})


def each_of(values: Mapping[str, object]) -> list[Any]:
    """Values by their architectures, as parameters of a test; as `each_architecture`."""
    return [
        pytest.param(value, id=name, marks=() if name in BY_DAY else pytest.mark.nightly)
        for name, value in values.items()
    ]


def first_by_day(values: Iterable[object], count: int = 1) -> list[Any]:
    """Values as parameters of a test: the first ones in every run, the others at night.

    A value that is a tuple has an item for each of several parameters.
    """
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else (value,)),
            marks=() if index < count else pytest.mark.nightly,
        )
        for index, value in enumerate(values)
    ]
