"""The page that `scripts/run_aarch64` follows, and how it judges a server: no emulation."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from tests.aarch64.readme import BUNDLE, HEARTH, block, objects, packages
from tests.aarch64.serving import REQUEST, Answer, ServeError, refusal, session

HEALTH = {"self_test": {"passed": True, "largest_difference": 0.5, "message": "fine"}}


def test_the_commands_leave_what_the_rest_goes_on_with() -> None:
    assert f"--out {BUNDLE}" in block("pi-bake")
    assert f"{HEARTH} serve {BUNDLE} " in block("pi")
    assert packages() == ["python3-venv"]
    (asked,) = (value for value in objects(block("pi")) if "prompt" in value)
    assert asked == REQUEST


def test_objects_between_other_words() -> None:
    assert objects('ready\n{"a": {"b": 1}}{"c": 2} and {"d": []}\n') == [
        {"a": {"b": 1}},
        {"c": 2},
        {"d": []},
    ]
    assert objects("nothing") == []


def test_an_answer_counts_only_if_the_self_test_passed() -> None:
    generated = {"text": " the", "token_ids": [506]}
    assert Answer.of(generated, HEALTH) == Answer(
        token_ids=[506], text=" the", largest_difference=0.5
    )
    failed = {"self_test": {**HEALTH["self_test"], "passed": False, "message": "a logit differs"}}
    with pytest.raises(ServeError, match="a logit differs"):
        Answer.of(generated, failed)


@pytest.mark.parametrize(
    ("code", "refuses"),
    [
        ("sys.exit('serve: it cannot')", True),
        ("print('serve: it cannot', file=sys.stderr)", False),
        ("sys.exit('serve: it cannot\\nTraceback')", False),
        ("sys.exit('something else')", False),
        ("print('more'); sys.exit('serve: it cannot')", False),
        ("import os; os.kill(os.getpid(), 4)", False),
    ],
)
def test_a_refusal_is_one_line(code: str, refuses: bool) -> None:
    command = [sys.executable, "-c", f"import sys; {code}"]
    if refuses:
        assert refusal(command) == "serve: it cannot"
    else:
        with pytest.raises(ServeError, match="wanted one line"):
            refusal(command)


def test_nothing_that_a_session_started_outlives_it() -> None:
    with session(["bash", "-c", "sleep 60 & echo $!; exit"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        started = int(process.stdout.readline())
        assert process.wait() == 0
        assert alive(started)
    until = time.monotonic() + 10
    while alive(started) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(started)


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
