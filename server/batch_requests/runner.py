"""Answer the requests of a batch that have no answer yet, as many at a time as keep a target busy.

A busy target (429) is asked again until it answers, a target that is not available (503, or no
connection) a few times. Every other reply is the answer, also an error of the request. The requests
and answers are in files, or in batches that a server stores.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from hearthd.server.batch_requests.batch_request import CannotReach

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hearthd.server.batch_requests.batch_request import BatchRequest, BatchTarget, Reply

_BUSY, UNAVAILABLE = 429, 503
_ATTEMPTS = 5  # to reach a target that is not available
_FIRST_WAIT = 1.0  # seconds, doubled after each attempt


class PendingRequests(Protocol):
    """The requests of a batch."""

    def remaining(self, answered: set[str]) -> Iterator[BatchRequest]:
        """The requests without an answer, in order."""


class AnswerLog(Protocol):
    """The answers of a batch; `answered` are the ids of the requests with an answer."""

    answered: set[str]

    def append(self, custom_id: str, reply: Reply) -> None:
        """Add the answer to the request with this id."""


@dataclass(kw_only=True)
class Counts:
    """Requests that were answered in this run, and how many of them got an error."""

    answered: int = 0
    failed: int = 0


async def run(
    requests: PendingRequests,
    answers: AnswerLog,
    target: BatchTarget,
    on_answer: Callable[[], None] = lambda: None,
) -> Counts:
    """Answer the remaining requests; `on_answer` is called after each.

    Raises CannotReach, and what `answers` raises.
    """
    counts = Counts()
    # A copy, because the ids grow while the generator runs.
    remaining = requests.remaining(set(answers.answered))

    async def work(requests: Iterator[BatchRequest]) -> None:
        for request in requests:
            reply = await answer(target, request)
            answers.append(request.custom_id, reply)
            counts.answered += 1
            counts.failed += reply.status >= 400
            on_answer()

    try:
        async with asyncio.TaskGroup() as workers:
            for _ in range(target.parallel):
                workers.create_task(work(remaining))
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
    return counts


async def answer(target: BatchTarget, request: BatchRequest) -> Reply:
    """The answer to a request; raises CannotReach, unless errors of the target are answers."""
    wait, attempts = _FIRST_WAIT, _ATTEMPTS
    while True:
        reply = None
        try:
            reply = await target.post(request)
            problem = f"got status {reply.status}"
            if reply.status == _BUSY:
                await asyncio.sleep(reply.retry_after or wait)
                continue
            if reply.status != UNAVAILABLE:
                return reply
        except CannotReach as error:
            problem = str(error)
        attempts -= 1
        if not attempts:
            if reply is not None and target.answers_when_unavailable:
                return reply
            raise CannotReach(f"{problem}; start the batch again to continue")
        await asyncio.sleep(wait)
        wait *= 2
