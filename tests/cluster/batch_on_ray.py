"""`hearth batch --ray` with a fake runtime, in a process of its own that can be killed.

python -m tests.cluster.batch_on_ray REQUESTS ANSWERS
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from hearthd.server.batch.files import Answers, Requests
from hearthd.server.batch.ray_data import EngineRecipe, run_on_ray
from tests.cluster.fake_bundles import FakeBundles

SLOTS = 16
BUNDLES = FakeBundles({"slots": SLOTS, "batch": SLOTS, "delay": 0.02}, cache_ram=0)
_START_SECONDS = 300.0


def main() -> None:
    """Answer the requests with an engine for each CPU of the cluster."""
    recipe = EngineRecipe(
        open=partial(BUNDLES.open_model, BUNDLES.describe()), slots=SLOTS, threads=1, memory=0
    )
    requests = Requests(Path(sys.argv[1]))
    with Answers(Path(sys.argv[2]), requests) as answers:
        counts = run_on_ray(requests, answers, recipe, None, lambda: None)
    sys.stdout.write(f"{counts.answered} answered, {counts.failed} failed\n")


def write_requests(path: Path, count: int) -> None:
    """A file of requests with seeds."""
    lines = [
        {
            "custom_id": f"é{number}",
            "url": "/v1/completions",
            "body": {"prompt": [5 + number % 200], "max_tokens": 2, "seed": number},
        }
        for number in range(count)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def run_and_kill(requests: Path, answers: Path, *, kill_after: int | None) -> int:
    """Run the batch; `kill -9` it after `kill_after` answers. Returns the number of answers."""
    command = [sys.executable, "-m", "tests.cluster.batch_on_ray", str(requests), str(answers)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if kill_after is not None:
        deadline = time.monotonic() + _START_SECONDS
        while _count(answers) < kill_after:
            assert process.poll() is None, "it ended before it was killed"
            assert time.monotonic() < deadline, "it does not start"
            time.sleep(0.02)
        process.kill()
    errors = process.communicate()[1]
    assert kill_after is not None or process.returncode == 0, errors.decode()
    return _count(answers)


def answers_in(path: Path) -> list[dict[str, Any]]:
    """The answers, in the order of the file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _count(answers: Path) -> int:
    return answers.read_bytes().count(b"\n") if answers.exists() else 0


if __name__ == "__main__":
    main()
