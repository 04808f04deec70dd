"""Ctrl-C ends a command at any moment; `python -m tools.faults interrupts` tries more moments."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from tools.faults.interrupts import cases, interrupt_commands

ROOT = Path(__file__).parent.parent
_BEGIN = """
import os, signal, sys, time
from hearthd.runtime.system.interrupts import at_interrupt, end_on_signals, keyboard_interrupts
end_on_signals("hearth x")
def ctrl_c(count=1):
    for _ in range(count):
        os.kill(os.getpid(), signal.SIGINT)
"""
MOMENTS = {
    "Python code": "ctrl_c(); time.sleep(9)",
    "three times": "ctrl_c(3); time.sleep(9)",
    "an exception that is discarded": """
class Merges:
    def __len__(self):
        ctrl_c()
        return 0
    def __del__(self):
        len(self)
for _ in range(2):
    try:
        Merges()
    except BaseException:
        pass
time.sleep(9)
""",
    "native code": """
import ctypes, threading
threading.Timer(0.1, ctrl_c).start()
ctypes.CDLL(None).usleep(9_000_000)
""",
    "native code that is interrupted three times": """
import ctypes, threading
threading.Timer(0.1, ctrl_c, [3]).start()
ctypes.CDLL(None).pause()
ctypes.CDLL(None).usleep(900_000)
ctypes.CDLL(None).usleep(9_000_000)
""",
    "an exit handler": "import atexit; atexit.register(time.sleep, 9); atexit.register(ctrl_c)",
    "asyncio, which has taken the wake-up descriptor": """
import asyncio
async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, print)
    ctrl_c()
    await asyncio.sleep(9)
asyncio.run(main())
""",
    "after a block with KeyboardInterrupt": """
with keyboard_interrupts():
    try:
        ctrl_c()
        time.sleep(9)
    except KeyboardInterrupt:
        pass
ctrl_c()
time.sleep(9)
""",
    "a block with KeyboardInterrupt that it leaves": """
with keyboard_interrupts():
    ctrl_c()
    time.sleep(9)
""",
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)",
}


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _BEGIN + code],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=PATIENCE,
    )


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_signal_ends_the_process_with_one_line(moment: str) -> None:
    done = run(MOMENTS[moment])
    assert (done.returncode, done.stderr) == (130, "hearth x: interrupted\n")


def test_actions_run_newest_first_and_explain() -> None:
    done = run("""
def fails():
    raise ValueError
def writes():
    os.write(1, b"ok")
with at_interrupt(lambda: "first"), at_interrupt(fails), at_interrupt(writes):
    with at_interrupt(lambda: "over"):
        pass
    with at_interrupt(lambda: "last"):
        ctrl_c()
        time.sleep(9)
""")
    assert (done.returncode, done.stdout) == (130, "ok")
    assert done.stderr == "hearth x: interrupted; last; first\n"


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    code = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n" + _BEGIN + "ctrl_c()"
    done = subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT, timeout=PATIENCE)
    assert done.returncode == 0


@pytest.mark.parametrize("terminal", ["none", "open", "closed"])
def test_a_starting_server_ends_only_with_its_terminal(terminal: str) -> None:
    done = run(f"""
from hearthd.runtime.system import interrupts, operating_system
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup hands on that it is ignored
operating_system.has_terminal = lambda: {terminal != "none"}
interrupts.outlive_hangups()
operating_system.has_terminal = lambda: {terminal == "open"}
os.kill(os.getpid(), signal.SIGHUP)
os.write(1, b"lives")
""")
    ends = terminal == "closed"
    assert done.returncode == (-signal.SIGHUP if ends else 0)
    assert done.stdout == ("" if ends else "lives")


@pytest.mark.nightly
def test_commands_end_at_random_moments(tmp_path: Path) -> None:
    """One that bakes, one that reads a bundle, and a server."""
    named = {case.name: case for case in cases(tmp_path, None)}
    commands = [named[f"hearth {command}"] for command in ("bake", "verify", "serve")]
    interrupt_commands(tmp_path, commands, count=4, seed=1, seconds=10)


@pytest.mark.nightly
def test_every_command_ends_at_random_moments(tmp_path: Path) -> None:
    interrupt_commands(tmp_path, cases(tmp_path, None), count=48, seed=1, seconds=10)
