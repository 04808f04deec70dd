"""Jobs with steps: they take turns, stop when they are closed, and end when the server does."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from hearthd.server.engine.speech_jobs import SpeechJobs
from hearthd.server.errors import Draining, EngineStopped, GenerationFailed, QueueFull
from hearthd.text.errors import InvalidRequest
from tests.patience import PATIENCE
from tests.server.speech.listeners import ScriptedListener

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hearthd.runtime.speech_model import Listener
    from hearthd.server.engine.speech_jobs import SpeechJob, Steps


def jobs(queue_limit: int = 8) -> SpeechJobs:
    return SpeechJobs(ScriptedListener([]), queue_limit=queue_limit)


def counting(name: str, log: list[str], count: int = 3) -> Steps[str]:
    def steps(listener: Listener, stopped: threading.Event) -> Iterator[str]:
        assert isinstance(listener, ScriptedListener)
        for step in range(count):
            assert not stopped.is_set()
            log.append(f"{name}{step}")
            yield log[-1]

    return steps


async def all_results(job: SpeechJob[str]) -> list[str]:
    try:
        return [result async for result in job.results()]
    finally:
        job.close()


def test_jobs_take_turns_step_by_step() -> None:
    async def run() -> list[str]:
        log: list[str] = []
        worker = jobs()
        both = [worker.submit(counting(name, log)) for name in "ab"]
        assert worker.state().queued == 1
        found = await asyncio.gather(*map(all_results, both))
        assert found == [["a0", "a1", "a2"], ["b0", "b1", "b2"]]
        assert worker.idle
        assert worker.state().busy == 0
        assert both[1].seconds > 0
        worker.close()
        return log

    assert asyncio.run(run()) == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_a_full_queue_refuses_and_a_closed_job_makes_room() -> None:
    async def run() -> None:
        worker = jobs(queue_limit=0)
        job = worker.submit(counting("a", []))
        with pytest.raises(QueueFull):
            worker.submit(counting("b", []))
        job.close()
        job.close()
        assert await all_results(worker.submit(counting("b", []))) == ["b0", "b1", "b2"]
        worker.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("raised", "seen"),
    [
        (InvalidRequest(field="file", got="x", expected="y"), InvalidRequest),
        (RuntimeError("broken"), GenerationFailed),
    ],
)
def test_errors_of_a_step_reach_the_caller_and_no_other_job(
    raised: Exception, seen: type[Exception]
) -> None:
    def failing(_listener: Listener, _stopped: threading.Event) -> Iterator[str]:
        yield "first"
        raise raised

    async def run() -> None:
        worker = jobs()
        job, other = worker.submit(failing), worker.submit(counting("b", []))
        with pytest.raises(seen):
            await all_results(job)
        assert len(await all_results(other)) == 3
        worker.close()

    asyncio.run(run())


@pytest.mark.parametrize("running", [True, False])
def test_the_end_of_the_server_ends_every_job(running: bool) -> None:
    """One that runs at its next check, and one that waits before it begins."""
    began = threading.Event()

    def until_stopped(_listener: Listener, stopped: threading.Event) -> Iterator[str]:
        began.set()
        assert stopped.wait(PATIENCE)
        raise RuntimeError("stopped")
        yield ""

    async def run() -> None:
        worker = jobs()
        tasks = [
            asyncio.ensure_future(all_results(worker.submit(until_stopped)))
            for _ in range(2 if running else 1)
        ]
        if running:
            assert await asyncio.to_thread(began.wait, PATIENCE)
        worker.cancel()
        for error in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(error, Draining)
        with pytest.raises((Draining, EngineStopped)):
            worker.submit(until_stopped)
        await asyncio.to_thread(worker.close)
        assert worker.idle

    asyncio.run(run())


def test_a_job_whose_caller_leaves_runs_no_further_step() -> None:
    async def run() -> None:
        log: list[str] = []
        worker = jobs()
        job = worker.submit(counting("a", log, count=1000))
        async for _ in job.results():
            break
        job.close()
        assert job.stopped.is_set()
        assert len(await all_results(worker.submit(counting("b", log)))) == 3
        assert len(log) <= 5
        worker.close()

    asyncio.run(run())
