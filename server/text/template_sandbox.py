"""Jinja for templates that nobody vouches for: its sandbox, with limits on time and memory.

A rendering has SECONDS of the processor, and three times as long on a busy machine, and may make
values of MOST_BYTES in all, whether it keeps them or not.
Both are looked at wherever a template can make something: in each turn of a loop, each call and
filter, each literal that holds values, `+ * ** % ~`, and each value that is written. Where one step
could make far more than it is given (`'x' * 10**9`, `replace`, `join`), its result is computed
beforehand, and methods and filters that could do so and that no chat template needs are left out.

What is not limited: one step in C on values that are within the limits, which takes milliseconds,
and comparisons, of which a template of LONGEST_SOURCE holds too few to matter.

It knows Jinja and no conversations.
"""

from __future__ import annotations

import functools
import json
import re
import sys
import threading
import time
from collections.abc import Iterator, Sized
from typing import TYPE_CHECKING, Any

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from jinja2.runtime import Context

SECONDS = 2.0
MOST_BYTES = 128 << 20
LONGEST_SOURCE = 200_000  # characters; the longest of known models has 30 000
# Seconds between two looks at the processor's clock, which costs far more to ask than the other.
_LOOK_EVERY = 0.01
_ITEM_BYTES = 64  # what a number, or a place in a list, takes at most
_MOST_BITS = 64
_WIDEST = 100
# Items, or characters of a text, that one filter may look at one by one.
_MOST_ITEMS = 250_000
# A part of a %-format that asks for more than _WIDEST characters of its own.
_WIDE = re.compile(r"%[^a-zA-Z%]*(\d{3}|\*)")

