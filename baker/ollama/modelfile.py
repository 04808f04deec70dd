"""Modelfiles: `hearth bake Modelfile` takes what `ollama create -f Modelfile` does.

Source: Ollama, parser/parser.go and docs/modelfile.mdx.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hearthd.baker.hub.reference import is_reference
from hearthd.baker.ollama.described_model import OTHER_TEMPLATE, DescribedModel
from hearthd.baker.ollama.ollama_store import PREFIX, find_stored, is_stored
from hearthd.baker.weights.source import NoWeights
from hearthd.bundle import PresetMessage, bundle_home
from hearthd.bundle.kept_bundles import name_of
from hearthd.bundle.parsing.text_files import read_text
from hearthd.bundle.parsing.typed_json import typed
from hearthd.text.preset_options import changed, combined, preset_fields

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_FILE = "modelfile"
_MAX_BYTES = 1 << 20
_OTHER_CODE = "is not used: it names code of Ollama that stands for a chat template"
_NOT_USED = {
    "TEMPLATE": OTHER_TEMPLATE,
    "RENDERER": _OTHER_CODE,
    "PARSER": _OTHER_CODE,
    "REQUIRES": "is not used: it is a version of Ollama",
}
_COMMANDS = ("FROM", "PARAMETER", "SYSTEM", "ADAPTER", "MESSAGE", "LICENSE", *_NOT_USED)
# Commands with a word before their value: the name of a parameter, or the role of a message.
_WITH_WORD = ("PARAMETER", "MESSAGE")


class BadModelfile(NoWeights):
    """A Modelfile cannot be used. The message names the file and the line."""


class Instruction(NamedTuple):
    """An instruction; `place` is its file and line, and `word` as in _WITH_WORD."""

    place: str
    command: str
    word: str
    value: str


def described(model: str) -> DescribedModel | None:
    """What a text names, if it is a Modelfile or a model of Ollama.

    Raises BadModelfile or another NoWeights.
    """
    if is_stored(model):
        return find_stored(model)
    path = bundle_home.typed_path(model)
    return read_modelfile(path) if is_modelfile(path) else None


def is_modelfile(path: Path) -> bool:
    """Whether a file is a Modelfile: it begins with an instruction, and has a line FROM."""
    try:
        if not path.is_file() or path.stat().st_size > _MAX_BYTES:
            return False
        lines = [line.split() for line in read_text(path).splitlines()]
    except (OSError, ValueError):
        return False
    commands = [words[0].upper() for words in lines if words and not words[0].startswith("#")]
    return commands[:1] != [] and commands[0] in _COMMANDS and "FROM" in commands


def read_modelfile(path: Path) -> DescribedModel:
    """The model that a Modelfile describes; raises BadModelfile or another NoWeights."""
    instructions = list(_instructions(path))
    bases, adapters = (
        [given for given in instructions if given.command == command]
        for command in ("FROM", "ADAPTER")
    )
    if not bases:
        raise BadModelfile(f"{path}: it has no line FROM, which names the model")
    model = _base(bases[0], path.parent)
    if "adapter" in model.files and adapters:
        raise BadModelfile(
            f"{adapters[0].place}: ADAPTER: the model of FROM has an adapter already, "
            f"{model.files['adapter']}; expected one; merge one into the weights"
        )
    fields: dict[str, Any] = {}
    for given in instructions:
        fields = combined(fields, _changes(given, fields))
    return replace(
        model,
        name=_name(path),
        files={
            **model.files,
            **_only_file("mmproj", bases[1:], path.parent),
            **_only_file("adapter", adapters, path.parent),
        },
        preset=changed(model.preset, fields),
        notes=(*model.notes, *_notes(instructions)),
    )


def _changes(given: Instruction, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a preset that an instruction sets after others; raises BadModelfile."""
    match given.command:
        case "SYSTEM":
            return {"system": given.value}
        case "LICENSE":
            return {"license": "\n\n".join(filter(None, [fields.get("license"), given.value]))}
        case "MESSAGE":
            return {"messages": (*fields.get("messages", ()), _message(given))}
        case "PARAMETER":
            name, value = given.word.lower(), given.value
            stops = [*fields.get("stop", ()), value]
            try:
                return preset_fields({name: stops if name == "stop" else _number(value)})
            except ValueError as error:
                raise BadModelfile(f"{given.place}: PARAMETER {error}") from error
    return {}


