"""Command-line flags that are derived from the fields of a pydantic model.

The model is the only list of names, ranges and help texts. A flag passes on the text that was
typed, and the model validates it. `json_schema_extra` of a field can name its `group`, a section of
--help, and the `metavar` of its value. A switch with `only_off` has no flag to turn it on:
`hearth serve --slots` is an option of the bake.
"""

from __future__ import annotations

import inspect
import json
import shlex
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args, get_origin

import typer
from pydantic import ByteSize
from typer.core import TyperCommand
from typing_extensions import override

from hearthd.flag_names import flag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

UsageError: Any = typer.BadParameter.__base__  # which has no public name
Command = TypeVar("Command", bound="Callable[..., None]")

_METAVARS = {
    "int": "N",
    "float": "X",
    "Path": "PATH",
    "ByteSize": "SIZE",
    "dict": "JSON",
}


class GroupedOptions(TyperCommand):
    """A command whose --help has one section for each group of the schema's fields.

    Typer writes the type in Python behind an argument, braces around a required one, and a slash
    before a switch that can only be turned off.
    """

    @override
    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Called by Typer."""
        pieces = super().collect_usage_pieces(ctx)
        return [piece.replace("{", "").replace("}", "") for piece in pieces]

    @override
    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Called by Typer."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if record := parameter.get_help_record(ctx):
                name, text = record
                is_argument = parameter.param_type_name == "argument"
                default = "Arguments" if is_argument else "Options"
                section = getattr(parameter, "rich_help_panel", None) or default
                name = name.partition(" <")[0] if is_argument else name.removeprefix(" / ")
                sections.setdefault(section, []).append((name, text))
        for section, records in sections.items():
            with formatter.section(section):
                formatter.write_dl(records)


class BadFlag(Exception):
    """The value of a flag is not valid. The message names the field."""


def takes(
    schema: type[BaseModel], *, leave_out: frozenset[str] = frozenset(), group: str | None = None
) -> Callable[[Command], Command]:
    """Add a flag for every field of the schema to a command that takes `**flags`.

    `group` is the section of --help for the fields that name none.

    The command gets the typed text by the field's name, a list of texts if the flag is repeatable,
    or a bool if it is a switch. Pass these to `typed_values`.
    """

    def derive(command: Command) -> Command:
        declared = [
            parameter
            for parameter in inspect.signature(command).parameters.values()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        flags = [
            _parameter(name, field, section)
            for name, field, section in grouped_fields(schema, group)
            if name not in leave_out
        ]
        parameters = [*declared, *flags]
        # Typer reads a command's parameters from these two attributes.
        vars(command)["__signature__"] = inspect.Signature(parameters, return_annotation=None)
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return derive


def grouped_fields(
    schema: type[BaseModel], group: str | None
) -> list[tuple[str, FieldInfo, str | None]]:
    """The fields of a schema with their groups; the fields that name none are in `group`, last."""
    fields = [
        (name, field, _extra(field).get("group", group))
        for name, field in schema.model_fields.items()
    ]
    return sorted(fields, key=lambda each: "group" not in _extra(each[1]))


def typed_values(schema: type[BaseModel], flags: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the flags that were typed. A field that takes an object is read as JSON."""
    return {
        name: _json(value) if _takes_object(schema.model_fields[name]) else value
        for name, value in flags.items()
        if value not in (None, [])
    }


def value_of(schema: type[BaseModel], name: str, text: str) -> str | list[str]:
    """A text as the value of a flag, for `typed_values`: its words if the flag is repeatable.

    Quotes keep a word together. Raises BadFlag if they are not closed.
    """
    if not _is_repeatable(schema.model_fields[name]):
        return text
    try:
        return shlex.split(text)
    except ValueError as error:
        raise BadFlag(f"{name}: got {text!r}, expected words: {error}") from error


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text  # the model rejects it


def _parameter(name: str, field: FieldInfo, section: str | None) -> inspect.Parameter:
    is_switch = field.annotation is bool
    on, off = "" if _extra(field).get("only_off") else flag(name), flag(f"no_{name}")
    description = field.description or ""
    if is_switch and not on:  # the flag does the reverse of what the field says
        description = f"Do not {description[:1].lower()}{description[1:]}"
    else:
        description += _default(field)
    option = typer.Option(
        f"{on} /{off}" if is_switch else flag(name),
        help=description,
        metavar=None if is_switch else metavar(field),
        show_default=False,
        rich_help_panel=str(section) if section else None,
    )
    value_type = bool if is_switch else list[str] if _is_repeatable(field) else str
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[value_type | None, option],
    )


def metavar(field: FieldInfo) -> str:
    """The value of a flag in --help and in the reference."""
    annotation, named = field.annotation, _extra(field).get("metavar")
    if named:
        return str(named)
    match [type_ for type_ in get_args(annotation) if type_ is not NoneType]:
        case [type_] if NoneType in get_args(annotation):
            annotation = type_
    if get_origin(annotation) is Literal:
        return "|".join(get_args(annotation))
    return next((_METAVARS[name] for name in _type_names(annotation) if name in _METAVARS), "TEXT")


def _extra(field: FieldInfo) -> dict[str, Any]:
    return dict(field.json_schema_extra) if isinstance(field.json_schema_extra, dict) else {}


def _takes_object(field: FieldInfo) -> bool:
    return "dict" in _type_names(field.annotation)


def _is_repeatable(field: FieldInfo) -> bool:
    """Whether the flag may be repeated."""
    types = set(_type_names(field.annotation))
    return "dict" not in types and bool({"tuple", "list"} & types)


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, ByteSize):
        return f"  [default: {_with_unit(value)}]"
    if value is None or value == () or value == [] or field.is_required():
        return ""
    if isinstance(value, bool):
        return f"  [default: {'on' if value else 'off'}]"
    if isinstance(value, list | tuple):
        value = " ".join(map(str, value))
    return f"  [default: {value}]"


def _with_unit(size: int) -> str:
    power = max(p for p in range(4) if size % 1024**p == 0)
    return f"{size // 1024**power} {('bytes', 'KiB', 'MiB', 'GiB')[power]}"


def _type_names(annotation: Any) -> Iterator[str]:
    """The names of the types in an annotation, outermost first."""
    origin = get_origin(annotation)
    if origin is not None:
        yield getattr(origin, "__name__", "")
        for argument in get_args(annotation):
            yield from _type_names(argument)
    else:
        yield getattr(annotation, "__name__", "")