# What a template may call of Python's own values.
_METHODS: Mapping[type, frozenset[str]] = {
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
_ITEM_BY_ITEM = frozenset(
    "batch dictsort groupby join list map max min reject rejectattr select selectattr slice sort "
    "sum unique".split()
)
_SPLITTERS = frozenset("rsplit split splitlines".split())
# What parts words and lines.
_BLANKS = (
    " \t\n\r\v\f\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007"
    "\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
# How many times its text a filter may take, also while it works.
_GROWTH = {
    "e": 8, "escape": 8, "forceescape": 8, "striptags": 4, "title": 32, "tojson": 8,
    "urlencode": 16, "wordcount": 32,
}  # fmt: skip
_LEFT_OUT = frozenset("center pprint urlize wordwrap xmlattr".split())
# Filters whose numbers say how wide or how many.
_WIDTHS = frozenset("batch indent round slice tojson truncate".split())


class LimitExceeded(jinja2.TemplateError):
    """A template takes too long, or makes too much."""


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox with limits; it loads templates and renders them."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, *, functions: Mapping[str, Callable[..., Any]]) -> None:
        """`functions` are what templates may call besides Jinja's own."""
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols], finalize=self._written
        )
        self._rendering = threading.Lock()
        self._begin()
        self.filters = {
            name: self._limited(name, function)
            for name, function in (self.filters | {"tojson": self._to_json}).items()
            if name not in _LEFT_OUT
        }
        del self.globals["lipsum"]
        self.globals |= {"namespace": _Namespace, **functions}

    def load(self, source: str) -> tuple[jinja2.Template, set[str]]:
        """A template, and the names that it takes from outside; raises TemplateError, only that."""
        if len(source) > LONGEST_SOURCE:
            raise LimitExceeded(f"{len(source)} characters, wanted at most {LONGEST_SOURCE}")
        with self._rendering:
            self._begin()
            try:
                names = meta.find_undeclared_variables(self.parse(source))
                return self.from_string(_Checks(self).visit(self.parse(source))), names
            # Jinja and Python's compiler, on what is nested too deeply or no number.
            except (ArithmeticError, MemoryError, RecursionError, SyntaxError, ValueError) as error:
                raise jinja2.TemplateError(f"{type(error).__name__}: {error}") from error

    def render(self, template: jinja2.Template, variables: Mapping[str, Any]) -> str:
        """What a template writes; raises whatever it raises, and LimitExceeded."""
        with self._rendering:
            self._begin()
            return template.render(variables)

    def _begin(self) -> None:
        self._left = MOST_BYTES
        self._ends = time.thread_time() + SECONDS
        self._latest = time.monotonic() + 3 * SECONDS
        self._look = 0.0

    # What compiled templates call.

    def check_time(self) -> bool:
        """True, or LimitExceeded."""
        now = time.monotonic()
        if now < self._look:
            return True
        self._look = now + _LOOK_EVERY
        if time.thread_time() > self._ends or now > self._latest:
            raise LimitExceeded(f"the template takes longer than {SECONDS:g} s")
        return True

    def checked(self, value: Any) -> Any:
        """A value that has just been made, counted."""
        self._left -= _size(value, self._left)
        self._allow(0)
        return value

    def joined(self, *parts: Any) -> str:
        """The operator `~`."""
        return self.concat(map(str, parts))

    def concat(self, parts: Iterable[str]) -> str:
        """The parts of a text as one; Jinja calls it for blocks, macros and whole templates."""
        found, size = [], 0
        for part in parts:
            size += _size(part, self._left)
            self._allow(size)
            found.append(part)
        self._left -= size
        return "".join(found)

    def call(self, context: Context, called: Any, *args: Any, **kwargs: Any) -> Any:
        """As Jinja's, counted."""
        self.check_time()
        owner = getattr(called, "__self__", None)
        if isinstance(owner, str):
            self._allow_text(called.__name__, (owner, *args))
        return self.checked(super().call(context, called, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """As Jinja's, counted."""
        self.check_time()
        if operator == "*":
            for times, value in ((left, right), (right, left)):
                if isinstance(times, int) and isinstance(value, Sized):
                    empty = _size("") if isinstance(value, str) else 0
                    self._allow(max(times, 0) * (_size(value, self._left) - empty))
        elif operator == "**":
            _allow_power(left, right)
        elif operator == "%" and isinstance(left, str):
            self._allow_format(left, right)
        return self.checked(super().call_binop(context, operator, left, right))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """As Jinja's; of Python's own values only what is known to be small."""
        known = next((names for kind, names in _METHODS.items() if isinstance(obj, kind)), None)
        return (known is None or attr in known) and super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> None:
        """Texts have no `format` here."""

    # What they cannot reach.

    def _limited(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter with its checks; Jinja knows by an attribute what else it is given."""
        leading = int(hasattr(function, "jinja_pass_arg"))

        @functools.wraps(function)
        def limited(*args: Any, **kwargs: Any) -> Any:
            self.check_time()
            given = [self._whole(arg) for arg in args]
            self._allow_filter(name, given[leading:], kwargs)
            result = function(*given, **kwargs)
            # Still an iterator, which is true even when nothing comes.
            return iter(self._whole(result)) if _is_lazy(result) else self.checked(result)

        return limited

    def _whole(self, value: Any) -> Any:
        """A list in place of what would come piece by piece, unlimited."""
        return [self.checked(item) for item in value] if _is_lazy(value) else value

    def _written(self, value: Any) -> Any:
        """What stands in `{{ }}`."""
        self.check_time()
        return self.checked(value)

    def _allow(self, size: float) -> None:
        if size > self._left:
            raise LimitExceeded(f"the template makes more than {MOST_BYTES} bytes")

    def _allow_text(self, method: str, args: tuple[Any, ...]) -> None:
        if method == "replace" and len(args) >= 3 and all(isinstance(a, str) for a in args[:3]):
            text, old, new = args[:3]
            self._allow(_size(text) + text.count(old) * _size(new))
        elif method == "join":
            separator, items = args[0], args[1] if len(args) > 1 else ()
            places = len(items) if isinstance(items, Sized) else 0
            self._allow(_size(items, self._left) + places * _size(separator))
        elif method in _SPLITTERS and len(args[0]) > _MOST_ITEMS:
            text, *separators = args
            known = [part for part in separators if isinstance(part, str) and part]
            places = sum(map(text.count, known or _BLANKS))
            self._allow(_size(text) + places * _ITEM_BYTES)

    def _allow_format(self, form: str, values: Any) -> None:
        if _WIDE.search(form):
            raise LimitExceeded(f"a % that writes more than {_WIDEST} characters of its own")
        self._allow(_size(form) + form.count("%") * (_WIDEST + _size(values, self._left)))

    def _allow_filter(self, name: str, args: list[Any], kwargs: Mapping[str, Any]) -> None:
        value, *options = args or [None]
        options += kwargs.values()
        _allow_options(name, value, options)
        if name in _GROWTH:
            self._allow(_size(value, self._left) * _GROWTH[name])
        if name == "indent":
            widest = max((_size(o) for o in options if isinstance(o, str)), default=_WIDEST)
            self._allow(value.count("\n") * widest)
        elif name == "replace":
            self._allow_text("replace", tuple(map(str, [value, *options[:2]])))
        elif name == "join":
            self._allow_text("join", (str(options[0]) if options else "", value))
        elif name == "format":
            self._allow_format(str(value), options)

    def _to_json(self, value: Any, indent: int | None = None, **options: Any) -> str:
        """Jinja's own filter escapes HTML, which no model was trained on."""
        if indent is None and "separators" not in options:
            return json.dumps(value, ensure_ascii=False, **options)
        encoder = json.JSONEncoder(ensure_ascii=False, indent=indent, **options)
        return self.concat(encoder.iterencode(value))


class _Namespace(Namespace):
    """Namespaces may hold one another: their text leaves out what they hold."""

    def __repr__(self) -> str:
        return "<Namespace>"


class _Checks(NodeTransformer):
    """Puts checks where a template could go on for long, or make much, without a call."""

    def __init__(self, environment: LimitedEnvironment) -> None:
        self._environment = environment

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        """Each turn, and each item that is left out, looks at the time."""
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(self._call("check_time", [])))
        if node.test is not None:
            node.test = nodes.And(self._call("check_time", []), node.test)
        return self._placed(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        """The operator `~`."""
        self.generic_visit(node)
        return self._placed(self._call("joined", node.nodes))

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802
        """A literal of values; one of constants is as small as its source."""
        self.generic_visit(node)
        if isinstance(node, nodes.Tuple) and node.ctx != "load":
            return node
        if all(isinstance(item, nodes.Const) for item in node.iter_child_nodes()):
            return node
        return self._placed(self._call("checked", [node]))

    visit_Tuple = visit_Dict = visit_List  # noqa: N815

    def _call(self, method: str, args: list[nodes.Expr]) -> nodes.Expr:
        return nodes.Call(nodes.EnvironmentAttribute(method), args, [], None, None)

    def _placed(self, node: nodes.Node) -> nodes.Node:
        return node.set_environment(self._environment).set_lineno(node.lineno or 1)


def _is_lazy(value: Any) -> bool:
    return isinstance(value, Iterator)


def _size(value: Any, enough: float = sys.maxsize) -> int:
    """About how many bytes a value takes, with all that it holds; counting ends beyond `enough`."""
    if isinstance(value, str):
        return sys.getsizeof(value)
    if isinstance(value, int):
        if value.bit_length() > _MOST_BITS:
            raise LimitExceeded(f"a number of more than {_MOST_BITS} bits")
        return _ITEM_BYTES
    if not isinstance(value, dict | list | tuple):
        return _ITEM_BYTES
    size = _ITEM_BYTES * (1 + len(value))
    items = (part for pair in value.items() for part in pair) if isinstance(value, dict) else value
    for item in items:
        if size > enough:
            break
        size += _size(item, enough - size)
    return size


def _allow_options(name: str, value: Any, options: list[Any]) -> None:
    """Raise what is wrong with the arguments of a filter."""
    if name in _WIDTHS:
        for option in options:
            if isinstance(option, int | float) and abs(option) > _WIDEST:
                raise LimitExceeded(f"{name}({option}), wanted at most {_WIDEST}")
    if name in _ITEM_BY_ITEM and isinstance(value, Sized) and len(value) > _MOST_ITEMS:
        raise LimitExceeded(f"{name} of {len(value)} items, wanted at most {_MOST_ITEMS}")
    if name == "sum" and any(isinstance(option, list | tuple) for option in options):
        raise LimitExceeded("sum adds numbers only")
    if name == "indent" and not isinstance(value, str):
        # Jinja would append to a list, which is not its own.
        raise jinja2.TemplateError(f"indent of {type(value).__name__}, wanted a text")


def _allow_power(base: Any, exponent: Any) -> None:
    if (
        isinstance(base, int)
        and isinstance(exponent, int)
        and base.bit_length() * exponent > 2 * _MOST_BITS
    ):
        raise LimitExceeded(f"a number of more than {_MOST_BITS} bits")