def _message(given: Instruction) -> PresetMessage:
    try:
        return typed(PresetMessage, {"role": given.word.lower(), "content": given.value})
    except ValueError as error:
        raise BadModelfile(f"{given.place}: MESSAGE {error}") from error


def _number(text: str) -> Any:
    """The number of a text, which may be one in a Modelfile; or the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _base(given: Instruction, folder: Path) -> DescribedModel:
    """The model that FROM names: a path, or a model of Ollama or of the hub."""
    value = given.value
    path = folder / bundle_home.expanded(Path(value))
    if is_modelfile(path):
        raise BadModelfile(f"{given.place}: FROM: {path} is a Modelfile, expected a model")
    if path.exists():
        return DescribedModel(base=str(path.absolute()), name=name_of(path))
    if value.startswith((".", "/", "~")) or value.endswith(".gguf"):
        raise BadModelfile(f"{given.place}: FROM: {path} does not exist")
    try:
        return find_stored(value if value.startswith(PREFIX) else f"{PREFIX}{value}")
    except NoWeights as error:
        if is_reference(value):
            return DescribedModel(base=value, name=value)
        raise BadModelfile(f"{given.place}: FROM {error}") from error


def _only_file(option: str, given: Sequence[Instruction], folder: Path) -> dict[str, Path]:
    """The file of the only instruction, if there is one, for an option of the bake."""
    if not given:
        return {}
    place, command, _, value = given[0]
    path = (folder / bundle_home.expanded(Path(value))).absolute()
    if not path.exists():
        raise BadModelfile(f"{place}: {command}: {path} does not exist")
    if len(given) > 1:
        raise BadModelfile(f"{given[1].place}: {command}: got another one, expected one {option}")
    return {option: path}


def _notes(instructions: Sequence[Instruction]) -> list[str]:
    """What is not used: a sentence for the first instruction of each command."""
    firsts: dict[str, str] = {}
    for given in instructions:
        if reason := _NOT_USED.get(given.command):
            firsts.setdefault(given.command, f"{given.place}: {given.command} {reason}")
    return list(firsts.values())


def _name(path: Path) -> str:
    """A name for a bundle: of Modelfile the folder's, and of X.modelfile or Modelfile.X it is X."""
    stem, _, suffix = path.name.partition(".")
    if stem.lower() != _FILE:
        return path.stem
    return suffix or path.absolute().parent.name


def _instructions(path: Path) -> Iterator[Instruction]:
    """The instructions of a file; raises BadModelfile."""
    try:
        lines = enumerate(read_text(path).splitlines(), 1)
    except (OSError, ValueError) as error:
        raise BadModelfile(f"{path}: {error}") from error
    for number, line in lines:
        place = f"{path}:{number}"
        command, rest = _split(line)
        if not command or command.startswith("#"):
            continue
        command, word = command.upper(), ""
        if command not in _COMMANDS:
            expected = ", ".join(_COMMANDS)
            raise BadModelfile(f"{place}: got {command:.40}, expected one of {expected}")
        if command in _WITH_WORD:
            word, rest = _split(rest)
        value = _value(rest, lines)
        if value is None:
            raise BadModelfile(f"{place}: {command}: its quotes do not end")
        if not value and not rest:
            raise BadModelfile(f"{place}: {f'{command} {word}'.rstrip()}: the value is missing")
        yield Instruction(place, command, word, value)


def _split(line: str) -> tuple[str, str]:
    """The first word of a line, and the rest."""
    word, *rest = line.split(maxsplit=1) or [""]
    return word, rest[0].strip() if rest else ""


def _value(first: str, lines: Iterator[tuple[int, str]]) -> str | None:
    """A value without its quotes, which may end in a later line; None if they do not end."""
    quotes = next((quotes for quotes in ('"""', '"') if first.startswith(quotes)), "")
    if not quotes:
        return first
    read = [first[len(quotes) :]]
    while not read[-1].endswith(quotes):
        following = next(lines, None)
        if following is None:
            return None
        read.append(following[1].rstrip())
    return "\n".join(read).removesuffix(quotes)
