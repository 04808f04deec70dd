"""A conversation in the terminal: lines in, answers out, until the reader leaves.

An answer that was interrupted stays in the conversation as far as it came; a question that could
not be answered does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.errors import InvalidRequest, ServerError
from server.terminal.session import figures

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.api.generation_fields import GenerationFields
    from server.terminal.session import Session
    from server.text.chat_template import Message

PROMPT = "> "
_COMMANDS = "/clear forgets the conversation, /exit leaves; Ctrl-C ends an answer"


def converse(
    session: Session,
    fields: GenerationFields,
    *,
    system: str | None,
    show: Callable[[str], None],
    note: Callable[[str], None],
) -> None:
    """Talk until /exit or the end of the input; raises InvalidRequest if there is no template.

    `show` takes the text of answers, `note` lines of what is not answer.
    """
    opening: list[Message] = [{"role": "system", "content": system}] if system else []
    session.service.template.prompt([*opening, {"role": "user", "content": "x"}])
    note(_COMMANDS)
    messages = list(opening)
    while (line := _ask(show)) is not None:
        match line.split():
            case []:
                continue
            case ["/exit"]:
                return
            case ["/clear"]:
                messages = list(opening)
                note("a new conversation")
            case [word, *_] if word.startswith("/"):
                note(f"{word} is no command: {_COMMANDS}")
            case _:
                messages = _turn(session, fields, messages, line, show, note)


def _ask(show: Callable[[str], None]) -> str | None:
    """The next line; an empty one on Ctrl-C, None at the end of the input."""
    try:
        return input(PROMPT)
    except KeyboardInterrupt:
        show("\n")
        return ""
    except EOFError:
        show("\n")
        return None


def _turn(
    session: Session,
    fields: GenerationFields,
    before: list[Message],
    question: str,
    show: Callable[[str], None],
    note: Callable[[str], None],
) -> list[Message]:
    """Answer a question; the conversation after it."""
    messages: list[Message] = [*before, {"role": "user", "content": question}]
    pieces: list[str] = []

    def write(text: str) -> None:
        pieces.append(text)
        show(text)

    try:
        prompt = session.service.template.prompt(messages)
        request = fields.completion(prompt.ids, max_tokens=None, logprobs=None)
        told = figures(session.answer(request, write))
    except KeyboardInterrupt:
        told = "interrupted"
    except ServerError as error:
        hint = ": /clear begins anew" if isinstance(error, InvalidRequest) else ""
        note(f"{error}{hint}")
        return before
    show("\n")
    note(told)
    return [*messages, {"role": "assistant", "content": "".join(pieces)}]
