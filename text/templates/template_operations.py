"""Operations of templates that could take far more memory than their arguments: checked before.

Examples are `'x' * 10**9`, `replace`, `join` and `%`. Each check estimates the size of the result
from the arguments and raises LimitExceeded if the budget does not allow it.
"""

from __future__ import annotations

import re
from collections.abc import Sized
from typing import TYPE_CHECKING, Any

import jinja2

from hearthd.text.templates.template_budget import (
    ITEM_BYTES,
    MAX_BITS,
    LimitExceeded,
    size_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearthd.text.templates.template_budget import Budget

# Filters that no chat template needs, whose results cannot be estimated.
REMOVED_FILTERS = frozenset("center pprint urlize wordwrap xmlattr".split())


class ChangeableList(list[Any]):
    """A list that a template writes, which nothing outside of it reads.

    fixed  whether it is in another value, whose size was counted: it can no longer change
    """

    fixed = False


# Methods of Python's own values that a template may call. Jinja's sandbox, with which transformers
# renders, forbids the ones that change a list; Kimi K2's template needs them for results of tools.
METHODS: Mapping[type, frozenset[str]] = {
    ChangeableList: frozenset("append copy count index pop".split()),
    str: frozenset(
        "capitalize casefold count endswith find index isalnum isalpha isascii isdecimal isdigit "
        "islower isnumeric isspace istitle isupper join lower lstrip partition removeprefix "
        "removesuffix replace rfind rindex rpartition rsplit rstrip split splitlines startswith "
        "strip swapcase title upper".split()
    ),
    dict: frozenset("copy get items keys values".split()),
    list: frozenset("copy count index".split()),
    tuple: frozenset("count index".split()),
    bytes: frozenset(),
    int: frozenset(),
    float: frozenset(),
    range: frozenset(),
}
_MAX_WIDTH = 100
_MAX_ITEMS = 250_000  # items, or characters of a text, of a filter that handles them one by one
# A part of a %-format with a width of more than two digits.
_WIDE = re.compile(r"%[^a-zA-Z%]*(\d{3}|\*)")
# A text for `str.format` whose fields have no attributes, items, conversions or widths.
_PLAIN_FIELDS = re.compile(r"(?:[^{}]|\{\{|\}\}|\{\w*\})*+")
_ITEM_BY_ITEM = frozenset(
    "batch dictsort groupby join list map max min reject rejectattr select selectattr slice sort "
    "sum unique".split()
)
_SPLITTERS = frozenset("rsplit split splitlines".split())
# Characters that separate words and lines.
_BLANKS = (
    " \t\n\r\v\f\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007"
    "\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
# Peak memory of a filter, in multiples of its text.
_GROWTH = {
    "e": 8, "escape": 8, "forceescape": 8, "striptags": 4, "title": 32, "tojson": 8,
    "urlencode": 16, "wordcount": 32,
}  # fmt: skip
# Filters with numbers that are widths or counts.
_WITH_WIDTHS = frozenset("batch indent round slice tojson truncate".split())


def check_operator(budget: Budget, operator: str, left: Any, right: Any) -> None:
    """Check a binary operator before it is applied."""
    if operator == "*":
        for times, value in ((left, right), (right, left)):
            if isinstance(times, int) and isinstance(value, Sized):
                empty = size_of("") if isinstance(value, str) else 0
                budget.require(max(times, 0) * (budget.size_of(value) - empty))
    elif operator == "**":
        _check_power(left, right)
    elif operator == "%" and isinstance(left, str):
        _check_format(budget, left, right)


def check_method(budget: Budget, name: str, args: tuple[Any, ...]) -> None:
    """Check a method of a text, the first argument, before it is called."""
    if name == "replace" and len(args) >= 3 and all(isinstance(a, str) for a in args[:3]):
        text, old, new = args[:3]
        budget.require(size_of(text) + text.count(old) * size_of(new))
    elif name == "join":
        separator, items = args[0], args[1] if len(args) > 1 else ()
        count = len(items) if isinstance(items, Sized) else 0
        budget.require(budget.size_of(items) + count * size_of(separator))
    elif name in _SPLITTERS and len(args[0]) > _MAX_ITEMS:
        text, *separators = args
        known = [separator for separator in separators if isinstance(separator, str) and separator]
        count = sum(map(text.count, known or _BLANKS))
        budget.require(size_of(text) + count * ITEM_BYTES)


def check_change(budget: Budget, changed: ChangeableList, args: tuple[Any, ...]) -> None:
    """Check and count what is added to a list."""
    if changed.fixed:
        raise jinja2.TemplateError("a list in another value is unsafe to change")
    budget.spend(budget.size_of(args))
    fix_lists(args)


def fix_lists(value: Any) -> None:
    """Fix the lists that are items of a value."""
    if isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            if isinstance(item, ChangeableList):
                item.fixed = True


def check_fields(budget: Budget, form: str, values: Any) -> None:
    """Check `str.format` before it is called."""
    if not _PLAIN_FIELDS.fullmatch(form):
        raise jinja2.TemplateError(
            "'format' of 'str' object is unsafe with a field that is not a name or a number"
        )
    budget.require(size_of(form) + form.count("{") * budget.size_of(values))


def check_filter(budget: Budget, name: str, args: list[Any], kwargs: Mapping[str, Any]) -> None:
    """Check a filter before it is called."""
    value, *options = args or [None]
    options += kwargs.values()
    _check_options(name, value, options)
    if name in _GROWTH:
        budget.require(budget.size_of(value) * _GROWTH[name])
    if name == "indent":
        widest = max((size_of(o) for o in options if isinstance(o, str)), default=_MAX_WIDTH)
        budget.require(value.count("\n") * widest)
    elif name == "replace":
        check_method(budget, "replace", tuple(map(str, [value, *options[:2]])))
    elif name == "join":
        check_method(budget, "join", (str(options[0]) if options else "", value))
    elif name == "format":
        _check_format(budget, str(value), options)


def _check_options(name: str, value: Any, options: list[Any]) -> None:
    if name in _WITH_WIDTHS:
        for option in options:
            if isinstance(option, int | float) and abs(option) > _MAX_WIDTH:
                raise LimitExceeded(f"{name}: got {option}, expected at most {_MAX_WIDTH}")
    if name in _ITEM_BY_ITEM and isinstance(value, Sized) and len(value) > _MAX_ITEMS:
        raise LimitExceeded(f"{name}: got {len(value)} items, expected at most {_MAX_ITEMS}")
    if name == "sum" and any(isinstance(option, list | tuple) for option in options):
        raise LimitExceeded("sum: got a list, expected numbers")
    if name == "indent" and not isinstance(value, str):
        # Jinja would append to a list in place, which may be an argument of the template.
        raise jinja2.TemplateError(f"indent: got {type(value).__name__}, expected a text")


def _check_format(budget: Budget, form: str, values: Any) -> None:
    if _WIDE.search(form):
        raise LimitExceeded(f"%: a field is wider than {_MAX_WIDTH} characters")
    budget.require(size_of(form) + form.count("%") * (_MAX_WIDTH + budget.size_of(values)))


def _check_power(base: Any, exponent: Any) -> None:
    if (
        isinstance(base, int)
        and isinstance(exponent, int)
        and base.bit_length() * exponent > 2 * MAX_BITS
    ):
        raise LimitExceeded(f"a number of more than {MAX_BITS} bits")
