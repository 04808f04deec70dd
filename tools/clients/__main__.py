"""Run published clients against a server, and print the table of client, feature and result.

    python -m tools.clients http://127.0.0.1:8080
    python -m tools.clients http://127.0.0.1:8080 --only openai --only "AI SDK"

Each client is installed into an environment of its own by uv or npm, which must be installed.
Exits with status 1 if a feature fails.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING

from tests.server import fakes
from tools.clients import scripted_model
from tools.clients.checks.checking import COLUMNS, NO_CALL
from tools.clients.environments import CLIENTS, environment

if TYPE_CHECKING:
    from collections.abc import Iterator

_TIMEOUT = 1800  # seconds of one client


def check(name: str, folder: Path, base: str, model: str) -> Iterator[tuple[str, str]]:
    """Install a client; (feature, problem) of its features, where the problem may be empty."""
    client = CLIENTS[name]
    try:
        client.install(folder)
    except FileNotFoundError as error:
        yield "install", f"{error.filename}: not found: install it, or add --skip {name!r}"
        return
    except subprocess.CalledProcessError as error:
        yield "install", error.stderr.strip()[-300:]
        return
    try:
        done = subprocess.run(
            [*client.command(folder), base, model],
            cwd=folder,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        yield "end", f"it did not end within {_TIMEOUT} s"
        return
    lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
    for line in lines:
        feature, problem = json.loads(line)
        yield feature, problem
    if done.returncode or not lines:
        yield "end", done.stderr.strip()[-300:] or f"exit status {done.returncode}"


def table(results: dict[str, dict[str, str]]) -> str:
    """The results as Markdown: the common features, and a count of further ones."""
    rows = [
        ("client", *COLUMNS, "others"),
        *[("---",) * (len(COLUMNS) + len(("client", "others")))],
    ]
    for name, features in results.items():
        others = [problem for feature, problem in features.items() if feature not in COLUMNS]
        failed = sum(problem not in ("", NO_CALL) for problem in others)
        counted = f"{len(others) - failed} of {len(others)}" if others else ""
        cells = [_word(features[each]) if each in features else "" for each in COLUMNS]
        rows.append((name, *cells, counted))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _word(problem: str) -> str:
    return problem if problem == NO_CALL else "fails" if problem else "works"


def _first_model(base: str) -> str:
    """The name of a server's first model; raises ValueError."""
    address = f"{base}/v1/models"
    try:
        with urllib.request.urlopen(address) as response:
            name: str = json.load(response)["data"][0]["id"]
    except (OSError, ValueError, LookupError, TypeError, HTTPException) as error:
        raise ValueError(
            f"{address}: expected a list of models, got {type(error).__name__}: {error}; "
            "start a server with `hearth serve`"
        ) from error
    return name


def main() -> int:
    """Run the clients of the arguments; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.clients", description=__doc__)
    parser.add_argument("url", help="address of the server")
    parser.add_argument("--only", action="append", choices=CLIENTS, help="a client; repeatable")
    parser.add_argument("--skip", action="append", default=[], choices=CLIENTS, help="repeatable")
    parser.add_argument("--environments", type=Path, default=Path("build/clients"), metavar="DIR")
    options = parser.parse_args()
    try:
        model = _first_model(options.url)
    except ValueError as error:
        parser.error(str(error))
    results: dict[str, dict[str, str]] = {}
    failed = 0
    with fakes.running(scripted_model.service()) as scripted:
        for name in options.only or [name for name in CLIENTS if name not in options.skip]:
            folder = options.environments.resolve() / name.lower().replace(" ", "-")
            base = str(scripted.base_url) if CLIENTS[name].is_agent else options.url
            results[name] = {}
            for feature, problem in check(name, folder, base, model):
                results[name][feature] = problem
                failed += problem not in ("", NO_CALL)
                print(f"{name:30}{feature:40}{problem or 'works'}", flush=True)  # noqa: T201
    print(f"\n{table(results)}")  # noqa: T201
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
