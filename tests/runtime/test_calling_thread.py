"""The scheduling policy of a thread that calls a compiled program."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.runtime.interface import read_prompt
from hearthd.runtime.language_model import IreeRuntime
from hearthd.runtime.system.calling_thread import behind_workers
from tests.server import tiny

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux has these policies")


def in_a_thread(work: Callable[[], object]) -> None:
    """Run in a new thread, whose policy nothing else reads."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_a_call_does_not_preempt_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = tmp_path / "tiny"
    runtime = IreeRuntime(bundle, tiny.write_bundle(bundle), threads=1)
    inside, outside, whole = [], [], runtime.device._program

    class Program:
        def call(self, *arguments: Any) -> None:
            inside.append(os.sched_getscheduler(0))
            whole.call(*arguments)

    def work() -> None:
        read_prompt(runtime, [1, 2])
        outside.append(os.sched_getscheduler(0))

    monkeypatch.setattr(runtime.device, "_program", Program())
    in_a_thread(work)
    assert set(inside) == {os.SCHED_BATCH}
    assert outside == [os.SCHED_OTHER]


def test_the_policy_is_restored_after_an_error() -> None:
    policies = []

    def work() -> None:
        with pytest.raises(KeyError), behind_workers():
            raise KeyError
        policies.append(os.sched_getscheduler(0))

    in_a_thread(work)
    assert policies == [os.SCHED_OTHER]


def test_another_policy_is_kept() -> None:
    policies = []

    def work() -> None:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        with behind_workers():
            policies.append(os.sched_getscheduler(0))
        policies.append(os.sched_getscheduler(0))

    in_a_thread(work)
    assert policies == [os.SCHED_IDLE] * 2


@pytest.mark.parametrize("forbidden", ["sched_getscheduler", "sched_setscheduler"])
def test_a_sandbox_may_forbid_it(monkeypatch: pytest.MonkeyPatch, forbidden: str) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    policies, policy = [], os.sched_getscheduler

    def work() -> None:
        with behind_workers():
            policies.append(policy(0))

    monkeypatch.setattr(os, forbidden, refuse)
    in_a_thread(work)
    assert policies == [os.SCHED_OTHER]
