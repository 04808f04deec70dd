"""Jinja for templates from untrusted sources: its sandbox, with limits on time and memory.

The limits are checked wherever a template can make a value: in each turn of a loop, each call and
filter, comparison and test, each literal that holds values, `+ * ** % ~`, slices, what a macro is
given besides its own arguments, and each value that is written. Results that may be much larger
than their arguments are estimated beforehand (template_operations.py).

Not limited are single steps in C on values within the limits, which take milliseconds each.
"""

from __future__ import annotations

import functools
import itertools
import json
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.runtime import Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Cycler, Namespace
from jinja2.visitor import NodeTransformer
from typing_extensions import override

from hearthd.text.templates.template_budget import ITEM_BYTES, Budget, LimitExceeded, size_of
from hearthd.text.templates.template_operations import (
    METHODS,
    REMOVED_FILTERS,
    ChangeableList,
    check_change,
    check_fields,
    check_filter,
    check_method,
    check_operator,
    fix_lists,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from jinja2.parser import Parser
    from jinja2.runtime import Context

MAX_SOURCE = 200_000  # characters; the longest of known models has 30 000
MAX_NODES = 10_000  # of the syntax tree; templates of known models have at most 1300


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox with limits: load templates and render them, one at a time."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, *, functions: Mapping[str, Callable[..., Any]]) -> None:
        """`functions` are the ones that templates may call besides Jinja's own."""
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[loopcontrols, _Generation],
            finalize=self._written,
        )
        self._rendering = threading.Lock()
        self._budget = Budget()
        self.filters = {
            name: self._limited(name, function)
            for name, function in (self.filters | {"tojson": self._to_json}).items()
            if name not in REMOVED_FILTERS
        }
        del self.globals["lipsum"]
        self.globals |= {"namespace": _Namespace, **functions}

    def load(self, source: str) -> tuple[jinja2.Template, set[str]]:
        """Compile a template; return it and its free variables. Raises only TemplateError."""
        if len(source) > MAX_SOURCE:
            raise LimitExceeded(f"got {len(source)} characters, expected at most {MAX_SOURCE}")
        with self._rendering:
            self._budget.restart()
            try:
                tree = self.parse(source)
                _check_nodes(tree)
                names = meta.find_undeclared_variables(tree)
                return self.from_string(_Checks(self).visit(self.parse(source))), names
            # From Jinja and Python's compiler, for deep nesting and invalid numbers.
            except (ArithmeticError, MemoryError, RecursionError, SyntaxError, ValueError) as error:
                raise jinja2.TemplateError(f"{type(error).__name__}: {error}") from error

    def render(self, template: jinja2.Template, variables: Mapping[str, Any]) -> str:
        """The text that a template writes; raises LimitExceeded and whatever the template does."""
        with self._rendering:
            self._budget.restart()
            return template.render(variables)

    # Methods that compiled templates call.

    def check_time(self) -> bool:
        """True, or LimitExceeded."""
        self._budget.check_time()
        return True

    def checked(self, value: Any) -> Any:
        """Count a new value, and return it."""
        self._budget.spend(self._budget.size_of(value))
        fix_lists(value)
        return value

    def changeable(self, value: list[Any]) -> ChangeableList:
        """A list that the template writes, counted: it may add to it."""
        changeable = ChangeableList(value)
        self.checked(changeable)
        return changeable

    def sliced(self, value: Any) -> Any:
        """Count a slice, whose items were counted with what it is a slice of."""
        self.check_time()
        is_text = isinstance(value, str)
        self._budget.spend(size_of(value) if is_text else ITEM_BYTES * (1 + len(value)))
        return value

    def joined(self, *parts: Any) -> str:
        """The operator `~`."""
        for part in parts:
            self._budget.require(self._budget.size_of(part))
        return self.concat(map(str, parts))

    @override
    def concat(self, parts: Iterable[str]) -> str:
        """Join the parts of a text; Jinja calls this for blocks, macros and whole templates."""
        texts, size = [], 0
        for part in parts:
            size += self._budget.size_of(part)
            self._budget.require(size)
            texts.append(part)
        self._budget.spend(size)
        return "".join(texts)

    @override
    def call(self, context: Context, called: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a function or method, with checks."""
        self.check_time()
        owner = getattr(called, "__self__", None)
        if isinstance(owner, str):
            check_method(self._budget, called.__name__, (owner, *args))
        elif isinstance(owner, ChangeableList) and called.__name__ in ("append", "pop"):
            check_change(self._budget, owner, args)
        elif called is Cycler:
            self.checked(args)
        elif isinstance(called, Macro):
            self._check_surplus(called, args, kwargs)
        return self.checked(super().call(context, called, *args, **kwargs))

    @override
    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Apply a binary operator, with checks."""
        self.check_time()
        check_operator(self._budget, operator, left, right)
        return self.checked(super().call_binop(context, operator, left, right))

    @override
    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """As Jinja's; of Python's own values only METHODS."""
        known = next((names for type_, names in METHODS.items() if isinstance(obj, type_)), None)
        if isinstance(obj, ChangeableList):
            return attr in METHODS[ChangeableList]
        return (known is None or attr in known) and super().is_safe_attribute(obj, attr, value)

    @override
    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`format` of a text, with checks; None for other values."""
        text = getattr(value, "__self__", None)
        if not isinstance(text, str) or value != text.format:
            return None

        @functools.wraps(value)
        def limited(*args: Any, **kwargs: Any) -> str:
            check_fields(self._budget, text, (args, kwargs))
            return text.format(*args, **kwargs)

        return limited

    # Methods that templates cannot reach.

    def _check_surplus(self, macro: Macro, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Count `varargs` and `kwargs` of a macro, which hold what it has no arguments for."""
        if macro.catch_varargs:
            self.checked(args[len(macro.arguments) :])
        if macro.catch_kwargs:
            self.checked({k: v for k, v in kwargs.items() if k not in macro.arguments})

    def _limited(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter with checks. An attribute of it tells Jinja which other arguments it takes."""
        leading = int(hasattr(function, "jinja_pass_arg"))

        @functools.wraps(function)
        def limited(*args: Any, **kwargs: Any) -> Any:
            self.check_time()
            arguments = [self._materialized(arg) for arg in args]
            check_filter(self._budget, name, arguments[leading:], kwargs)
            result = function(*arguments, **kwargs)
            # An iterator stays one: in a condition it is true even when it is empty.
            return iter(self._materialized(result)) if _is_lazy(result) else self.checked(result)

        return limited

    def _materialized(self, value: Any) -> Any:
        """A list in place of an iterator, whose items would not be counted."""
        return [self.checked(item) for item in value] if _is_lazy(value) else value

    def _written(self, value: Any) -> Any:
        """Check a value in `{{ }}`."""
        self.check_time()
        return self.checked(value)

    def _to_json(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """JSON without escapes for HTML, which Jinja's own filter adds and no model expects."""
        encoder = json.JSONEncoder(
            ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )
        if indent is None and separators is None:
            return encoder.encode(value)
        return self.concat(encoder.iterencode(value))


class _Generation(Extension):
    """`{% generation %}`, which marks the model's words for training. Here it is only its body."""

    @override
    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


_Generation.tags = {"generation"}


class _Namespace(Namespace):
    """Namespaces can hold one another, so their text does not show what they hold."""

    @override
    def __repr__(self) -> str:
        return "<Namespace>"


class _Checks(NodeTransformer):
    """Insert checks where a template can take time or memory without a call."""

    def __init__(self, environment: LimitedEnvironment) -> None:
        self._environment = environment

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        """Check the time in each turn, and for each item that the loop's condition skips."""
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
        """Count a literal that holds values; one of constants is as small as its source.

        The template may add to its lists.
        """
        self.generic_visit(node)
        if isinstance(node, nodes.List):
            return self._placed(self._call("changeable", [node]))
        if isinstance(node, nodes.Tuple) and node.ctx != "load":
            return node
        if all(isinstance(item, nodes.Const) for item in node.iter_child_nodes()):
            return node
        return self._placed(self._call("checked", [node]))

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        """Count a slice, which is a copy."""
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        return self._placed(self._call("sliced", [node]))

    def visit_Compare(self, node: nodes.Compare | nodes.Test) -> nodes.Node:  # noqa: N802
        """Check the time: comparing long lists takes milliseconds."""
        self.generic_visit(node)
        return self._placed(nodes.And(self._call("check_time", []), node))

    visit_Test = visit_Compare  # noqa: N815
    visit_Tuple = visit_Dict = visit_List  # noqa: N815

    def _call(self, method: str, args: list[nodes.Expr]) -> nodes.Expr:
        return nodes.Call(nodes.EnvironmentAttribute(method), args, [], None, None)

    def _placed(self, node: nodes.Node) -> nodes.Node:
        return node.set_environment(self._environment).set_lineno(node.lineno or 1)


def _check_nodes(tree: nodes.Template) -> None:
    """Raise LimitExceeded for a tree that takes seconds and hundreds of MB to compile."""
    if next(itertools.islice(tree.find_all(nodes.Node), MAX_NODES, None), None) is not None:
        raise LimitExceeded(
            f"got more than {MAX_NODES} names, values, operators and statements, expected fewer"
        )


def _is_lazy(value: Any) -> bool:
    return isinstance(value, Iterator)
