"""Reasons why a request is not answered.

The classes say nothing about HTTP: server/api/http_errors.py maps them to statuses.

ServerError
 +- InvalidRequest         a field of the request is invalid
 |   +- ContextExceeded    the prompt has more tokens than the model can read
 +- ModelNotFound          the server has no model of this name
 +- TextTooLong            a text is too long to be tokenized or rendered
 +- Unavailable            the server accepts no requests now
 |   +- Starting           the self-test is still running
 |   +- SelfTestFailed     the model's results differ from the golden values
 |   +- Draining           the server is shutting down
 |   +- EngineStopped      the engine thread has ended
 |   +- NotLoaded          the model's bundle cannot be loaded
 |   +- NoSlotFree         every slot is busy, and the client asked to be told
 +- NotSupported           the model or the server lacks what the request needs
 +- QueueFull              too many requests are waiting
 +- GenerationFailed       a step of the model failed during this request
 +- NotReloaded            a new bundle was rejected; the server continues with the current one
 +- RulesFailed            the request's grammar or biases allow no next token
 +- ClientDisconnected     the client disconnected before its answer was complete
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable

Scalar = str | int | float | bool | None
_MAX_SHOWN = 200  # characters of a rejected name


def prompt_too_long(size: str, limit: int) -> str:
    """The message for every prompt that is too long, with a size such as "9 tokens".

    Clients search it for Anthropic's words and llama-server's, and shorten the conversation.
    """
    return (
        f"prompt is too long: {size} > {limit} maximum: the prompt exceeds the available context "
        "size"
    )


class ServerError(Exception):
    """A request is not answered. The message is for the client."""


class InvalidRequest(ServerError):
    """A field of the request is invalid.

    `field` is the path of the field (`prompt[3]`), `got` a JSON scalar, `expected` a phrase.
    """

    def __init__(self, *, field: str, got: Scalar, expected: str) -> None:
        super().__init__(f"{field}: got {json.dumps(got)}, expected {expected}")
        self.field = field
        self.got = got
        self.expected = expected


class ContextExceeded(InvalidRequest):
    """A prompt has `tokens` tokens, more than `limit` of the context's `context` positions."""

    def __init__(self, *, field: str, tokens: int, limit: int, context: int) -> None:
        super().__init__(field=field, got=f"{tokens} tokens", expected=f"at most {limit} tokens")
        self.args = (prompt_too_long(f"{tokens} tokens", limit),)
        self.tokens = tokens
        self.context = context


class ModelNotFound(ServerError):
    """The server has no model of this name; `models` are the names that it has."""

    def __init__(self, name: str, models: Iterable[str]) -> None:
        shown = name if len(name) <= _MAX_SHOWN else f"{name[:_MAX_SHOWN]}..."
        super().__init__(
            f"model: got {json.dumps(shown)}, expected one of {', '.join(models)}: the model does "
            "not exist"
        )


class TextTooLong(ServerError):
    """A text of this size is far too long for the context. The server does not tokenize it."""

    def __init__(self, size: str, *, limit: int, context: int) -> None:
        super().__init__(prompt_too_long(size, limit))
        self.context = context


class NotSupported(ServerError):
    """The model or the server lacks what the request needs."""


class Unavailable(ServerError):
    """The server accepts no requests now. `status` is the word for it in /health."""

    status: ClassVar[str] = "unavailable"


class Starting(Unavailable):
    """The self-test is still running."""

    status = "starting"


class SelfTestFailed(Unavailable):
    """The model's results differ from the golden values in the bundle."""

    status = "self_test_failed"


class Draining(Unavailable):
    """The server is shutting down: it finishes the accepted requests and rejects new ones."""

    status = "draining"


class EngineStopped(Unavailable):
    """The engine thread has ended."""

    status = "engine_stopped"


class NotLoaded(Unavailable):
    """The model's bundle cannot be loaded."""

    status = "not_loaded"


class NoSlotFree(Unavailable):
    """Every slot is busy."""

    status = "no_slot_free"


class QueueFull(ServerError):
    """The queue is full. The client can retry in `retry_after` seconds, at least 1."""

    def __init__(self, *, queued: int, limit: int, retry_after: int) -> None:
        super().__init__(
            f"the queue is full: got {queued} waiting requests, expected at most {limit}; "
            f"retry in {retry_after} s"
        )
        self.queued = queued
        self.limit = limit
        self.retry_after = retry_after


class GenerationFailed(ServerError):
    """A step of the model failed during this request."""


class NotReloaded(ServerError):
    """A new bundle was rejected. The server continues with the current one."""


class RulesFailed(ServerError):
    """The request's grammar or biases allow no next token, and the answer is not complete."""


class ClientDisconnected(ServerError):
    """The client disconnected before its answer was complete."""
