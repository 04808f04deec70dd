"""Limits in CPU time do not count the time in which a process is stopped or waits."""

from __future__ import annotations

import asyncio
import signal
import time

import pytest

from tools.fuzz.guided.cpu_limits import CpuTimeExceeded, cpu_limit, within_ticks


def _compute(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_code_that_computes_too_long_is_ended() -> None:
    with pytest.raises(CpuTimeExceeded, match=r"more than 0\.05 s"), cpu_limit(0.05):
        _compute(5)


def test_code_that_catches_the_error_is_ended_again() -> None:
    caught = 0
    with cpu_limit(0.05):
        for _ in range(2):
            try:
                _compute(5)
            except CpuTimeExceeded:
                caught += 1
    assert caught == 2


def test_waiting_takes_no_cpu_time_and_the_limit_ends_with_its_block() -> None:
    handler = signal.getsignal(signal.SIGPROF)
    with cpu_limit(0.1):
        time.sleep(0.3)
    _compute(0.2)
    assert signal.getsignal(signal.SIGPROF) == handler


def test_a_stopped_process_loses_one_tick() -> None:
    async def answer() -> str:
        time.sleep(0.5)
        await asyncio.sleep(0.01)
        return "done"

    assert asyncio.run(within_ticks(answer(), 3, 0.1)) == "done"


def test_work_that_never_ends_is_a_timeout() -> None:
    with pytest.raises(TimeoutError, match="no result after 3 ticks"):
        asyncio.run(within_ticks(asyncio.sleep(60), 3, 0.01))
