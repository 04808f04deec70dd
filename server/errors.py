"""Why a request is not answered.

It knows no HTTP: server/api/http_errors.py maps this tree to statuses.

ServerError
 +- InvalidRequest         a field of the request is wrong: what came, what was wanted
 +- TextTooLong            a text that no context could hold: it is not tokenized
 +- Unavailable            the server takes no requests now
 |   +- Starting           the self-test is still running
 |   +- SelfTestFailed     the bundle computes something else than was baked
 |   +- Draining           the server was asked to stop
 |   +- EngineStopped      the engine thread has ended
 |   +- NoSlotFree         every slot is busy, and it was asked to say so
 +- QueueFull              as many requests wait as may
 +- GenerationFailed       a step of the model failed while this request was being answered
 +- NotReloaded            a new bundle was not taken: the one before goes on being served
 +- RulesFailed            the request's own rules left no token on the way
 +- ClientDisconnected     nobody is there to read the answer
"""

from __future__ import annotations

import json
from typing import ClassVar

Scalar = str | int | float | bool | None


class ServerError(Exception):
    """A request is not answered. The message is meant for whoever sent it."""


class InvalidRequest(ServerError):
    """A field of the request cannot be honoured.

    `field` is the path of the field (`prompt[3]`), `got` a JSON scalar, `wanted` a phrase.
    """

    def __init__(self, *, field: str, got: Scalar, wanted: str) -> None:
        super().__init__(f"{field}: wanted {wanted}, got {json.dumps(got)}")
        self.field = field
        self.got = got
        self.wanted = wanted


class TextTooLong(ServerError):
    """A text is so long that its tokens could not fit: it is not tokenized."""


class Unavailable(ServerError):
    """The server takes no requests now. `status` is the word for it in /health."""

    status: ClassVar[str] = "unavailable"


class Starting(Unavailable):
    """The self-test is still running."""

    status = "starting"


class SelfTestFailed(Unavailable):
    """The bundle computes something else than was baked."""

    status = "self_test_failed"


class Draining(Unavailable):
    """The server was asked to stop: it answers what it has accepted and nothing more."""

    status = "draining"


class EngineStopped(Unavailable):
    """The engine thread has ended."""

    status = "engine_stopped"


class NoSlotFree(Unavailable):
    """Every slot is busy."""

    status = "no_slot_free"


class QueueFull(ServerError):
    """As many requests wait as may: try again in `retry_after` seconds, at least 1."""

    def __init__(self, *, queued: int, limit: int, retry_after: int) -> None:
        super().__init__(
            f"the queue is full: {queued} requests wait, at most {limit} may: "
            f"try again in {retry_after} s"
        )
        self.queued = queued
        self.limit = limit
        self.retry_after = retry_after


class GenerationFailed(ServerError):
    """A step of the model failed while this request was being answered."""


class NotReloaded(ServerError):
    """A new bundle was not taken: the one before goes on being served."""


class RulesFailed(ServerError):
    """A grammar or biases left no token that could come next, on the way to the end."""


class ClientDisconnected(ServerError):
    """The client went away before the answer was complete."""
