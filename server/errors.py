"""Reasons why a request is not answered.

The classes say nothing about HTTP: server/api/http_errors.py maps them to statuses.

RequestError               also the errors of text/errors.py
 +- ModelNotFound          the server has no model of this name
 +- NotStored              the server has no response, conversation or item of this id
 +- TooLargeToStore        a response, conversation or batch exceeds --state-size
 +- StorageFull            the disk has no space for what a request stores, or refuses it
 +- Unavailable            the request cannot be answered now
 |   +- Starting           the self-test is still running
 |   +- SelfTestFailed     the model's results differ from the golden values
 |   +- Draining           the server is shutting down
 |   +- EngineStopped      the engine thread has ended
 |   +- NotLoaded          the model's bundle cannot be loaded
 |   +- NoSlotFree         every slot is busy, and the request has `fail_on_no_slot`
 +- QueueFull              too many requests are waiting
 +- GenerationFailed       a step of the model failed during this request
 +- NotReloaded            a reload was rejected; the server continues with its current models
 +- PullFailed             a model could not be downloaded or baked
 +- RulesFailed            the request's grammar or biases allow no next token
 +- ClientDisconnected     the client disconnected before its answer was complete
"""

from __future__ import annotations

import contextlib
import errno
import json
from typing import TYPE_CHECKING, ClassVar

from hearthd.text.errors import NotSupported, RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MAX_SHOWN = 200  # characters of a rejected name
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class ModelNotFound(RequestError):
    """The server has no model of this name; `models` are the names that it has."""

    def __init__(self, name: str, models: Iterable[str]) -> None:
        shown = name if len(name) <= _MAX_SHOWN else f"{name[:_MAX_SHOWN]}..."
        super().__init__(
            f"model: got {json.dumps(shown)}, expected one of {', '.join(models)}: the model does "
            "not exist"
        )


class NotStored(RequestError):
    """The client has no stored response, conversation or item of this id, which `field` has."""

    def __init__(self, id_: str, *, field: str | None = None) -> None:
        self.field = field
        super().__init__(
            f"{json.dumps(id_[:_MAX_SHOWN])}: not stored: it was deleted, dropped to make room, or "
            "never stored"
        )


class TooLargeToStore(RequestError):
    """A record and its items exceed the limit of the store; sizes are in bytes."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"not stored: got {size} bytes of JSON, expected at most {limit} (--state-size); send "
            "less, or raise it"
        )


class StorageFull(RequestError):
    """The disk has no space for what a request stores, or refuses it."""


@contextlib.contextmanager
def disk_change(name: str) -> Iterator[None]:
    """Raise StorageFull for an OSError of the block, which changes the files of a model."""
    try:
        yield
    except OSError as error:
        raise StorageFull(
            f"{name}: cannot be changed on disk: {error.strerror}; free space in --home, "
            "or let the server write there"
        ) from error


def not_on_disk(field: str, error: OSError) -> StorageFull | NotSupported:
    """The error for a file of a request that is decoded from disk, and cannot be written there."""
    if error.errno in _NO_SPACE:
        return StorageFull(
            f"{field}: cannot be stored for reading: {error.strerror}; retry later, or free space "
            "in the server's folder of temporary files"
        )
    return NotSupported(
        f"{field}: cannot be stored for reading: {error}; let the server write to /tmp"
    )


class Unavailable(RequestError):
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


class ImagesFull(Unavailable):
    """The memory for the pixels of images is full."""

    status = "images_full"


class DecoderNotStarted(Unavailable):
    """The system cannot start the process that decodes a file."""

    status = "decoder_not_started"


class QueueFull(RequestError):
    """The queue is full. The client can retry in `retry_after` seconds, at least 1."""

    def __init__(self, *, queued: int, limit: int, retry_after: int) -> None:
        super().__init__(
            f"the queue is full: got {queued} waiting requests, expected at most {limit}; "
            f"retry in {retry_after} s"
        )
        self.queued = queued
        self.limit = limit
        self.retry_after = retry_after


class GenerationFailed(RequestError):
    """A step of the model failed during this request."""


class NotReloaded(RequestError):
    """A new bundle was rejected. The server continues with the current one."""


class PullFailed(RequestError):
    """A model could not be downloaded or baked."""


class RulesFailed(RequestError):
    """The request's grammar or biases allow no next token, and the answer is not complete."""


class ClientDisconnected(RequestError):
    """The client disconnected before its answer was complete."""
