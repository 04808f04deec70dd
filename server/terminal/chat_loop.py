"""A chat in the terminal: read a message, print the answer, repeat.

An interrupted answer stays in the conversation. A message that got an error does not, and no such
error ends the chat.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from hearthd.server.fault_isolation import STOPS
from hearthd.server.terminal.chat_commands import Leave, run_command
from hearthd.server.terminal.session import usage_line
from hearthd.text.errors import InvalidRequest, RequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearthd.server.terminal.chat import Chat
    from hearthd.server.terminal.message_reader import MessageReader

log = logging.getLogger(__name__)

_WELCOME = "/help lists the commands, Ctrl-C stops an answer, /bye exits"


def converse(
    chat: Chat,
    reader: MessageReader,
    *,
    show: Callable[[str], None],
    note: Callable[[str], None],
) -> None:
    """Run until /bye, the end of the input, or the second Ctrl-C in a row.

    `show` prints text of answers, `note` prints other lines.
    """
    note(_WELCOME)
    interrupted = False
    while True:
        try:
            text = reader.read()
            interrupted = False
            if text.startswith("/"):
                note(run_command(chat, text))
            elif text.strip():
                _answer(chat, text, show, note)
        except (Leave, EOFError) as end:
            if isinstance(end, EOFError) and reader.shows_prompts:
                show("\n")
            return
        except KeyboardInterrupt:
            show("\n")
            if interrupted and not reader.edited_line:
                return
            interrupted = True
            note("interrupted; Ctrl-C again exits")


def _answer(
    chat: Chat, text: str, show: Callable[[str], None], note: Callable[[str], None]
) -> None:
    """Print the answer to a message, and how long it took; raises KeyboardInterrupt."""
    try:
        status = usage_line(chat.answer(text, show))
    except RequestError as error:
        hint = "; /clear starts a new conversation" if isinstance(error, InvalidRequest) else ""
        note(f"{error}{hint}")
        return
    except (*STOPS, OSError):  # OSError: the terminal was closed
        raise
    except BaseException:
        log.exception("an answer failed: internal error")
        return
    show("\n")
    note(status)
