"""Measure transcriptions of sound files against faster-whisper: seconds, and wrong words.

    python -m benchmarks.speech BUNDLE speech.wav --faster-whisper PYTHON MODEL --json speech.json

PYTHON is one that has faster-whisper, and MODEL a folder of the same weights in CTranslate2's form.
Both answer greedily, in turn, after one turn that does not count. A text beside a sound, such as
speech.txt, has its words: wrong are those that are inserted, deleted or replaced, without regard to
case and punctuation. Both languages are the model's choice.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import httpx
import soundfile

from benchmarks.engines import faster_whisper_worker
from benchmarks.inputs import existing_bundle, existing_path
from benchmarks.report.figures import Figure, Rounds, figures_table, print_figures
from benchmarks.report.machine import describe_machine, versions, versions_line, write_json
from benchmarks.serving.server_process import Server, running
from hearthd.baker.memory_bandwidth import physical_cores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    # Seconds and the text of a file.
    Transcribe = Callable[[Path], tuple[float, str]]

_FIGURES = (
    Figure("real_time", "seconds of sound per second", higher_is_better=True),
    Figure("wrong", "wrong words"),
)
_GOALS = {"real_time": 1.2, "wrong": 1.0}
_TIMEOUT = 1200.0
_WORD = re.compile(r"[\w']+")


def words(text: str) -> list[str]:
    """The words of a text."""
    return _WORD.findall(text.lower())


def wrong_words(expected: list[str], found: list[str]) -> int:
    """The fewest insertions, deletions and replacements (Levenshtein, 1966)."""
    costs = list(range(len(found) + 1))
    for number, word in enumerate(expected, 1):
        before, costs[0] = costs[0], number
        for at, other in enumerate(found, 1):
            replaced = before + (word != other)
            before = costs[at]
            costs[at] = min(replaced, before + 1, costs[at - 1] + 1)
    return costs[-1]


def transcribed_by(url: str) -> Transcribe:
    """Transcriptions of a server."""

    def transcribe(file: Path) -> tuple[float, str]:
        began = time.perf_counter()
        response = httpx.post(
            f"{url}/v1/audio/transcriptions",
            files={"file": (file.name, file.read_bytes())},
            data={"response_format": "json"},
            timeout=_TIMEOUT,
        )
        response.raise_for_status()
        return time.perf_counter() - began, response.json()["text"]

    return transcribe


@contextmanager
def faster_whisper(python: str, model: str, threads: int) -> Iterator[Transcribe]:
    """Transcriptions of faster-whisper, in a process of its own."""
    command = [python, faster_whisper_worker.__file__, model, str(threads)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        pipes: tuple[IO[str], IO[str]] = process.stdin, process.stdout

        def transcribe(file: Path) -> tuple[float, str]:
            print(file, file=pipes[0], flush=True)
            answer = json.loads(pipes[1].readline())
            return answer["seconds"], answer["text"]

        yield transcribe
        process.stdin.close()


def figures_of(transcribe: Transcribe, files: list[Path]) -> dict[str, float]:
    """The figures of a round over all files."""
    seconds, sound, wrong = 0.0, 0.0, 0
    for file in files:
        taken, text = transcribe(file)
        seconds, sound = seconds + taken, sound + soundfile.info(file).duration
        if (spoken := file.with_suffix(".txt")).exists():
            wrong += wrong_words(words(spoken.read_text(encoding="utf-8")), words(text))
    return {"real_time": sound / seconds, "wrong": float(wrong)}


def main() -> None:
    """Measure, print the table and write the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundle", type=existing_bundle)
    parser.add_argument("files", type=existing_path, nargs="+", metavar="SOUND")
    parser.add_argument("--faster-whisper", nargs=2, metavar=("PYTHON", "MODEL"), required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=physical_cores())
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    measured: dict[str, Rounds] = {"hearth": [], "faster-whisper": []}
    python, model = arguments.faster_whisper
    options = (str(arguments.bundle), "--threads", str(arguments.threads))
    command = (sys.executable, "-m", "hearthd", "serve", *options)
    hearth = Server(name="hearth", command=command, route="/health/ready", body=None)
    with (
        running(hearth) as server,
        faster_whisper(python, model, arguments.threads) as other,
    ):
        contenders = {"hearth": transcribed_by(server.url), "faster-whisper": other}
        for number in range(arguments.rounds + 1):
            for name, transcribe in contenders.items():
                figures = figures_of(transcribe, arguments.files)
                measured[name] += [figures] if number else []
    machine, used = describe_machine(arguments.threads), versions()
    print(f"{machine}\n{versions_line(used)}")  # noqa: T201
    table = figures_table(arguments.bundle.name, _FIGURES, measured, _GOALS)
    print_figures(table)
    if arguments.json is not None:
        write_json(arguments.json, machine, used, [table], rounds=measured)


if __name__ == "__main__":
    main()
