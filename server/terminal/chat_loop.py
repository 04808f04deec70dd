"""A conversation in the terminal: read a line, print the answer, repeat.

An interrupted answer stays in the conversation. A message that got an error does not, and no such
error ends the conversation.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from hearthd.server.fault_isolation import STOPS
from hearthd.server.terminal.session import usage_line
from hearthd.text.conversation import Conversation, Message
from hearthd.text.errors import InvalidRequest, RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hearthd.server.api.generation_fields import GenerationFields
    from hearthd.server.services.language_service import LanguageService
    from hearthd.server.terminal.session import Session
    from hearthd.text.text_request import TextRequest

log = logging.getLogger(__name__)

PROMPT = "> "
_COMMANDS = "/clear starts a new conversation, /exit exits, Ctrl-C stops an answer"


def converse(
    session: Session[LanguageService],
    fields: GenerationFields,
    *,
    system: str | None,
    max_tokens: int | None,
    show: Callable[[str], None],
    note: Callable[[str], None],
) -> None:
    """Run until /exit or the end of the input; raises InvalidRequest without a chat template.

    `max_tokens` limits each answer. `show` prints text of answers, `note` prints other lines.
    """
    opening = [Message(role="system", parts=[system])] if system else []
    _prompt(session, [*opening, Message(role="user", parts=["x"])])
    note(_COMMANDS)
    messages = list(opening)
    complete = partial(fields.completion, max_tokens=max_tokens, logprobs=None)
    while (line := _read_line(show)) is not None:
        match line.split():
            case []:
                continue
            case ["/exit"]:
                return
            case ["/clear"]:
                messages = list(opening)
                note("new conversation")
            case [word, *_] if word.startswith("/"):
                note(f"{word} is not a command: {_COMMANDS}")
            case _:
                messages = _turn(session, complete, messages, line, show, note)


def _read_line(show: Callable[[str], None]) -> str | None:
    """Read a line. Return an empty one on Ctrl-C, and None at the end of the input."""
    try:
        return input(PROMPT)
    except KeyboardInterrupt:
        show("\n")
        return ""
    except EOFError:
        show("\n")
        return None


def _turn(
    session: Session[LanguageService],
    complete: Callable[[tuple[int, ...]], TextRequest],
    history: list[Message],
    message: str,
    show: Callable[[str], None],
    note: Callable[[str], None],
) -> list[Message]:
    """Answer a message; return the conversation after it."""
    messages = [*history, Message(role="user", parts=[message])]
    pieces: list[str] = []

    def write(text: str) -> None:
        pieces.append(text)
        show(text)

    try:
        status = usage_line(session.answer(complete(_prompt(session, messages)), write))
    except KeyboardInterrupt:
        status = "interrupted"
    except RequestError as error:
        hint = "; /clear starts a new conversation" if isinstance(error, InvalidRequest) else ""
        note(f"{error}{hint}")
        return history
    except (*STOPS, OSError):  # OSError: the terminal was closed
        raise
    except BaseException:
        log.exception("an answer failed: internal error")
        return history
    show("\n")
    note(status)
    return [*messages, Message(role="assistant", parts=["".join(pieces)])]


def _prompt(session: Session[LanguageService], messages: Sequence[Message]) -> tuple[int, ...]:
    """The token ids of the prompt for a conversation; raises InvalidRequest."""
    return session.service.template.prompt(Conversation(messages=messages).as_template()).ids
