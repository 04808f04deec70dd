"""The commands of a chat, such as /set: what a line calls that begins with a slash."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hearthd import flags
from hearthd.bundle import BundleError
from hearthd.find_or_bake import find_or_bake
from hearthd.server.terminal.chat import BadConversation, Chat
from hearthd.server.terminal.typed_fields import SETTABLE, settable_field
from hearthd.text.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULT = "default"  # the word that resets a field
# Exceptions of a command that leave the chat as it was.
_ERRORS = (flags.BadFlag, BadConversation, BundleError, RequestError, OSError)


class Leave(Exception):
    """The user ends the chat."""


class ChatCommand(NamedTuple):
    """One command: what it does, and returns to print, with the text after its name."""

    arguments: str
    summary: str
    run: Callable[[Chat, str], str]


_SYNONYMS = {"/exit": "/bye", "/quit": "/bye", "/?": "/help"}  # as in other programs


def run_command(chat: Chat, line: str) -> str:
    """Run a command; returns what to print. Raises Leave, and KeyboardInterrupt."""
    name, *rest = line.split(maxsplit=1)
    command = COMMANDS.get(_SYNONYMS.get(name, name))
    if command is None:
        near = difflib.get_close_matches(name, COMMANDS) or ["/help"]
        return (
            f"{name} is not a command; did you mean {near[0]}? "
            "A message can begin with a space and a slash."
        )
    try:
        return command.run(chat, rest[0].rstrip() if rest else "")
    except _ERRORS as error:
        return _reason(error)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _help(_: Chat, __: str) -> str:
    commands = [
        f"{f'{name} {command.arguments}':22}{command.summary}" for name, command in COMMANDS.items()
    ]
    return "\n".join([*commands, *_KEYS])


def _set(chat: Chat, text: str) -> str:
    if not text:
        return "\n".join(_value(chat, name) for name in SETTABLE)
    name, *rest = text.split(maxsplit=1)
    if not rest:
        return f"{settable_field(name).description}\n{_value(chat, name)}"
    if rest[0] == DEFAULT:
        chat.reset_field(name)
    else:
        chat.set_field(name, rest[0])
    return _value(chat, name)


def _value(chat: Chat, name: str) -> str:
    return f"{name} = {json.dumps(getattr(chat.fields, name), ensure_ascii=False)}"


def _system(chat: Chat, text: str) -> str:
    chat.set_system(text)
    return "system message replaced" if text else "no system message"


def _save(chat: Chat, text: str) -> str:
    path = _path(text)
    chat.save(path)
    return f"{path}: {_count(chat)} saved"


def _load(chat: Chat, text: str) -> str:
    path = _path(text)
    chat.load(path)
    return f"{path}: {_count(chat)} loaded"


def _path(text: str) -> Path:
    if not text:
        raise BadConversation("FILE is missing, as in /save chat.json")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise BadConversation(f"{text}: {error}") from error


def _count(chat: Chat) -> str:
    count = len(chat.messages)
    return f"{count} message{'' if count == 1 else 's'}"


def _model(chat: Chat, text: str) -> str:
    if text:
        try:
            bundle = find_or_bake(text, chat.home, {}, purpose="chat")
        except SystemExit:  # the bake said why
            return f"{text} was not baked"
        chat.use(bundle)
    manifest = chat.session.service.manifest
    return (
        f"{chat.bundle}: {manifest.architecture} in {manifest.precision}, "
        f"{manifest.context} tokens of context"
    )


def _clear(chat: Chat, _: str) -> str:
    chat.clear()
    return "new conversation"


def _bye(_: Chat, __: str) -> str:
    raise Leave


COMMANDS = {
    "/help": ChatCommand("", "List the commands.", _help),
    "/set": ChatCommand(
        "[FIELD [VALUE]]", f"Show or set a field of requests; {DEFAULT} resets it.", _set
    ),
    "/system": ChatCommand("[TEXT]", "Replace the system message, or remove it.", _system),
    "/save": ChatCommand("FILE", "Save the conversation as JSON messages of OpenAI.", _save),
    "/load": ChatCommand("FILE", "Continue a conversation that was saved.", _load),
    "/model": ChatCommand("[MODEL]", "Show the model, or continue with another one.", _model),
    "/clear": ChatCommand("", "Start a new conversation.", _clear),
    "/bye": ChatCommand("", "Exit, as Ctrl-D does.", _bye),
}
_KEYS = (
    "Ctrl-C stops an answer or clears the line; a second Ctrl-C exits.",
    'A paste is one message, and so is what is between """ and """.',
)
