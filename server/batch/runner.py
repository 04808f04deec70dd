"""Answer the requests of a batch that have no answer yet, as many at a time as keep a target busy.

A busy target (429) is asked again until it answers, a target that is not available (503, or no
connection) a few times. Every other reply is the answer, also an error of the request.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.server.batch.batch_targets import CannotReach

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hearthd.server.batch.batch_targets import BatchTarget
    from hearthd.server.batch.files import Answers, BatchRequest, Reply, Requests

_BUSY, _UNAVAILABLE = 429, 503
_ATTEMPTS = 5  # to reach a target that is not available
_FIRST_WAIT = 1.0  # seconds, doubled after each attempt


@dataclass(kw_only=True)
class Counts:
    """Requests that were answered in this run, and those of them that got an error."""

    answered: int = 0
    failed: int = 0


async def run(
    requests: Requests, answers: Answers, target: BatchTarget, on_answer: Callable[[], None]
) -> Counts:
    """Answer the remaining requests; `on_answer` is called after each. Raises CannotReach."""
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
    """The answer to a request; raises CannotReach."""
    wait, attempts = _FIRST_WAIT, _ATTEMPTS
    while True:
        try:
            reply = await target.post(request)
            problem = f"got status {reply.status}"
            if reply.status == _BUSY:
                await asyncio.sleep(reply.retry_after or wait)
                continue
            if reply.status != _UNAVAILABLE:
                return reply
        except CannotReach as error:
            problem = str(error)
        attempts -= 1
        if not attempts:
            raise CannotReach(f"{problem}; start the batch again to continue")
        await asyncio.sleep(wait)
        wait *= 2
