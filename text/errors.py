"""Reasons why a text or a request is not accepted.

RequestError
 +- InvalidRequest         a field of the request is invalid
 |   +- ContextExceeded    the prompt has more tokens than the model can read
 +- TextTooLong            a text is too long to be tokenized or rendered
 +- GrammarsFull           the grammars of other answers take all memory for grammars
 +- NotSupported           the model or the server lacks what the request needs

server/errors.py has the reasons that only a server has.
"""

from __future__ import annotations

import json

Scalar = str | int | float | bool | None
_MAX_SHOWN = 200  # characters of a rejected value


def prompt_too_long(size: str, limit: int) -> str:
    """The message for every prompt that is too long, with a size such as "9 tokens".

    It has the words of Anthropic and of llama-server, which clients look for to shorten a
    conversation.
    """
    return (
        f"prompt is too long: {size} > {limit} maximum: the prompt exceeds the available context "
        "size"
    )


class RequestError(Exception):
    """A request is not answered. The message is for the client."""


class InvalidRequest(RequestError):
    """A field of the request is invalid.

    `field` is the path of the field (`prompt[3]`), `got` a JSON scalar, `expected` a phrase. A
    longer text than _MAX_SHOWN is shortened.
    `logged` is the message for logs: it has no `got`, and with `quotes` no `expected` either, which
    then has parts of the request.
    """

    def __init__(self, *, field: str, got: Scalar, expected: str, quotes: bool = False) -> None:
        if isinstance(got, str) and len(got) > _MAX_SHOWN:
            got = f"{got[:_MAX_SHOWN]}..."
        super().__init__(f"{field}: got {json.dumps(got)}, expected {expected}")
        self.field = field
        self.got = got
        self.expected = expected
        self.logged = f"{field}: expected {'another value' if quotes else expected}"


class ContextExceeded(InvalidRequest):
    """A prompt has `tokens` tokens; a context of `context` positions takes `limit` at most."""

    def __init__(self, *, field: str, tokens: int, limit: int, context: int) -> None:
        super().__init__(field=field, got=f"{tokens} tokens", expected=f"at most {limit} tokens")
        self.args = (prompt_too_long(f"{tokens} tokens", limit),)
        self.tokens = tokens
        self.context = context


class TextTooLong(RequestError):
    """A text of this size is far too long for the context. The server does not tokenize it."""

    def __init__(self, size: str, *, limit: int, context: int) -> None:
        super().__init__(prompt_too_long(size, limit))
        self.context = context


class GrammarsFull(RequestError):
    """The memory for compiled grammars is full."""


class NotSupported(RequestError):
    """The model or the server lacks what the request needs."""
