"""The page that `scripts/run_aarch64` follows, and how it judges a server: no emulation."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from tests.aarch64.readme import BUNDLE, HEARTH, block, objects, packages
from tests.aarch64.serving import REQUEST, Answer, ServeError, refusal, session
from tests.patience import PATIENCE

HEALTH = {"self_test": {"passed": True, "largest_difference": 0.5, "message": "fine"}}


def test_the_commands_of_the_page_use_the_expected_names() -> None:
    assert f"--out {BUNDLE}" in block("pi-bake")
    assert f"{HEARTH} serve {BUNDLE} " in block("pi")
    assert packages() == ["python3-venv"]
    (asked,) = (value for value in objects(block("pi")) if "prompt" in value)
    assert asked == REQUEST


def test_json_objects_are_extracted_from_other_text() -> None:
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
def test_an_error_message_is_one_line(code: str, refuses: bool) -> None:
    command = [sys.executable, "-c", f"import sys; {code}"]
    if refuses:
        assert refusal(command) == "serve: it cannot"
    else:
        with pytest.raises(ServeError, match="wanted one line"):
            refusal(command)


def test_no_process_outlives_its_session() -> None:
    with session(["bash", "-c", "sleep 60 & echo $!; exit"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        started = int(process.stdout.readline())
        assert process.wait() == 0
        assert alive(started)
    until = time.monotonic() + PATIENCE
    while alive(started) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(started)


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
