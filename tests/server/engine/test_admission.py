"""Admission: how many requests may be in a service at once, and what a rejected one is told."""

from __future__ import annotations

import threading

import pytest

from hearthd.server.engine.admission import Admission, retry_after
from hearthd.server.errors import Draining, EngineStopped, QueueFull
from tests.patience import PATIENCE


def accept(admission: Admission) -> None:
    with admission.accept():
        pass


def test_slots_and_queue_are_filled_and_freed() -> None:
    admission = Admission(slots=2, queue_limit=1)
    for queued in (0, 0, 1):
        accept(admission)
        assert admission.queued == queued
    with pytest.raises(QueueFull, match="got 1 waiting requests, expected at most 1"):
        accept(admission)
    admission.leave()
    assert (admission.accepted, admission.queued) == (2, 0)
    accept(admission)


def test_the_wait_is_predicted_from_the_seconds_of_recent_requests() -> None:
    admission = Admission(slots=1, queue_limit=1)
    for seconds in (2.0, 4.0, None):
        accept(admission)
        admission.leave(seconds)
    accept(admission)
    accept(admission)
    with pytest.raises(QueueFull) as raised:
        accept(admission)
    assert raised.value.retry_after == 3


@pytest.mark.parametrize(
    ("served", "queued", "slots", "seconds"),
    [([], 9, 1, 1), ([0.01], 3, 1, 1), ([2, 4], 6, 2, 9), ([2.5], 3, 1, 8), ([5], 0, 1, 1)],
)
def test_retry_after_is_when_the_queue_has_been_served(
    served: list[float], queued: int, slots: int, seconds: int
) -> None:
    assert retry_after(served, queued=queued, slots=slots) == seconds


def test_a_request_that_could_not_be_handed_over_is_not_counted() -> None:
    admission = Admission(slots=1, queue_limit=0)
    with pytest.raises(RuntimeError, match="no thread"), admission.accept():
        raise RuntimeError("no thread")
    assert admission.accepted == 0
    accept(admission)


def test_draining_and_stopping_reject_every_request() -> None:
    admission = Admission(slots=1, queue_limit=0)
    admission.stop()
    assert admission.stopped
    with pytest.raises(EngineStopped):
        accept(admission)
    admission.drain()
    with pytest.raises(Draining):
        accept(admission)


def test_stop_waits_until_a_request_is_handed_over() -> None:
    admission = Admission(slots=1, queue_limit=0)
    with admission.accept():
        stopping = threading.Thread(target=admission.stop)
        stopping.start()
        stopping.join(0.05)
        assert stopping.is_alive()
        assert not admission.stopped
    stopping.join(PATIENCE)
    assert admission.stopped
